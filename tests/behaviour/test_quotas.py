"""What callers may have: requests, streams, tasks, and what runs use. Over it they are told when to come again."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage
from fasta2a.worker import Worker
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from pydantic_ai_a2a import A2AApp, BearerAuth, Budget, Caller, Limits, Quotas, Rate, Workers, hash_key, to_a2a
from pydantic_ai_a2a.worker import now_ms

from ..client import LIMIT, Answer, Client, Exchange, lifespan, message, rpc, state_of
from ..dialects import json_rpc, only, spoken, unversioned
from .refused import refusal, send, untouched
from .stage import Stage, ended, serving, tasks_of

DAY = timedelta(days=1)
USED = RequestUsage(input_tokens=60, output_tokens=40, cost=Decimal('0.01'))
"""What each request to a model here comes to."""
TOKENS = {'ann': 'the-token-of-ann-1234', 'bob': 'the-token-of-bob-1234', 'eve': 'the-token-of-eve-1234'}
AUTH = BearerAuth({
    hash_key(token): Caller(id=name, tenant='' if name == 'eve' else 'acme') for name, token in TOKENS.items()
})  # fmt: skip

HTTP = unversioned('how often is asked is below what versions differ in')


class Clock:
    """A time that passes when it is told to."""

    def __init__(self, app: Any) -> None:
        assert isinstance(app, A2AApp)
        assert app.metering is not None
        self.now = now_ms()
        app.metering.now = lambda: self.now

    def sleep(self, time: timedelta) -> None:
        self.now += time // timedelta(milliseconds=1)


def by(client: Client, name: str) -> Client:
    """The client of a caller."""
    return Client(client.app, headers={'Authorization': f'Bearer {TOKENS[name]}'})


def over(answer: Answer, quota: str, *, retry_after: str = '1') -> None:
    """See that a quota was used up."""
    error = refusal(answer, status=429)
    assert error.code == -32000
    assert answer.headers['retry-after'] == retry_after
    if spoken().has_details:
        assert error.data[0]['metadata']['quota'] == quota


def work() -> str:
    """What the agents here have for a tool."""
    return 'worked'


def working(steps: int = 1, used: RequestUsage = USED) -> Agent[object, str]:
    """An agent that asks its model so many times."""

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        done = sum(isinstance(each, ModelResponse) for each in messages)
        part = TextPart('done') if done % steps == steps - 1 else ToolCallPart('work')
        return ModelResponse(parts=[part], usage=used)

    agent = Agent(FunctionModel(answer))
    agent.tool_plain(work)
    return agent


# --- requests -------------------------------------------------------------------------------------------------------


async def test_a_request_too_many_is_refused_before_anything_is_stored() -> None:
    async with untouched(quotas=Quotas(rates={'SendMessage': Rate(1, DAY)})) as client:
        await client.post(send(taskId='none'))  # counts, although it is refused
        over(await client.post(send()), 'rates.SendMessage', retry_after='86400')


@pytest.mark.parametrize(
    ('method', 'params', 'code'),
    [
        ('SendMessage', {'message': 7}, -32602),
        ('CreateTaskPushNotificationConfig', {'taskId': 't', 'url': 'https://example.com'}, -32003),
    ],
)
@only('1.0', reason='the names are those of 1.0')
async def test_a_request_that_is_refused_at_once_counts_as_one_that_is_not_named(
    method: str, params: Any, code: int
) -> None:
    async with untouched(quotas=Quotas(rates={'GetTask': Rate(9, DAY), '*': Rate(2, DAY)})) as client:
        for _ in range(2):
            assert refusal(await client.post(rpc(method, params))).code == code
        over(await client.post(rpc(method, params)), 'rates.*', retry_after='43200')
        assert refusal(await client.post(rpc('GetTask', {'id': 't'}))).code == -32001


@json_rpc('what is sent is JSON-RPC')
async def test_what_is_no_request_counts_too_and_who_is_refused_does_not() -> None:
    async with untouched(auth=AUTH, quotas=Quotas(rates=Rate(1, DAY))) as client:
        for _ in range(3):
            assert (await client.post(b'{')).status == 401
        ann = by(client, 'ann')
        assert (await ann.post(b'{')).json['error']['code'] == -32700
        answer = await ann.post(b'{')
        assert (answer.status, answer.json['error']['code']) == (429, -32000)


@HTTP
async def test_a_store_that_cannot_count_a_refused_request_is_an_error_of_the_servers(tmp_path: Path) -> None:
    options: Any = {'backend': f'sqlite:///{tmp_path}/agent.db', 'quotas': Quotas(rates=Rate(9, DAY))}
    app = to_a2a(Agent('test'), **options)
    async with lifespan(app):
        await asyncio.to_thread(drop_buckets, tmp_path / 'agent.db')
        answer = await Client(app).post(b'{')
    assert answer.json['error']['code'] == -32603


def drop_buckets(file: Path) -> None:
    database = sqlite3.connect(file)
    database.execute('DROP TABLE bucket')
    database.close()


@HTTP
async def test_a_rate_gives_a_burst_and_then_one_request_after_the_other() -> None:
    rate = Rate(60, timedelta(minutes=1), burst=2)
    async with serving(Agent('test'), quotas=Quotas(rates=rate)) as client:
        clock = Clock(client.app)
        for _ in range(2):
            await client.send()
        over(await client.post(send()), 'rates.*')
        clock.sleep(timedelta(seconds=1))
        await client.send()
        over(await client.post(send()), 'rates.*')


@only('1.0', reason='0.3 has no lists')
async def test_what_is_much_the_same_counts_together_unless_it_is_named() -> None:
    rates = {'SendMessage': Rate(1, DAY), 'GetTask': Rate(2, DAY), 'ListTasks': Rate(1, DAY), '*': Rate(1, DAY)}
    async with serving(Agent('test'), quotas=Quotas(rates=rates)) as client:
        task = await client.send()
        over(
            await client.post(rpc('SendStreamingMessage', {'message': message()})),
            'rates.SendMessage',
            retry_after='86400',
        )
        await client.get_task(task['id'])
        over_subscribing = rpc('SubscribeToTask', {'id': task['id']})
        assert (await client.post(over_subscribing)).status in (200, 400)  # refused, since it has ended, but counted
        over(await client.post(over_subscribing), 'rates.GetTask', retry_after='43200')
        await client.call('ListTasks', {})
        over(await client.post(rpc('ListTasks', {})), 'rates.ListTasks', retry_after='86400')
        assert (await client.post(rpc('CancelTask', {'id': task['id']}))).status in (200, 400)
        over(await client.post(rpc('CancelTask', {'id': task['id']})), 'rates.*', retry_after='86400')


@HTTP
async def test_each_caller_has_a_rate_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test'), auth=AUTH, quotas=Quotas(rates=Rate(1, DAY))) as client:
        for name in TOKENS:
            await by(client, name).send()
        answer = await by(client, 'ann').post(send())
        over(answer, 'rates.*', retry_after='86400')
    [record] = [vars(each)['audit'] for each in caplog.records if each.name == 'pydantic_ai_a2a.audit']
    assert {**record, 'time': None} == {
        'event': 'quota-exceeded',
        'time': None,
        'remote': 'testclient',
        'quota': 'rates.*',
        'caller': 'ann',
        'tenant': 'acme',
        'correlation_id': answer.headers['x-correlation-id'],
    }


async def from_address(client: Client, address: str | None) -> int:
    """Send a message from there; the status of the answer."""
    headers = {'Content-Type': 'application/json', **client.headers}
    exchange = Exchange(client.app, 'POST', '/', headers, send())
    exchange.scope['client'] = None if address is None else (address, 1)
    return (await exchange.answer()).status


@HTTP
@pytest.mark.parametrize(
    ('by_address', 'statuses'), [(False, [200, 429, 429, 429, 429, 429]), (True, [200, 429, 200, 429, 200, 200])]
)
async def test_anonymous_callers_are_one_unless_their_addresses_count(by_address: bool, statuses: list[int]) -> None:
    addresses = ['192.0.2.1', '::ffff:192.0.2.1', '2001:db8::1%eth0', '2001:db8::2', '2001:db8:0:1::1', 'a-socket']
    quotas = Quotas(rates=Rate(1, DAY), anonymous_by_address=by_address)
    async with serving(Agent('test'), quotas=quotas) as client:
        assert [await from_address(client, each) for each in addresses] == statuses


@HTTP
async def test_who_has_no_address_counts_with_all_that_have_none() -> None:
    quotas = Quotas(rates=Rate(1, DAY), anonymous_by_address=True)
    async with serving(Agent('test'), quotas=quotas) as client:
        assert [await from_address(client, None) for _ in range(2)] == [200, 429]


@HTTP
async def test_two_apps_with_one_file_count_together(tmp_path: Path) -> None:
    def app() -> A2AApp:
        return to_a2a(Agent('test'), backend=f'sqlite:///{tmp_path}/agent.db', quotas=Quotas(rates=Rate(10, DAY)))

    one, two = app(), app()
    two.hosting.runs_tasks = False
    async with lifespan(one), lifespan(two), asyncio.timeout(LIMIT):
        posts = [Client(each).post(rpc('GetTask', {'id': 'none'})) for each in [one, two] * 10]
        statuses = [answer.status for answer in await asyncio.gather(*posts)]
    assert sorted(statuses) == [200] * 10 + [429] * 10


def test_a_rate_is_for_an_operation() -> None:
    with pytest.raises(ValueError, match=r"^Quotas\.rates has 'message/send', which is no operation: SendMessage, "):
        to_a2a(Agent('test'), quotas=Quotas(rates={'message/send': Rate(1, DAY)}))


# --- streams and tasks ----------------------------------------------------------------------------------------------


async def test_a_stream_too_many_is_refused_until_one_is_closed() -> None:
    stage = Stage()
    async with serving(stage.agent, auth=AUTH, quotas=Quotas(streams=1)) as client:
        ann = by(client, 'ann')
        async with ann.send_streaming('first'):
            body = rpc('SendStreamingMessage', {'message': message('second')})
            over(await ann.post(body), 'streams')
            async with by(client, 'bob').send_streaming('of bob'):
                pass
        stage.open('first', 'third', 'of bob')
        async with ann.send_streaming('third') as stream:
            await stream.rest()
    assert 'second' not in stage.began


@HTTP
async def test_a_stream_that_is_closed_makes_room_for_one() -> None:
    stage = Stage()
    async with serving(stage.agent, quotas=Quotas(streams=2)) as client, client.send_streaming('first'):
        for text in ('second', 'third'):
            async with client.send_streaming(text):
                over(await client.post(rpc('SendStreamingMessage', {'message': message()})), 'streams')


async def test_a_send_that_waits_for_its_task_counts_as_a_stream() -> None:
    stage = Stage()
    async with serving(stage.agent, quotas=Quotas(streams=1)) as client:
        sent = message('first')
        waiting = asyncio.create_task(client.send(sent))
        await stage.reached('first')
        over(await client.post(rpc('SendMessage', {'message': sent})), 'streams')
        at_once = rpc('SendMessage', {'message': sent, 'configuration': {'returnImmediately': True}})
        assert (await client.post(at_once)).status == 200
        stage.open('first')
        assert state_of(await waiting) == 'COMPLETED'
        assert state_of(await client.send(sent)) == 'COMPLETED'


async def test_a_task_too_many_is_refused_until_one_has_ended() -> None:
    stage = Stage()
    async with serving(stage.agent, auth=AUTH, quotas=Quotas(tasks=2), workers=Workers(running=1)) as client:
        ann = by(client, 'ann')
        running, queued = [await ann.send(text, returnImmediately=True) for text in ('running', 'queued')]
        await stage.reached('running')
        over(await ann.post(send()), 'tasks')
        assert len(await tasks_of(client)) == 2
        stage.open('running', 'queued', 'of bob', 'another')
        await by(client, 'bob').send('of bob')
        for task in (running, queued):
            await ended(ann, task['id'])
        assert state_of(await ann.send('another')) == 'COMPLETED'


# --- budgets --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def budgeted(agent: Agent[Any, Any], *budgets: Budget, **options: Any) -> AsyncGenerator[tuple[Client, Clock]]:
    """A client of an app with budgets, and its clock."""
    async with serving(agent, quotas=Quotas(budgets=budgets), **options) as client:
        clock = Clock(client.app)
        clock.now += -clock.now % (24 * 60 * 60_000)  # where a part of each window begins
        yield client, clock


MINUTES = timedelta(minutes=1)
LIMITS = UsageLimits(request_limit=9)


@pytest.mark.parametrize(
    ('budget', 'quota'),
    [
        (Budget(window=60 * MINUTES, requests=2), 'budgets.requests'),
        (Budget(window=60 * MINUTES, tokens=200), 'budgets.tokens'),
        (Budget(window=60 * MINUTES, cost=0.02), 'budgets.cost'),
    ],
    ids=['requests', 'tokens', 'cost'],
)
async def test_who_has_used_up_a_budget_is_refused_until_the_window_has_passed(budget: Budget, quota: str) -> None:
    async with budgeted(working(), budget) as (client, clock):
        await client.send()
        clock.sleep(10 * MINUTES)
        await client.send()
        clock.sleep(10 * MINUTES)
        over(await client.post(send()), quota, retry_after=str(41 * 60))
        assert len(await tasks_of(client)) == 2
        clock.sleep(41 * MINUTES)
        await client.send()
        over(await client.post(send()), quota, retry_after=str(10 * 60))


async def test_a_message_that_was_taken_has_its_answer_when_nothing_is_left() -> None:
    async with budgeted(working(), Budget(window=DAY, requests=1)) as (client, _):
        sent = message(messageId='a-message-id-of-its-own')
        task = await client.send(sent)
        over(await client.post(send()), 'budgets.requests', retry_after=str(24 * 3600 + 24 * 60))
        assert await client.send(sent) == task
        assert len(await tasks_of(client)) == 1


async def test_a_run_gets_what_is_left_of_a_budget() -> None:
    async with budgeted(
        working(steps=3), Budget(window=DAY, requests=4), usage_limits=UsageLimits(request_limit=9)
    ) as (
        client,
        _,
    ):
        assert state_of(await client.send()) == 'COMPLETED'
        failed = await client.send()
        assert failed['status']['message']['metadata']['failure'] == 'usage-limit'
        over(await client.post(send()), 'budgets.requests', retry_after=str(24 * 3600 + 24 * 60))


@HTTP
@pytest.mark.parametrize(
    'budget', [Budget(window=DAY, tokens=250), Budget(window=DAY, cost=Decimal('0.025'))], ids=['tokens', 'cost']
)
async def test_a_run_ends_with_the_request_that_goes_over(budget: Budget) -> None:
    async with budgeted(working(steps=9), Budget(window=DAY, requests=100), budget) as (client, _):
        task = await client.send()
        assert task['status']['message']['metadata']['failure'] == 'usage-limit'
        assert await used(client) == [(3, 300, 30_000_000)]


@HTTP
async def test_a_task_that_has_waited_until_nothing_was_left_does_not_ask_the_model() -> None:
    stage = Stage()
    budget = Budget(window=DAY, tokens=1)
    async with budgeted(stage.agent, budget, workers=Workers(running=1)) as (client, _):
        first = await client.send('first', returnImmediately=True)
        await stage.reached('first')
        second = await client.send('second', returnImmediately=True)
        stage.open('first', 'second')
        for task in (first, second):
            await ended(client, task['id'])
        failed = await client.get_task(second['id'])
    assert failed['status']['message']['metadata']['failure'] == 'usage-limit'
    assert stage.began == ['first']


async def used(client: Client, subject: str = '/', window: timedelta = DAY) -> list[tuple[int, int, int]]:
    """What is known of what a caller's runs have used: requests, tokens, billionths of a dollar."""
    assert isinstance(client.app, A2AApp)
    store, ms = client.app.backend.quotas, window // timedelta(milliseconds=1)
    return [each[1:] for each in await store.spent(subject, ms, at=0)]


