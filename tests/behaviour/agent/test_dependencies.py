"""Dependencies of each run: what a factory is told, what it may be, and that what it opens is closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from pydantic_ai_a2a import APIKeyAuth, AuthRequired, CallContext, Caller, Limits, Messages, to_a2a

from ...agents import GatedAgent, echo_prompts
from ...app_client import Client, message, rpc, state_of, texts
from ...constants import with_constants
from ...serving import each_backend, serving, wait_until_ended
from ..callers import authenticate_as

AGENT: Agent[Any, str] = Agent(TestModel(), deps_type=str)
AUTH = authenticate_as(Caller(id='ann', tenant='acme', scopes=frozenset({'read'})))


@AGENT.tool
def deps(ctx: RunContext[Any]) -> str:
    return f'deps: {ctx.deps}'


def as_function(call: CallContext) -> str:
    return call.task_id


async def as_async_function(call: CallContext) -> str:
    return call.task_id


@contextmanager
def as_context_manager(call: CallContext) -> Generator[str]:
    yield call.task_id


@asynccontextmanager
async def as_async_context_manager(call: CallContext) -> AsyncGenerator[str]:
    yield call.task_id


async def as_awaited_context_manager(call: CallContext) -> Any:
    return as_async_context_manager(call)


class Connection:
    """Awaiting it opens it, and so does entering it: one of the two will do."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.opened = 0

    def __await__(self) -> Generator[Any, None, str]:
        yield from asyncio.sleep(0).__await__()
        raise AssertionError('it was awaited')

    async def __aenter__(self) -> str:
        return self.name

    async def __aexit__(self, *error: object) -> None:
        pass


def as_connection(call: CallContext) -> Connection:
    return Connection(call.task_id)


FACTORIES = (
    as_function,
    as_async_function,
    as_context_manager,
    as_async_context_manager,
    as_awaited_context_manager,
    as_connection,
)


