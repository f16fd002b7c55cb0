"""What callers may have: requests, streams, tasks, and what runs use. Over it they are told when to come again."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AApp, Limits, Quotas, Rate, Workers, to_a2a

from ...agents import GatedAgent
from ...app_client import LIMIT, Client, Exchange, lifespan, message, rpc, state_of
from ...logs import audit_records
from ...serving import each_backend, list_tasks, serving, wait_until_ended
from ..fasta2a_parts import plain_worker
from ..metered import AUTH, DAY, TOKENS, Clock, assert_quota_exceeded, client_of
from ..refusals import error_of_answer, send_body, serving_without_runs

# --- requests -------------------------------------------------------------------------------------------------------


async def test_send_over_rate_stores_no_task() -> None:
    async with serving_without_runs(limits=Limits(quotas=Quotas(rates={'SendMessage': Rate(1, DAY)}))) as client:
        Clock(client.app)
        await client.post(send_body(taskId='none'))  # counts, although it is refused
        assert_quota_exceeded(await client.post(send_body()), 'rates.SendMessage', retry_after='86400')


@pytest.mark.parametrize(
    ('method', 'params', 'code'),
    [
        ('SendMessage', {'message': 7}, -32602),
        ('CreateTaskPushNotificationConfig', {'taskId': 't', 'url': 'https://example.com'}, -32003),
    ],
)
async def test_refused_request_counts_toward_default_rate(method: str, params: Any, code: int) -> None:
    async with serving_without_runs(
        limits=Limits(quotas=Quotas(rates={'GetTask': Rate(9, DAY), '*': Rate(2, DAY)}))
    ) as client:
        Clock(client.app)
        for _ in range(2):
            assert error_of_answer(await client.post(rpc(method, params))).code == code
        assert_quota_exceeded(await client.post(rpc(method, params)), 'rates.*', retry_after='43200')
        assert error_of_answer(await client.post(rpc('GetTask', {'id': 't'}))).code == -32001


async def test_rate_counts_malformed_but_not_unauthenticated_requests() -> None:
    async with serving_without_runs(auth=AUTH, limits=Limits(quotas=Quotas(rates=Rate(1, DAY)))) as client:
        for _ in range(3):
            assert (await client.post(b'{')).status == 401
        ann = client_of(client, 'ann')
        assert (await ann.post(b'{')).json['error']['code'] == -32700
        answer = await ann.post(b'{')
        assert (answer.status, answer.json['error']['code']) == (429, -32000)


async def test_failure_to_count_request_is_internal_error(tmp_path: Path) -> None:
    options: Any = {'backend': f'sqlite:///{tmp_path}/agent.db', 'limits': Limits(quotas=Quotas(rates=Rate(9, DAY)))}
    async with serving(Agent('test', name='agent'), **options) as client:
        await asyncio.to_thread(drop_buckets, tmp_path / 'agent.db')
        answer = await client.post(b'{')
    assert answer.json['error']['code'] == -32603


def drop_buckets(file: Path) -> None:
    database = sqlite3.connect(file, timeout=LIMIT)
    database.execute('DROP TABLE bucket')
    database.close()


async def test_rate_allows_burst_then_steady_requests() -> None:
    rate = Rate(60, timedelta(minutes=1), burst=2)
    async with serving(Agent('test'), limits=Limits(quotas=Quotas(rates=rate))) as client:
        clock = Clock(client.app)
        for _ in range(2):
            await client.send()
        assert_quota_exceeded(await client.post(send_body()), 'rates.*')
        clock.sleep(timedelta(seconds=1))
        await client.send()
        assert_quota_exceeded(await client.post(send_body()), 'rates.*')


async def test_related_operations_share_rate_unless_named() -> None:
    rates = {'SendMessage': Rate(1, DAY), 'GetTask': Rate(2, DAY), 'ListTasks': Rate(1, DAY), '*': Rate(1, DAY)}
    async with serving(Agent('test'), limits=Limits(quotas=Quotas(rates=rates))) as client:
        Clock(client.app)
        task = await client.send()
        assert_quota_exceeded(
            await client.post(rpc('SendStreamingMessage', {'message': message()})),
            'rates.SendMessage',
            retry_after='86400',
        )
        await client.get_task(task['id'])
        over_subscribing = rpc('SubscribeToTask', {'id': task['id']})
        assert (await client.post(over_subscribing)).status in (200, 400)  # refused, since it has ended, but counted
        assert_quota_exceeded(await client.post(over_subscribing), 'rates.GetTask', retry_after='43200')
        await client.call('ListTasks', {})
        assert_quota_exceeded(await client.post(rpc('ListTasks', {})), 'rates.ListTasks', retry_after='86400')
        assert (await client.post(rpc('CancelTask', {'id': task['id']}))).status in (200, 400)
        assert_quota_exceeded(await client.post(rpc('CancelTask', {'id': task['id']})), 'rates.*', retry_after='86400')


async def test_rate_applies_per_caller_and_is_audited(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test'), auth=AUTH, limits=Limits(quotas=Quotas(rates=Rate(1, DAY)))) as client:
        Clock(client.app)
        for name in TOKENS:
            await client_of(client, name).send()
        answer = await client_of(client, 'ann').post(send_body())
        assert_quota_exceeded(answer, 'rates.*', retry_after='86400')
    [record] = audit_records(caplog)
    assert record == {
        'event': 'quota-exceeded',
        'remote': 'testclient',
        'quota': 'rates.*',
        'caller': 'ann',
        'tenant': 'acme',
        'correlation_id': answer.headers['x-correlation-id'],
    }


async def from_address(client: Client, address: str | None) -> int:
    """Send a message from there; the status of the answer."""
    headers = {'Content-Type': 'application/json', **client.headers}
    exchange = Exchange(client.app, 'POST', '/', headers, send_body())
    exchange.scope['client'] = None if address is None else (address, 1)
    return (await exchange.answer()).status


ADDRESSES = [
    *('192.0.2.1', '::ffff:192.0.2.1'),
    *('2001:db8::1%eth0', '2001:db8::2', '2001:db8:0:1::1'),
    *('a-socket', None, None),
]


@pytest.mark.parametrize(
    ('by_address', 'statuses'), [(False, [200, *[429] * 7]), (True, [200, 429, 200, 429, 200, 200, 200, 429])]
)
async def test_anonymous_callers_share_rate_unless_split_by_address(by_address: bool, statuses: list[int]) -> None:
    quotas = Quotas(rates=Rate(1, DAY), anonymous_by_address=by_address)
    async with serving(Agent('test'), limits=Limits(quotas=quotas)) as client:
        assert [await from_address(client, each) for each in ADDRESSES] == statuses


async def test_apps_on_same_sqlite_file_share_rate(tmp_path: Path) -> None:
    def app() -> A2AApp:
        return to_a2a(
            Agent('test', name='agent'),
            backend=f'sqlite:///{tmp_path}/agent.db',
            limits=Limits(quotas=Quotas(rates=Rate(10, DAY))),
        )

    one, two = app(), app()
    two.hosting.runs_tasks = False
    async with lifespan(one), lifespan(two), asyncio.timeout(LIMIT):
        posts = [Client(each).post(rpc('GetTask', {'id': 'none'})) for each in [one, two] * 10]
        statuses = [answer.status for answer in await asyncio.gather(*posts)]
    assert sorted(statuses) == [200] * 10 + [429] * 10


def test_rate_for_unknown_operation_is_refused_at_startup() -> None:
    with pytest.raises(
        ValueError, match=r"^Quotas\.rates has 'message/send', which is not an operation: use SendMessage, "
    ):
        to_a2a(Agent('test'), limits=Limits(quotas=Quotas(rates={'message/send': Rate(1, DAY)})))


# --- streams and tasks ----------------------------------------------------------------------------------------------


async def test_stream_over_quota_is_refused_until_stream_closes() -> None:
    gates = GatedAgent()
    refused = rpc('SendStreamingMessage', {'message': message('refused')})
    async with serving(gates.agent, auth=AUTH, limits=Limits(quotas=Quotas(streams=2))) as client:
        ann, bob = client_of(client, 'ann'), client_of(client, 'bob')
        async with ann.send_streaming('first'):
            for text in ('second', 'third'):
                async with ann.send_streaming(text), bob.send_streaming('of bob'):
                    assert_quota_exceeded(await ann.post(refused), 'streams')
        gates.open('first', 'second', 'third', 'fourth', 'of bob')
        async with ann.send_streaming('fourth') as stream:
            await stream.rest()
    assert 'refused' not in gates.began


async def test_blocking_send_counts_as_stream() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, limits=Limits(quotas=Quotas(streams=1))) as client:
        sent = message('first')
        waiting = asyncio.create_task(client.send(sent))
        await gates.reached('first')
        assert_quota_exceeded(await client.post(rpc('SendMessage', {'message': sent})), 'streams')
        at_once = rpc('SendMessage', {'message': sent, 'configuration': {'returnImmediately': True}})
        assert (await client.post(at_once)).status == 200
        gates.open('first')
        assert state_of(await waiting) == 'COMPLETED'
        assert state_of(await client.send(sent)) == 'COMPLETED'


async def test_task_over_quota_is_refused_until_task_ends() -> None:
    gates = GatedAgent()
    async with serving(
        gates.agent, auth=AUTH, limits=Limits(quotas=Quotas(tasks=2)), workers=Workers(running=1)
    ) as client:
        ann = client_of(client, 'ann')
        running, queued = [await ann.send(text, returnImmediately=True) for text in ('running', 'queued')]
        await gates.reached('running')
        assert_quota_exceeded(await ann.post(send_body()), 'tasks')
        assert len(await list_tasks(client)) == 2
        gates.open('running', 'queued', 'of bob', 'another')
        await client_of(client, 'bob').send('of bob')
        for task in (running, queued):
            await wait_until_ended(ann, task['id'])
        assert state_of(await ann.send('another')) == 'COMPLETED'


# --- running tasks --------------------------------------------------------------------------------------------------


@each_backend('memory', 'sqlite', 'postgres')
async def test_running_quota_leaves_workers_for_other_callers(backend: str) -> None:
    goes_on = asyncio.Event()
    running: list[str] = []
    most: list[int] = []

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        text = 'long' if 'long' in str(messages[0]) else 'short'
        running.append(text)
        most.append(running.count('long'))
        if text == 'long':
            await goes_on.wait()
        running.remove(text)
        return ModelResponse(parts=[TextPart('done')])

    agent = Agent(FunctionModel(model), name='agent')
    limits = Limits(quotas=Quotas(running=2))
    async with serving(agent, backend=backend, auth=AUTH, limits=limits, workers=Workers(running=4, lease=1)) as client:
        ann, bob = client_of(client, 'ann'), client_of(client, 'bob')
        long = [await ann.send('long', returnImmediately=True) for _ in range(5)]
        for _ in range(3):
            assert state_of(await bob.send('short')) == 'COMPLETED'
        states = [state_of(await ann.get_task(task['id'])) for task in long]
        assert sorted(states) == ['SUBMITTED'] * 3 + ['WORKING'] * 2
        goes_on.set()
        for task in long:
            assert state_of(await wait_until_ended(ann, task['id'])) == 'COMPLETED'
    assert max(most) == 2


@pytest.mark.parametrize(
    ('options', 'error'),
    [
        ({}, r'^Quotas\.running needs auth=: all anonymous callers are one caller'),
        ({'auth': AUTH, 'workers': Workers(worker=plain_worker())}, r'^Quotas\.running cannot be combined with'),
    ],
)
def test_running_quota_needs_auth_and_package_worker(options: Any, error: str) -> None:
    with pytest.raises(TypeError, match=error):
        to_a2a(Agent('test'), limits=Limits(quotas=Quotas(running=2)), **options)