@HTTP
async def test_a_tenant_has_one_budget_for_all_its_callers() -> None:
    budgets = [Budget(window=DAY, requests=2, of='tenant'), Budget(window=DAY, requests=9)]
    async with budgeted(working(), *budgets, auth=AUTH) as (client, _):
        for name in ('ann', 'bob'):
            await by(client, name).send()
        over(await by(client, 'ann').post(send()), 'budgets.requests', retry_after=str(24 * 3600 + 24 * 60))
        await by(client, 'eve').send()
        assert await used(client, 'acme') == [(2, 200, 20_000_000)]
        assert await used(client, 'acme/ann') == [(1, 100, 10_000_000)]


def failing(messages: Sequence[ModelMessage], _: AgentInfo) -> ModelResponse:
    """A model that breaks down at its second request."""
    if len(messages) > 1:
        raise ValueError('broken')
    return ModelResponse(parts=[ToolCallPart('work')], usage=USED)


@HTTP
async def test_a_run_that_fails_is_charged_what_it_used() -> None:
    agent = Agent(FunctionModel(failing))
    agent.tool_plain(work)
    async with budgeted(agent, Budget(window=DAY, requests=9)) as (client, _):
        assert state_of(await client.send()) == 'FAILED'
        assert await used(client) == [(1, 100, 10_000_000)]