class Session:
    """Counts how often it is opened, and how it is closed."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed: list[str] = []

    @asynccontextmanager
    async def __call__(self, call: CallContext) -> AsyncGenerator[Any]:
        self.opened += 1
        how = 'well'
        try:
            yield self
        except BaseException as error:
            how = type(error).__name__
            raise
        finally:
            await asyncio.sleep(0)
            self.closed.append(how)


async def cancel(client: Client, task: dict[str, Any]) -> str:
    return state_of(await client.call('CancelTask', {'id': task['id']}))


@pytest.mark.parametrize('factory', FACTORIES)
async def test_deps_factory_may_be_sync_async_or_context_manager(factory: Callable[[CallContext], Any]) -> None:
    async with serving(AGENT, deps_factory=factory) as client:
        task = await client.send()
    assert texts(task) == [f'{{"deps":"deps: {task["id"]}"}}']


async def test_repeated_header_reaches_factory_joined() -> None:
    calls: list[CallContext] = []
    messages = Messages(deps_headers=['x-region'])
    async with serving(AGENT, deps_factory=calls.append, messages=messages) as client:

        async def repeating(scope: Scope, receive: Receive, send: Send) -> None:
            regions = [(b'x-region', b'eu'), (b'x-region', b'us')]
            await client.app({**scope, 'headers': [*scope['headers'], *regions]}, receive, send)

        await Client(repeating).send()
    assert [call.headers for call in calls] == [{'x-region': 'eu, us'}]


async def test_deps_factory_gets_call_with_listed_headers_only() -> None:
    told: list[CallContext] = []
    async with serving(
        AGENT,
        deps_factory=told.append,
        messages=Messages(deps_headers=('X-Region', 'x-shop')),
        auth=AUTH,
        headers={'X-Region': 'eu', 'Authorization': 'Bearer secret', 'X-Other': 'other'},
    ) as client:
        sent = {**message('hi', contextId='c'), 'metadata': {'of': 'message'}}
        answer = await client.call('SendMessage', {'message': sent, 'metadata': {'of': 'request'}})
    [call] = told
    task_id = answer['task']['id']
    assert (call.caller, call.caller.scopes, call.tenant) == (
        Caller(id='ann', tenant='acme'),
        frozenset({'read'}),
        'acme',
    )
    assert call.headers == {'x-region': 'eu'}
    assert call.metadata == {'of': 'request'}
    assert (call.task_id, call.context_id) == (task_id, 'c')
    assert call.message == {
        'message_id': sent['messageId'],
        'role': 'user',
        'parts': [{'text': 'hi'}],
        'metadata': {'of': 'message'},
        'task_id': task_id,
        'context_id': 'c',
    }


async def test_each_run_of_task_gets_own_dependencies() -> None:
    gates, told = GatedAgent(), list[str]()

    def factory(call: CallContext) -> None:
        told.append(call.message['parts'][0].get('text', ''))

    async with serving(gates.agent, deps_factory=factory) as client:
        assert texts(await gates.run_twice(client)) == ['one', 'one + two']
    assert told == ['one', 'two']


async def test_each_run_gets_call_context_of_its_own_message() -> None:
    gates, told = GatedAgent(), list[tuple[str, Any, Any, Any]]()

    def authenticate(request: Request) -> Caller:
        return Caller(id='ann', scopes=frozenset({request.headers['x-scope']}))

    def factory(call: CallContext) -> None:
        told.append((call.message['parts'][0].get('text', ''), call.headers, {*call.caller.scopes}, call.metadata))

    options: dict[str, Any] = {
        'deps_factory': factory,
        'messages': Messages(deps_headers=['x-scope']),
        'auth': authenticate,
    }
    async with serving(gates.agent, **options) as client:
        first, second, third = (Client(client.app, headers={'X-Scope': scope}) for scope in ('admin', 'read', 'write'))
        task = await first.send('one', returnImmediately=True)
        await gates.reached('one')
        for caller, text in ((second, 'two'), (third, 'three')):
            params = {'message': message(text, taskId=task['id']), 'metadata': {'for': text}}
            await caller.post(rpc('SendMessage', {**params, 'configuration': {'returnImmediately': True}}))
        gates.open('one', 'two', 'three')
        await wait_until_ended(first, task['id'])
    assert told == [
        ('one', {'x-scope': 'admin'}, {'admin'}, {}),
        ('two', {'x-scope': 'read'}, {'read'}, {'for': 'two'}),
        ('three', {'x-scope': 'write'}, {'write'}, {'for': 'three'}),
    ]


async def test_dependencies_are_closed_before_task_completes() -> None:
    session = Session()
    async with serving(AGENT, deps_factory=session) as client:
        assert state_of(await client.send()) == 'COMPLETED'
        assert session.closed == ['well']


@pytest.mark.parametrize('swallows', [False, True], ids=['told', 'swallowed'])
async def test_failed_run_closes_dependencies_and_stays_failed(swallows: bool) -> None:
    closed: list[str] = []

    @asynccontextmanager
    async def factory(call: CallContext) -> AsyncGenerator[None]:
        try:
            yield
        except ZeroDivisionError:
            closed.append('failed')
            if not swallows:
                raise

    def fail(*_: Any) -> Any:
        return 1 // 0

    async with serving(Agent(FunctionModel(fail)), deps_factory=factory) as client:
        task = await client.send()
    assert (state_of(task), closed) == ('FAILED', ['failed'])


async def test_timed_out_run_closes_dependencies() -> None:
    session = Session()
    async with serving(GatedAgent().agent, deps_factory=session, timeout=0.01) as client:
        task = await client.send()
    assert task['status']['message']['metadata']['failure'] == 'timeout'
    assert session.closed == ['RunTimedOut']


async def test_canceled_run_closes_dependencies() -> None:
    gates, session = GatedAgent(), Session()
    async with serving(gates.agent, deps_factory=session) as client:
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        assert await cancel(client, task) == 'CANCELED'
        assert session.closed == ['RunCancelled']


@each_backend('memory', 'sqlite')
async def test_server_shutdown_closes_dependencies(backend: str) -> None:
    gates, session = GatedAgent(), Session()
    async with serving(gates.agent, backend=backend, deps_factory=session, drain_grace=0.01) as client:
        await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
    assert (session.opened, session.closed) == (1, ['CancelledError'])


async def test_run_resumed_by_another_server_gets_same_call_context(tmp_path: Path) -> None:
    gates, told = GatedAgent(), list[CallContext]()
    options: dict[str, Any] = {
        'backend': f'sqlite:///{tmp_path}/agent.db?synchronous=normal',
        'deps_factory': told.append,
        'messages': Messages(deps_headers=['x-region']),
        'auth': AUTH,
    }
    async with serving(gates.agent, **options, headers={'X-Region': 'eu'}, drain_grace=0.01) as client:
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
    gates.open('hi')
    async with serving(gates.agent, **options) as client:
        assert texts(await wait_until_ended(client, task['id'])) == ['hi']
    first, second = told
    assert first == second
    assert (second.headers, second.caller.scopes) == ({'x-region': 'eu'}, frozenset({'read'}))


async def fails(call: CallContext) -> None:
    raise RuntimeError('secret')


async def runs_out_of_time(call: CallContext) -> None:
    raise TimeoutError('secret')


@asynccontextmanager
async def fails_to_close(call: CallContext) -> AsyncGenerator[None]:
    yield
    raise RuntimeError('secret')


@pytest.mark.parametrize('factory', [fails, runs_out_of_time, fails_to_close])
async def test_deps_factory_error_is_hidden_from_client(
    factory: Callable[[CallContext], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(AGENT, deps_factory=factory) as client:
        status = (await client.send())['status']
    assert 'secret' not in str(status)
    assert status['message']['parts'][0]['text'] == snapshot('The agent failed with an internal error.')
    assert status['message']['metadata']['failure'] == 'internal'
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert status['message']['metadata']['correlationId'] in record.getMessage()
    assert 'secret' in caplog.text


async def test_close_error_after_cancel_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gates = GatedAgent()

    @asynccontextmanager
    async def factory(call: CallContext) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            raise RuntimeError('it does not close')

    async with serving(gates.agent, deps_factory=factory) as client:
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        assert await cancel(client, task) == 'CANCELED'
    assert f'closed the dependencies of task {task["id"]}; the error of the run stays.' in caplog.text


@pytest.mark.parametrize('cancels', [False, True], ids=['failed', 'canceled by itself'])
async def test_close_error_does_not_change_failure_kind(cancels: bool) -> None:
    @asynccontextmanager
    async def factory(call: CallContext) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            raise asyncio.CancelledError if cancels else ValueError

    async with serving(GatedAgent().agent, deps_factory=factory, timeout=0.01) as client:
        task = await client.send()
    assert task['status']['message']['metadata']['failure'] == 'timeout'


class HangingFactory:
    """Never comes to an end by itself, unless nobody wants it any longer."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.over = asyncio.Event()

    async def __call__(self, call: CallContext) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.over.set()


