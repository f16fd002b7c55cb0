"""The audit log: one record of each refusal that may be an attack, of each cancel and of what is erased; no content."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from starlette.types import Message

from pydantic_ai_a2a import Access, BearerAuth, Caller, Limits, Push, Quotas, Rate
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.store.ports import Erased
from pydantic_ai_a2a.server.store.sql.housekeeping import SqlHousekeeping
from pydantic_ai_a2a.server.store.sql.reader_port import SqlReader
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend

from ...agents import GatedAgent
from ...app_client import LIMIT, Answer, Client, Exchange, message, rpc
from ...constants import with_constants
from ...logs import audit_records
from ...server.auth.issuer import bearer
from ...serving import serving, wait_until_ended
from ..callers import authenticate_as

ANN = 'the-token-of-ann-1234'
AUTH = BearerAuth({ANN: Caller(id='ann', tenant='acme')})
JSON = {'Content-Type': 'application/json'}
WHO = {'caller': 'ann', 'tenant': 'acme'}
SECRET = 'SECRET'
PRIVATE = f'https://10.0.0.1/{SECRET}.png'


def audit_records_without_secret(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The audit log, which has no secret."""
    records = audit_records(caplog)
    assert SECRET not in str(records)
    return records


def erasure_records(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The records of erasures, without their correlation ids."""
    return [
        {name: value for name, value in each.items() if name != 'correlation_id'}
        for each in audit_records_without_secret(caplog)
    ]


def memory_backend(client: Client) -> MemoryBackend:
    """The backend of the app, which is in memory."""
    backend = client.a2a_app.backend
    assert isinstance(backend, MemoryBackend)
    return backend


class UnavailableReader(SqlReader):
    """A store that is away when a task is read."""

    async def load(self, *_: object, **__: object) -> None:
        raise StoreUnavailable


class StalledBody(Exchange):
    """A request whose body does not come."""

    async def _receive(self) -> Message:
        return await asyncio.get_running_loop().create_future()


def url_of(field: str) -> bytes:
    parts = [{'url': PRIVATE if field == 'part' else 'https://example.com/a.png', 'mediaType': 'image/png'}]
    params: dict[str, Any] = {'message': message(parts=parts)}
    if field == 'webhook':
        params['configuration'] = {'taskPushNotificationConfig': {'url': PRIVATE}}
    return rpc('SendMessage', params)


async def stalled_request(client: Client) -> Answer:
    return await StalledBody(client.app, 'POST', '/', JSON | bearer(ANN), b'').answer()


async def request_to_foreign_host(client: Client) -> Answer:
    exchange = Exchange(client.app, 'POST', '/', JSON, SECRET.encode())
    exchange.scope['headers'][0] = (b'host', b'evil.example')
    return await exchange.answer()


REFUSALS: list[tuple[str, int, dict[str, str], Callable[[Client], Awaitable[Answer]]]] = [
    ('host', 421, {}, request_to_foreign_host),
    ('body-time', 408, WHO, stalled_request),
    ('body-size', 413, WHO, lambda client: client.post(SECRET.encode() * 1_000)),
    ('media-type', 415, WHO, lambda client: client.post(SECRET.encode(), {'Content-Type': 'text/plain'})),
    ('private-address', 200, WHO, lambda client: client.post(url_of('part'))),
    ('private-address', 200, WHO, lambda client: client.post(url_of('webhook'))),
]


@pytest.mark.parametrize(('refusal', 'status', 'who', 'ask'), REFUSALS)
async def test_suspicious_request_writes_audit_record(
    refusal: str,
    status: int,
    who: dict[str, str],
    ask: Callable[[Client], Awaitable[Answer]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    options: Any = {
        'access': Access(allowed_hosts=['testserver']),
        'limits': with_constants(Limits, body=4_000, body_time=0.01),
        'push': Push(),
    }
    async with serving(Agent('test'), auth=AUTH, **options, headers=bearer(ANN)) as client:
        answer = await ask(client)
    assert answer.status == status
    assert audit_records_without_secret(caplog) == [
        {
            'event': 'refused',
            'remote': 'testclient',
            'refusal': refusal,
            **who,
            'correlation_id': answer.headers['x-correlation-id'],
        }
    ]


async def test_exceeded_quota_writes_audit_record(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(
        Agent('test'), auth=AUTH, limits=Limits(quotas=Quotas(rates=Rate(1, timedelta(hours=1)))), headers=bearer(ANN)
    ) as client:
        statuses = [(await client.post(rpc('ListTasks', {}))).status for _ in range(2)]
    assert statuses == [200, 429]
    assert [(each['event'], each['quota'], each['caller']) for each in audit_records_without_secret(caplog)] == [
        ('quota-exceeded', 'rates.*', 'ann')
    ]


async def test_client_text_cannot_forge_audit_records(caplog: pytest.LogCaptureFixture) -> None:
    named = 'a\u2028\x85{"event":"erased"}'
    async with serving(
        Agent('test'), auth=authenticate_as(Caller(id='\ud800')), access=Access(tenants=['acme'])
    ) as client:
        answer = await client.post(rpc('GetTask', {'id': 't', 'tenant': named}))
    assert answer.status == 200
    [record] = audit_records_without_secret(caplog)
    assert (record['named'], record['caller']) == (named, '\ud800')
    assert [each for each in caplog.messages if not each.isascii() or len(each.splitlines()) > 1] == []


async def test_client_mistake_writes_no_audit_record(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test'), auth=AUTH, headers=bearer(ANN)) as client:
        for body in (b'{', rpc('GetTask', {'id': 'no-such-task'}), rpc('SendMessage', {'message': 7})):
            await client.post(body)
        await client.send()
    assert audit_records_without_secret(caplog) == []


async def test_cancel_writes_audit_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level('INFO', 'pydantic_ai_a2a.audit')
    gates = GatedAgent()
    async with serving(gates.agent, auth=AUTH, headers=bearer(ANN)) as client:
        tasks = [await client.send(SECRET, returnImmediately=True) for _ in range(2)]
        answer = await client.post(rpc('CancelTask', {'id': tasks[0]['id']}))
        await client.a2a_app.cancel_task(tasks[1]['id'])
        await client.post(rpc('CancelTask', {'id': tasks[0]['id']}))
    [by_caller, by_python] = audit_records_without_secret(caplog)
    assert by_caller == {
        'event': 'task-canceled',
        'task': tasks[0]['id'],
        'context': tasks[0]['contextId'],
        **WHO,
        'correlation_id': answer.headers['x-correlation-id'],
    }
    assert by_python.pop('correlation_id')
    assert by_python == {
        'event': 'task-canceled',
        'via': 'python',
        'task': tasks[1]['id'],
        'context': tasks[1]['contextId'],
        'owner': 'acme/ann',
    }


@pytest.mark.parametrize('ends', [False, True], ids=['breaks off', 'has ended'])
async def test_failed_cancel_is_audited_unless_task_ended(ends: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level('INFO', 'pydantic_ai_a2a.audit')
    gates, limits = GatedAgent(), with_constants(Limits, cancel_grace=LIMIT)
    async with serving(gates.agent, auth=AUTH, limits=limits, headers=bearer(ANN)) as client:
        task = await client.send(SECRET, returnImmediately=True)
        await gates.reached(SECRET)
        if ends:
            gates.open(SECRET)
            await wait_until_ended(client, task['id'])
        else:
            backend = memory_backend(client)
            backend.reader = UnavailableReader(backend)
        answer = await client.post(rpc('CancelTask', {'id': task['id']}))
    assert answer.status == (200 if ends else 503)
    known = [(each['event'], each['ended']) for each in audit_records_without_secret(caplog)]
    assert known == ([] if ends else [('task-canceled', 'asked')])


async def test_erasure_from_python_writes_audit_record(caplog: pytest.LogCaptureFixture) -> None:
    ann = Caller(id='ann', tenant='acme')
    async with serving(Agent('test'), auth=AUTH, headers=bearer(ANN)) as client:
        task, other, third = [await client.send(SECRET) for _ in range(3)]
        for _ in range(2):  # the second time, there is nothing left
            await client.a2a_app.erase_task(task['id'])
            await client.a2a_app.erase_context(other['contextId'], caller=ann)
            await client.a2a_app.conversations(caller=ann).delete(third['contextId'])
    assert erasure_records(caplog) == [
        {'event': 'erased', 'via': 'python', 'task': task['id']},
        {'event': 'erased', 'via': 'python', 'context': other['contextId'], 'owner': 'acme/ann'},
        {'event': 'erased', 'via': 'python', 'conversation': third['contextId'], 'owner': 'acme/ann'},
    ]


class InterruptedErasure(SqlHousekeeping):
    """Breaks off an erasure at the second batch."""

    batches = 0

    async def erase(self, owner: str, context_id: str | None = None, *, at: int) -> Erased:
        self.batches += 1
        if self.batches == 2:
            raise StoreUnavailable
        return await super().erase(owner, context_id, at=at)


async def test_interrupted_erasure_writes_audit_record(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test')) as client:
        context = (await client.send(SECRET))['contextId']
        backend = memory_backend(client)
        backend.housekeeping = InterruptedErasure(backend)
        with pytest.raises(StoreUnavailable):
            await client.a2a_app.erase_context(context)
    assert erasure_records(caplog) == [
        {'event': 'erased', 'via': 'python', 'context': context, 'owner': '/', 'ended': 'broken off'}
    ]


class EraseInLastBatch(SqlHousekeeping):
    """Erases the rest of a conversation in a last batch."""

    rest = Erased(entries=1)

    async def erase(self, owner: str, context_id: str | None = None, *, at: int) -> Erased:
        batch = await super().erase(owner, context_id, at=at)
        if not batch:
            batch, self.rest = self.rest, Erased()
        return batch


async def test_erasure_in_batches_is_audited_once(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test')) as client:
        context = (await client.send(SECRET))['contextId']
        backend = memory_backend(client)
        backend.housekeeping = EraseInLastBatch(backend)
        assert await client.a2a_app.erase_context(context)
    assert erasure_records(caplog) == [{'event': 'erased', 'via': 'python', 'context': context, 'owner': '/'}]
