"""Operations of callers in this process, by the dispatch alone: no HTTP, no ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import A2AApp, A2AError, Access, BearerAuth, Caller, Limits, Quotas, Rate, RequestInfo, to_a2a
from pydantic_ai_a2a.errors import (
    InvalidParamsError,
    PermissionDeniedError,
    QuotaExceededError,
    TaskNotFoundError,
    UnauthenticatedError,
)
from pydantic_ai_a2a.server.service.dispatch import Dispatch
from pydantic_ai_a2a.server.service.event_streams import EventStream
from pydantic_ai_a2a.types import GetParams, Message, Part, SendParams, StoredTask
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS
from pydantic_ai_a2a.wire.protocol.versions import HTTP

from ...bounds import LIMIT

ANN, BOB = 'the-token-of-ann-1234', 'the-token-of-bob-1234'
TOKENS = BearerAuth({ANN: Caller(id='ann', scopes=frozenset({'read', 'write'})), BOB: Caller(id='bob')})
DAY = timedelta(days=1)


@asynccontextmanager
async def running_app() -> AsyncGenerator[A2AApp]:
    """An app with callers, tenants, scopes and a rate."""
    app = to_a2a(
        Agent(TestModel(custom_output_text='The answer.')),
        auth=TOKENS,
        access=Access(tenants=['acme'], scopes={'SendMessage': 'write'}),
        limits=Limits(quotas=Quotas(rates={'GetTask': Rate(1, DAY)}, streams=1)),
    )
    await app.hosting.start()
    try:
        async with asyncio.timeout(LIMIT):
            yield app
    finally:
        await app.hosting.stop()


def dispatch_of(app: A2AApp, token: str) -> Dispatch:
    """The dispatch of a request that a transport other than HTTP has carried."""
    headers = [(b'authorization', f'Bearer {token}'.encode())]
    return Dispatch(app.dispatcher, RequestInfo(correlation_id='one', headers=headers, address='10.0.0.1'))


async def admit_and_perform(dispatch: Dispatch, name: str, params: Any) -> Any:
    await dispatch.admit()
    return await perform(dispatch, name, params)


async def perform(dispatch: Dispatch, name: str, params: Any) -> Any:
    return await dispatch.perform(OPERATIONS[name], params, HTTP, on_drop=lambda: None)


def send(text: str, tenant: str = 'acme') -> SendParams:
    message = Message(role='user', parts=[Part(text=text)], message_id=f'message-{text}')
    return SendParams(message=message, tenant=tenant)


async def test_send_creates_a_task_of_its_caller_and_tenant() -> None:
    async with running_app() as app:
        with closing(dispatch_of(app, ANN)) as dispatch:
            task = await admit_and_perform(dispatch, 'SendMessage', send('hello'))
        assert isinstance(task, StoredTask)
        assert task.header.state == 'completed'
        [listed] = await app.list_tasks(caller=Caller(id='ann', tenant='acme'))
        assert listed['id'] == task.header.id


async def test_stream_has_snapshot_and_events_and_frees_its_quota() -> None:
    async with running_app() as app:
        for text in ('first', 'second'):  # of the one stream that a caller may have
            with closing(dispatch_of(app, ANN)) as dispatch:
                stream = await admit_and_perform(dispatch, 'SendStreamingMessage', send(text))
                assert isinstance(stream, EventStream)
                assert stream.first is not None
                assert stream.subscription is not None
                events = [*await stream.subscription.next()]
                while events[-1].state not in stream.ends:
                    events += await stream.subscription.next()
            numbers = [event.n for event in events]
            assert numbers == [*range(stream.first.header.last_event + 1, numbers[-1] + 1)]
            assert events[-1].state == 'completed'
        assert len(await app.list_tasks(caller=Caller(id='ann', tenant='acme'))) == 2


async def test_in_process_caller_needs_no_credentials() -> None:
    async with running_app() as app:
        ann = Caller(id='ann', scopes=frozenset({'write'}))
        with closing(Dispatch(app.dispatcher, RequestInfo(correlation_id='two'), ann)) as dispatch:
            task = await perform(dispatch, 'SendMessage', send('hello'))
        assert Caller.of(task.header.owner) == Caller(id='ann', tenant='acme')


@pytest.mark.parametrize(
    ('token', 'name', 'params', 'error'),
    [
        ('nobody-has-this-token', 'SendMessage', send('hello'), UnauthenticatedError),
        (BOB, 'SendMessage', send('hello'), PermissionDeniedError),
        (ANN, 'SendMessage', send('hello', tenant='other'), InvalidParamsError),
        (ANN, 'GetTask', GetParams(id='no-such-task'), TaskNotFoundError),
    ],
    ids=['credentials', 'scope', 'tenant', 'task'],
)
async def test_refused_operation_raises_a_typed_error(
    token: str, name: str, params: Any, error: type[A2AError]
) -> None:
    async with running_app() as app:
        with closing(dispatch_of(app, token)) as dispatch:
            with pytest.raises(error) as refusal:
                await admit_and_perform(dispatch, name, params)
            assert await dispatch.refused(refusal.value) is refusal.value
        assert await app.list_tasks() == []


async def test_request_over_the_rate_limit_is_refused() -> None:
    async with running_app() as app:
        for error in (TaskNotFoundError, QuotaExceededError):
            with closing(dispatch_of(app, ANN)) as dispatch, pytest.raises(error):
                await admit_and_perform(dispatch, 'GetTask', GetParams(id='no-such-task'))