async def test_task_can_be_canceled_while_dependencies_are_created() -> None:
    slow, canceled = HangingFactory(), list[Any]()
    async with serving(AGENT, deps_factory=slow, on_cancel=canceled.append) as client:
        task = await client.send(returnImmediately=True)
        await slow.began.wait()
        assert await cancel(client, task) == 'CANCELED'
        assert slow.over.is_set()
    [told] = canceled
    assert told.metadata['a2a']['task_id'] == task['id']


async def test_dependencies_slower_than_timeout_fail_task() -> None:
    slow = HangingFactory()
    async with serving(AGENT, deps_factory=slow, timeout=0.01) as client:
        task = await client.send()
    assert task['status']['message']['metadata']['failure'] == 'timeout'
    assert slow.over.is_set()


async def test_shutdown_does_not_wait_for_hanging_close_of_dependencies() -> None:
    gates, closing = GatedAgent(), asyncio.Event()

    @asynccontextmanager
    async def factory(call: CallContext) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            closing.set()
            await asyncio.Event().wait()

    limits = with_constants(Limits, cancel_grace=0.01)
    async with serving(gates.agent, deps_factory=factory, drain_grace=0.01, limits=limits) as client:
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        assert await cancel(client, task) == 'CANCELED'
        await closing.wait()