class Held:
    """An agent whose one call of a tool takes as long as the test wants; a stubborn one also if it is cancelled."""

    def __init__(self, *, stubborn: bool) -> None:
        self.agent = Agent(working(steps=2).model)
        self.agent.tool_plain(self.work)
        self.begun = asyncio.Event()
        self.goes_on = asyncio.Event()
        self._stubborn = stubborn

    async def work(self) -> str:
        self.begun.set()
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            if not self._stubborn:
                raise
            await self.goes_on.wait()
        return 'worked'


@HTTP
@pytest.mark.parametrize('grace', [LIMIT, 0.001], ids=['in time', 'over its head'])
async def test_a_run_that_is_cancelled_is_charged_what_it_used(grace: float) -> None:
    held = Held(stubborn=grace != LIMIT)
    limits = Limits(cancel_grace=grace)
    async with budgeted(held.agent, Budget(window=DAY, requests=9), limits=limits) as (client, _):
        task = await client.send(returnImmediately=True)
        await held.begun.wait()
        canceling = asyncio.create_task(client.call('CancelTask', {'id': task['id']}))
        assert state_of(await canceling) == 'CANCELED'
        held.goes_on.set()
    assert await used(client) == [(1, 100, 10_000_000)]


class Priced(FunctionModel):
    """A model that has a price."""

    @property
    def system(self) -> str:
        return 'openai'