async def test_task_resumed_from_python_keeps_caller_and_headers() -> None:
    told: list[CallContext] = []
    agent: Agent[Any, Any] = Agent(TestModel(), name='agent', output_type=[AuthRequired, str])

    @agent.tool_plain
    def look() -> str:
        if len(told) == 1:
            raise AuthRequired('Log in.')
        return 'seen'

    messages = Messages(deps_headers=['x-region'])
    async with serving(
        agent, deps_factory=told.append, messages=messages, auth=AUTH, headers={'X-Region': 'eu'}
    ) as client:
        task = await client.send()
        assert state_of(task) == 'AUTH_REQUIRED'
        await client.a2a_app.resume_task(task['id'])
        await wait_until_ended(client, task['id'])
    assert [(call.caller, call.headers, call.caller.scopes) for call in told] == [
        (Caller(id='ann', tenant='acme'), {'x-region': 'eu'}, frozenset({'read'}))
    ] * 2


async def yields(call: CallContext) -> AsyncGenerator[None]:
    yield


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    'both': (
        {'deps': 1, 'deps_factory': fails},
        TypeError,
        'Give deps= or deps_factory=, not both.',
    ),
    'headers alone': (
        {'messages': Messages(deps_headers=['x-a'])},
        TypeError,
        'Messages.deps_headers needs deps_factory=, which receives the headers.',
    ),
    'no function': ({'deps_factory': 1}, TypeError, 'to_a2a(): deps_factory takes a function or None, not an int.'),
    'generator': (
        {'deps_factory': yields},
        TypeError,
        'deps_factory= yields: decorate it with contextlib.asynccontextmanager or contextmanager.',
    ),
    'two arguments': (
        {'deps_factory': lambda a, b: 1},  # pyright: ignore[reportUnknownLambdaType]
        TypeError,
        "deps_factory= is called with one argument, the CallContext: missing a required argument: 'b'.",
    ),
    'no argument': (
        {'deps_factory': lambda: 1},
        TypeError,
        'deps_factory= is called with one argument, the CallContext: too many positional arguments.',
    ),
    'credentials': (
        {'deps_factory': fails, 'messages': Messages(deps_headers=['x-a', 'Authorization', 'Cookie'])},
        ValueError,
        'deps_headers= must not name Authorization, Cookie: headers are stored with the task, and credentials'
        ' are never stored.',
    ),
    'keys': (
        {
            'deps_factory': fails,
            'messages': Messages(deps_headers=['x-key']),
            'auth': APIKeyAuth({'a' * 16: 'ann'}, header='X-Key'),
        },
        ValueError,
        'deps_headers= must not name x-key: headers are stored with the task, and credentials are never stored.',
    ),
}


@pytest.mark.parametrize(('options', 'error', 'said'), REFUSED.values(), ids=REFUSED)
async def test_invalid_dependency_options_are_refused_at_start(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as refused:
        async with serving(Agent(FunctionModel(echo_prompts)), **options):
            pytest.fail('it is served')
    assert str(refused.value) == said


def test_deps_factory_with_uncertain_signature_is_accepted() -> None:
    def wrapped(call: CallContext, database: str) -> None: ...

    @wraps(wrapped)
    def wrapper(call: CallContext) -> None: ...

    without_signature: Any = max
    for factory in (wrapper, without_signature):
        assert to_a2a(Agent('test'), deps_factory=factory)


@pytest.mark.parametrize(
    ('deps_type', 'options', 'warned'),
    [
        (str, {}, True),
        (dict[str, str], {}, True),
        (str | int, {}, True),
        (str | None, {}, False),
        (str, {'deps': 'given'}, False),
        (str, {'deps': None}, False),
        (str, {'deps_factory': as_function}, False),
        (type(None), {}, False),
        (object, {}, False),
    ],
)
async def test_missing_deps_are_warned_about_at_start(
    deps_type: Any, options: Any, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Agent('test', deps_type=deps_type), **options):
        pass
    assert ('The agent has a deps_type, and its runs have no deps: give them to' in caplog.text) == warned