class Asked:
    """An agent whose model never answers; with a stream it has said something by then."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.agent = Agent(FunctionModel(self.answer), instructions='i' * 100)
        self.streaming = Agent(FunctionModel(self.answer, stream_function=self.stream), instructions='i' * 100)

    async def answer(self, _: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        self.begun.set()
        return await asyncio.Future()

    async def stream(self, _: list[ModelMessage], __: AgentInfo) -> AsyncGenerator[str]:
        yield 's' * 4000
        self.begun.set()
        await asyncio.Future()


@HTTP
async def test_a_request_that_is_cancelled_before_it_is_answered_is_charged_by_what_was_sent() -> None:
    asked = Asked()
    async with budgeted(asked.agent, Budget(window=DAY, requests=1)) as (client, _):
        file = {'raw': 'iVBORw0KGgo=', 'mediaType': 'image/png'}
        sent = message(parts=[{'text': 'x' * 4000}, {'data': {'a': 'y' * 4000}}, file])
        task = await client.send(sent, returnImmediately=True)
        await asked.begun.wait()
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
        [(requests, tokens, _)] = await used(client)
        assert requests == 1
        assert 3025 <= tokens <= 3100
        over(await client.post(send()), 'budgets.requests', retry_after=str(24 * 3600 + 24 * 60))


@HTTP
async def test_what_tools_were_told_and_have_returned_counts_as_sent() -> None:
    asked = Asked()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return await asked.answer(messages, info)
        return ModelResponse(parts=[ToolCallPart('look', {'at': 'x' * 4000})], usage=USED)

    def look(at: str) -> dict[str, str]:
        return {'seen': 'y' * 8000}

    agent = Agent(FunctionModel(answer))
    agent.tool_plain(look)
    async with budgeted(agent, Budget(window=DAY, requests=9)) as (client, _):
        task = await client.send(returnImmediately=True)
        await asked.begun.wait()
        await client.call('CancelTask', {'id': task['id']})
        [(requests, tokens, _)] = await used(client)
    assert requests == 2
    assert 3100 <= tokens <= 3200


@HTTP
async def test_a_stream_that_is_cancelled_is_charged_by_what_was_said() -> None:
    asked = Asked()
    async with budgeted(asked.streaming, Budget(window=DAY, tokens=900)) as (client, _):
        async with client.send_streaming('x' * 400) as stream:
            task = (await anext(stream)).result['task']
            await asked.begun.wait()
            await client.call('CancelTask', {'id': task['id']})
            await stream.rest()
        [(requests, tokens, _)] = await used(client)
    assert requests == 1
    assert 1125 <= tokens <= 1250


@HTTP
async def test_a_request_that_is_over_time_is_charged_although_it_has_no_answer() -> None:
    budgets = Budget(window=DAY, requests=9), Budget(window=DAY, cost=1)
    async with budgeted(Asked().agent, *budgets, timeout=1.0) as (client, _):
        failed = await client.send()
        assert failed['status']['message']['metadata']['failure'] == 'timeout'
        assert [requests for requests, _, _ in await used(client)] == [1]


@HTTP
async def test_what_was_sent_without_an_answer_costs_what_its_tokens_cost() -> None:
    asked = Asked()
    asked.agent.model = Priced(asked.answer, model_name='gpt-5.2')
    async with budgeted(asked.agent, Budget(window=DAY, cost=1)) as (client, _):
        task = await client.send('x' * 400_000, returnImmediately=True)
        await asked.begun.wait()
        await client.call('CancelTask', {'id': task['id']})
        [(_, tokens, cost)] = await used(client)
    assert cost > tokens > 100_000  # billionths of a dollar: more than 0.001 for a million


@HTTP
async def test_what_a_lost_process_used_is_charged_once(tmp_path: Path) -> None:
    held = Held(stubborn=False)
    options: Any = {
        'backend': f'sqlite:///{tmp_path}/agent.db?synchronous=normal',
        'quotas': Quotas(budgets=[Budget(window=DAY, requests=9)]),
        'workers': Workers(drain_grace=0.01),
    }
    app = to_a2a(held.agent, **options)
    async with lifespan(app), asyncio.timeout(LIMIT):
        task = await Client(app).send(returnImmediately=True)
        await held.begun.wait()
    held.goes_on.set()
    async with serving(held.agent, **options) as client:
        assert state_of(await ended(client, task['id'])) == 'COMPLETED'
        assert await used(client) == [(2, 200, 20_000_000)]


class Foreign(Worker[Any]):
    """A worker that would run tasks by itself."""

    async def run_task(self, params: Any) -> None: ...

    async def cancel_task(self, params: Any) -> None: ...

    def build_message_history(self, history: Any) -> list[Any]:
        return []

    def build_artifacts(self, result: Any) -> list[Any]:
        return []


def test_budgets_need_to_know_what_runs_use() -> None:
    worker = Foreign(broker=InMemoryBroker(), storage=InMemoryStorage[Any]())
    with pytest.raises(TypeError, match=r'^Quotas\.budgets need to know what runs use'):
        to_a2a(Agent('test'), worker=worker, quotas=Quotas(budgets=[Budget(window=DAY, requests=1)]))
    assert to_a2a(Agent('test'), worker=worker, quotas=Quotas(tasks=1)).metering is not None
