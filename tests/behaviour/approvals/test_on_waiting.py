"""The hook `on_waiting`: its calls for the pauses of tasks, and their argument."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

import pytest
from anyio import to_thread
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.function import FunctionModel
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from pydantic_ai_a2a import (
    A2AApp,
    Access,
    Approvals,
    AuthRequired,
    Caller,
    InputRequired,
    OpenCall,
    Rejected,
    TaskPause,
    Workers,
    to_a2a,
)
from pydantic_ai_a2a.server.runs import pause_hook
from pydantic_ai_a2a.server.store.sql.transaction import Transaction
from pydantic_ai_a2a.store import HookCall, HookCalls, MemoryBackend

from ...agents import echo_prompts, scripted_model
from ...app_client import LIMIT, Client, lifespan, message, state_of
from ...logs import log_event
from ...serving import each_backend, serving
from ..callers import caller_from_header, client_of_caller
from ..durable_processes import poll_until
from ..fasta2a_parts import memory_parts
from ..pending_calls import ApprovalAgent, answer_message, approve, pending_calls
from ..refusals import BASE_EXCEPTIONS

EACH_STORE = each_backend('memory', 'sqlite', 'postgres')
SHARED_STORE = each_backend('sqlite', 'postgres')
"""Stores that several processes share."""


class PauseLog:
    """A hook that keeps what it gets."""

    def __init__(self) -> None:
        self._pauses: asyncio.Queue[TaskPause] = asyncio.Queue()

    async def __call__(self, pause: TaskPause) -> None:
        await self._pauses.put(pause)

    async def next(self) -> TaskPause:
        async with asyncio.timeout(LIMIT):
            return await self._pauses.get()

    @property
    def count(self) -> int:
        """Number of calls that nobody has read."""
        return self._pauses.qsize()


def asking_agent(question: Exception, *, until: str = '+') -> Agent[object, Any]:
    """An agent whose runs end with a question until the prompts have a word."""
    agent = Agent(FunctionModel(echo_prompts), name='agent')

    @agent.output_validator
    def ask(output: str) -> str:
        if until not in output:
            raise question
        return output

    return agent


@EACH_STORE
async def test_on_waiting_sees_hidden_arguments(backend: str) -> None:
    pauses = PauseLog()
    options: dict[str, Any] = {'backend': backend, 'on_waiting': pauses, 'auth': caller_from_header}
    approvals = Approvals(hide_arguments=['delete'])
    async with serving(ApprovalAgent().agent, approvals=approvals, headers={'X-Caller': 'ann'}, **options) as client:
        task = await client.send(message('delete', contextId='c'))
        [shown] = pending_calls(task)
        assert 'args' not in shown
        assert await pauses.next() == TaskPause(
            task_id=task['id'],
            context_id='c',
            number=1,
            state='input-required',
            question=None,
            calls=[OpenCall(id=shown['id'], kind='approval', tool='delete', text=shown['text'], args={'path': 'a'})],
            owner=Caller(id='ann'),
            caller=Caller(id='ann'),
            link=None,
        )
    assert pauses.count == 0


@EACH_STORE
@pytest.mark.parametrize(
    ('raised', 'state', 'question'),
    [
        (InputRequired('Which size?'), 'input-required', 'Which size?'),
        (InputRequired('Which size?', schema={'type': 'string'}), 'input-required', 'Which size?'),
        (AuthRequired('Sign in first.', url='https://example.com'), 'auth-required', 'Sign in first.'),
    ],
    ids=['question', 'question with schema', 'sign-in'],
)
async def test_on_waiting_gets_question_of_agent(backend: str, raised: Exception, state: str, question: str) -> None:
    pauses = PauseLog()
    async with serving(asking_agent(raised), backend=backend, on_waiting=pauses) as client:
        task = await client.send('hi')
        pause = await pauses.next()
    assert (pause.task_id, pause.state, pause.question, pause.calls) == (task['id'], state, question, [])


async def test_on_waiting_gets_approvals_and_sign_ins_of_tools() -> None:
    pauses = PauseLog()

    def pay(cents: int) -> str:
        raise AuthRequired('Sign in.', url='https://example.com')

    def delete(path: str, force: bool = False) -> str:
        return 'deleted'

    calls = [ToolCallPart('delete', {'path': 'a'}, 'c1'), ToolCallPart('pay', {'cents': 1}, 'c2')]
    tools = [Tool(delete, requires_approval=True), Tool(pay)]
    agent: Agent[object, Any] = Agent(scripted_model(calls, 'Done.'), tools=tools)
    async with serving(agent, on_waiting=pauses) as client:
        task = await client.send('hi')
        both = await pauses.next()
        await client.send(answer_message(task, approve('c1')))
        sign_in = await pauses.next()
    assert [(call.kind, call.tool, call.args) for call in both.calls] == [
        ('approval', 'delete', {'path': 'a', 'force': False}),  # with the default, like the rule of approvers
        ('authorization', 'pay', {'cents': 1}),
    ]
    assert [(call.kind, call.text) for call in sign_in.calls] == [('authorization', 'Sign in.')]
    assert [(pause.number, pause.state) for pause in (both, sign_in)] == [(1, 'input-required'), (2, 'auth-required')]


@EACH_STORE
async def test_partial_answer_does_not_repeat_on_waiting(backend: str) -> None:
    pauses = PauseLog()
    async with serving(ApprovalAgent().agent, backend=backend, on_waiting=pauses) as client:
        task = await client.send('delete two')
        first = await pauses.next()
        assert [call.args for call in first.calls] == [{'path': 'a'}, {'path': 'b'}]
        task = await client.send(answer_message(task, approve('c1')))  # the task still waits, with the second call
        assert state_of(task) == 'INPUT_REQUIRED'
        task = await client.send(answer_message(task, approve('c2')))
        assert state_of(task) == 'COMPLETED'
        task = await client.send('delete')
        assert (await pauses.next()).task_id == task['id']  # the next call is for the next task
    assert (first.number, pauses.count) == (1, 0)


@EACH_STORE
async def test_pauses_of_task_are_numbered_in_order(backend: str) -> None:
    pauses = PauseLog()
    agent = asking_agent(InputRequired('Again?'), until='enough')
    async with serving(agent, backend=backend, on_waiting=pauses) as client:
        task = await client.send('one')
        numbers = [(await pauses.next()).number]
        for _ in range(2):
            await client.send(message('more', taskId=task['id']))
            numbers.append((await pauses.next()).number)
        assert state_of(await client.send(message('enough', taskId=task['id']))) == 'COMPLETED'
    assert numbers == [1, 2, 3]
    assert pauses.count == 0


async def test_external_calls_alone_do_not_call_on_waiting() -> None:
    pauses = PauseLog()
    async with serving(ApprovalAgent().agent, on_waiting=pauses) as client:
        assert state_of(await client.send('fetch')) == 'INPUT_REQUIRED'
        await client.send('mixed')
        pause = await pauses.next()
    assert [call.kind for call in pause.calls] == ['external', 'approval', 'question', 'approval']
    assert pauses.count == 0


@pytest.mark.parametrize('end', ['completed', 'rejected'])
async def test_ended_tasks_do_not_call_on_waiting(end: str) -> None:
    pauses = PauseLog()
    agent = ApprovalAgent().agent if end == 'completed' else asking_agent(Rejected('No.'))
    async with serving(agent, on_waiting=pauses) as client:
        assert state_of(await client.send('hi')) == end.upper()
    assert pauses.count == 0


@EACH_STORE
async def test_sync_hook_for_pauses_runs_in_thread(backend: str) -> None:
    threads, called = list[threading.Thread](), threading.Event()

    def on_waiting(pause: TaskPause) -> None:
        threads.append(threading.current_thread())
        called.set()

    async with serving(ApprovalAgent().agent, backend=backend, on_waiting=on_waiting) as client:
        await client.send('delete')
        assert await asyncio.to_thread(called.wait, LIMIT)
    assert threads != [threading.current_thread()]
    assert [thread.daemon for thread in threads] == [True]  # the process ends without its return


async def test_sync_on_waiting_gets_context_of_app() -> None:
    place, places, called = ContextVar('place', default='none'), list[str](), threading.Event()

    def on_waiting(pause: TaskPause) -> None:
        places.append(place.get())
        called.set()

    place.set('office')
    async with serving(ApprovalAgent().agent, on_waiting=on_waiting) as client:
        await client.send('delete')
        assert await asyncio.to_thread(called.wait, LIMIT)
    assert places == ['office']


@SHARED_STORE
@pytest.mark.parametrize('error', [ZeroDivisionError, StopIteration, asyncio.CancelledError, SystemExit, GeneratorExit])
@pytest.mark.parametrize('kind', ['async', 'sync'])
async def test_failed_on_waiting_is_logged_and_not_retried(
    error: type[BaseException], kind: str, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    pauses = PauseLog()

    async def async_hook(pause: TaskPause) -> None:
        await pauses(pause)
        raise error

    def sync_hook(pause: TaskPause) -> None:
        loop.call_soon_threadsafe(asyncio.ensure_future, pauses(pause))
        raise error

    loop, hook = asyncio.get_running_loop(), async_hook if kind == 'async' else sync_hook
    async with serving(ApprovalAgent().agent, backend=backend, on_waiting=hook) as client:
        task = await client.send('delete')
        assert (await pauses.next()).task_id == task['id']
        await hook_calls_end(client)
        assert state_of(await client.send(answer_message(task, approve()))) == 'COMPLETED'
    line = f'The hook on_waiting of task {task["id"]} failed; the task stays as it is.'
    assert [said for said in caplog.messages if 'on_waiting' in said] == [line]
    assert pauses.count == 0


@SHARED_STORE
@pytest.mark.parametrize('kind', ['async', 'deaf', 'sync'])
async def test_hanging_on_waiting_call_times_out(kind: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pause_hook, 'HOOK_TIME', 0.05)
    end, release = threading.Event(), asyncio.Event()

    async def hang(pause: TaskPause) -> None:
        try:
            await release.wait()
        except asyncio.CancelledError:
            if kind == 'async':
                raise
            await release.wait()  # does not heed the cancel

    def block(pause: TaskPause) -> None:
        end.wait(LIMIT)

    hook = block if kind == 'sync' else hang
    try:
        with log_event('has not returned within 0.05 seconds') as logged:
            async with serving(ApprovalAgent().agent, backend=backend, on_waiting=hook) as client:
                task = await client.send('delete')
                assert await asyncio.to_thread(logged.wait, LIMIT)
                await hook_calls_end(client)  # not tried again
                assert state_of(await client.send(answer_message(task, approve()))) == 'COMPLETED'
                release.set()
    finally:
        end.set()


async def test_hanging_hook_takes_no_tool_thread() -> None:
    began, release = threading.Event(), threading.Event()

    def block(pause: TaskPause) -> None:
        began.set()
        release.wait(LIMIT)

    limiter = to_thread.current_default_thread_limiter()
    async with serving(ApprovalAgent().agent, on_waiting=block) as client:
        try:
            task = await client.send('delete')
            assert await asyncio.get_running_loop().run_in_executor(None, began.wait, LIMIT)
            assert limiter.borrowed_tokens == 0
            assert state_of(await client.send(answer_message(task, approve()))) == 'COMPLETED'
        finally:
            release.set()


@SHARED_STORE
async def test_hanging_sync_hooks_take_at_most_ten_threads(
    backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pause_hook, 'HOOK_TIME', 0.05)
    called, end = list[str](), threading.Event()
    at_end = list[int]()

    def block(pause: TaskPause) -> None:
        called.append(pause.task_id)
        end.wait(LIMIT)
        at_end.append(len(called))

    async def all_given_up() -> bool:
        return caplog.text.count('has not returned within 0.05 seconds') == 10

    async def all_called() -> bool:
        return len(called) == 12

    async with serving(ApprovalAgent().agent, backend=backend, on_waiting=block) as client:
        try:
            tasks = [await client.send('delete') for _ in range(10)]
            await poll_until(all_given_up)
            tasks += [await client.send('delete') for _ in range(2)]
            assert state_of(await client.send(answer_message(tasks[0], approve()))) == 'COMPLETED'
            assert await stored_calls(client) == 2  # they wait until a thread returns
            assert len(called) == 10
        finally:
            end.set()
        await poll_until(all_called)
        await hook_calls_end(client)
    assert sorted(called) == sorted(task['id'] for task in tasks)


async def test_answered_pause_skips_queued_on_waiting_call() -> None:
    """Ten calls go on at once, and the eleventh waits until its pause has ended."""
    gate, pauses = asyncio.Event(), PauseLog()

    async def on_waiting(pause: TaskPause) -> None:
        await pauses(pause)
        await gate.wait()

    async with serving(ApprovalAgent().agent, on_waiting=on_waiting) as client:
        tasks = [await client.send('delete') for _ in range(11)]
        first = {(await pauses.next()).task_id for _ in range(10)}
        assert state_of(await client.send(answer_message(tasks[-1], approve()))) == 'COMPLETED'
        gate.set()
        last = await client.send('delete')
        assert (await pauses.next()).task_id == last['id']
    assert first == {task['id'] for task in tasks[:-1]}


@pytest.mark.parametrize(
    ('options', 'tenant', 'page'),
    [
        ({'url': 'https://example.com/agent/'}, '', 'https://example.com/agent/docs'),
        ({'url': 'https://example.com/agent', 'docs_url': '/try it/'}, '', 'https://example.com/agent/try%20it/'),
        ({'url': 'https://example.com', 'docs_url': '/'}, '', 'https://example.com/'),
        ({'url': 'https://example.com', 'access': Access(tenants=True)}, 'a/b', 'https://example.com/a%2Fb/docs'),
        ({'url': 'https://example.com', 'access': Access(tenants=True)}, '', 'https://example.com/docs'),
        ({'url': 'https://example.com'}, 'acme', 'https://example.com/docs'),  # the tenant is the credentials' alone
        ({'url': 'https://example.com', 'docs_url': None}, '', None),
        ({'url': 'https://example.com', 'routes': [Route('/tasks', PlainTextResponse('own'))]}, '', None),  # no page
        ({}, '', None),
    ],
)
async def test_pause_link_opens_task_in_playground(options: dict[str, Any], tenant: str, page: str | None) -> None:
    pauses = PauseLog()
    app = to_a2a(ApprovalAgent().agent, auth=caller_from_header, on_waiting=pauses, **options)
    async with lifespan(app):
        client = client_of_caller(app, 'ann', tenant=tenant)
        await client.send('delete')
        pause = await pauses.next()
    assert pause.link == (None if page is None else f'{page}?task={pause.task_id}')
    assert pause.owner == Caller(id='ann', tenant=tenant)
    if page is not None:
        assert (await Client(app).get(urlsplit(page).path.removeprefix('/agent'))).status == 200


async def test_on_waiting_gets_owner_and_sending_caller() -> None:
    pauses = PauseLog()
    access = Access(owner=lambda caller: 'team')
    async with serving(
        ApprovalAgent().agent, on_waiting=pauses, auth=caller_from_header, access=access, headers={'X-Caller': 'ann'}
    ) as client:
        await client.send('delete')
        pause = await pauses.next()
    assert (pause.owner, pause.caller.id) == (Caller(id='team'), 'ann')


@pytest.mark.parametrize('parts', ['storage', 'broker'])
async def test_fasta2a_parts_call_on_waiting_once(parts: str) -> None:
    pauses = PauseLog()
    async with serving(ApprovalAgent().agent, on_waiting=pauses, **{parts: memory_parts()[parts]}) as client:
        task = await client.send('delete')
        assert (await pauses.next()).calls[0].args == {'path': 'a'}
        assert state_of(await client.send(answer_message(task, approve()))) == 'COMPLETED'
    assert pauses.count == 0


async def test_backend_without_hook_calls_refuses_on_waiting() -> None:
    backend: Any = MemoryBackend('agent', reader_lag=10_000)
    backend.hook_calls = None
    with pytest.raises(ValueError, match='on_waiting= needs a backend with hook calls'):
        to_a2a(ApprovalAgent().agent, backend=backend, on_waiting=PauseLog())


# --- processes that end -----------------------------------------------------------------------------------------------


@SHARED_STORE
async def test_next_process_repeats_call_interrupted_by_shutdown(backend: str) -> None:
    began, pauses = PauseLog(), PauseLog()

    async def hang(pause: TaskPause) -> None:
        await began(pause)
        await asyncio.Event().wait()

    short = Workers(lease=0.3)
    async with serving(
        ApprovalAgent().agent, backend=backend, on_waiting=hang, workers=short, drain_grace=0.01
    ) as client:
        await client.send('delete')
        first = await began.next()
    async with serving(ApprovalAgent().agent, backend=backend, on_waiting=pauses, workers=short) as client:
        assert await pauses.next() == first
        await hook_calls_end(client)
    assert (began.count, pauses.count) == (0, 0)


@SHARED_STORE
async def test_next_process_skips_call_of_ended_pause(backend: str) -> None:
    began, pauses, short = asyncio.Event(), PauseLog(), Workers(lease=0.3)

    async def hang(pause: TaskPause) -> None:
        began.set()
        await asyncio.Event().wait()

    async with serving(
        ApprovalAgent().agent, backend=backend, on_waiting=hang, workers=short, drain_grace=0.01
    ) as client:
        task = await client.send('delete')
        await began.wait()
    async with serving(ApprovalAgent().agent, backend=backend, workers=short) as client:  # without the hook
        assert state_of(await client.send(answer_message(task, approve()))) == 'COMPLETED'
        assert await stored_calls(client) == 1
    async with serving(ApprovalAgent().agent, backend=backend, on_waiting=pauses, workers=short) as client:
        await hook_calls_end(client)
    assert pauses.count == 0


@SHARED_STORE
async def test_heartbeat_renews_lease_of_long_hook_call(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    end, pauses, renewed = asyncio.Event(), PauseLog(), asyncio.Queue[tuple[Sequence[HookCall], int]]()

    async def slow(pause: TaskPause) -> None:
        await pauses(pause)
        await end.wait()

    app = to_a2a(ApprovalAgent().agent, backend=backend, on_waiting=slow, workers=Workers(lease=0.3))
    calls = calls_of(app)
    renew = calls.renew

    async def renewing(held: Sequence[HookCall], *, lease: int) -> None:
        renewed.put_nowait((held, lease))
        await renew(held, lease=lease)

    monkeypatch.setattr(calls, 'renew', renewing)
    async with lifespan(app), asyncio.timeout(LIMIT):
        client = Client(app)
        task = await client.send('delete')
        assert await renewed.get() == ([HookCall(task['id'], 1)], 300)
        await renewed.get()
        end.set()
        await hook_calls_end(client)
        await pauses.next()
    assert pauses.count == 0


@SHARED_STORE
@pytest.mark.parametrize('error', [OSError, *BASE_EXCEPTIONS.values()], ids=['error', *BASE_EXCEPTIONS])
async def test_on_waiting_call_survives_store_failure(
    error: Callable[[], BaseException], backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses, failures = PauseLog(), 1
    app = to_a2a(ApprovalAgent().agent, backend=backend, on_waiting=pauses, workers=Workers(lease=0.3))
    calls = calls_of(app)
    read = calls.pause

    async def pause(call: HookCall) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise error()
        return await read(call)

    monkeypatch.setattr(calls, 'pause', pause)
    async with lifespan(app):
        task = await Client(app).send('delete')
        assert (await pauses.next()).task_id == task['id']
    assert f'The store failed around the call of on_waiting for task {task["id"]}' in caplog.text


@SHARED_STORE
@pytest.mark.parametrize('column', ['pending', 'status_message', 'request'])
async def test_damaged_pause_is_logged_once_without_on_waiting(
    column: str, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    began, pauses, short = PauseLog(), PauseLog(), Workers(lease=0.3)

    async def hang(pause: TaskPause) -> None:
        await began(pause)
        await asyncio.Event().wait()

    def damage(task_id: str) -> Transaction[None]:
        yield [(f'UPDATE task SET {column} = ? WHERE id = ?', [(b'{"calls": [', task_id)])]

    agent = asking_agent(InputRequired('Which size?')) if column == 'status_message' else ApprovalAgent().agent
    async with serving(agent, backend=backend, on_waiting=hang, workers=short, drain_grace=0.01) as client:
        task = await client.send('delete')
        await began.next()
    async with serving(agent, backend=backend, workers=short) as client:
        store: Any = client.a2a_app.backend
        await store.write(damage, task['id'])
    async with serving(agent, backend=backend, on_waiting=pauses, workers=short) as client:
        await hook_calls_end(client)  # not tried again
    lines = [said for said in caplog.messages if 'on_waiting' in said]
    assert lines == [f'The pause of task {task["id"]} is damaged in the store, so on_waiting is not called for it.']
    assert pauses.count == 0


@SHARED_STORE
async def test_apps_without_on_waiting_store_no_calls(backend: str) -> None:
    async with serving(ApprovalAgent().agent, backend=backend) as client:
        await client.send('delete')
        assert await stored_calls(client) == 0


@SHARED_STORE
async def test_erased_tasks_have_no_calls(backend: str) -> None:
    began = asyncio.Event()

    async def hang(pause: TaskPause) -> None:
        began.set()
        await asyncio.Event().wait()

    async with serving(ApprovalAgent().agent, backend=backend, on_waiting=hang, drain_grace=0.01) as client:
        task = await client.send('delete')
        await began.wait()
        assert await stored_calls(client) == 1
        await client.a2a_app.backend.housekeeping.erase_task(task['id'], None, at=0)
        assert await stored_calls(client) == 0


def calls_of(app: A2AApp) -> HookCalls:
    calls = app.backend.hook_calls
    assert calls is not None
    return calls


async def stored_calls(client: Client) -> int:
    """Number of the calls that the store has."""

    def count() -> Transaction[int]:
        [[number]] = yield 'SELECT COUNT(*) FROM hook_call', ()
        return number

    backend: Any = client.a2a_app.backend
    return await backend.read(count)


async def hook_calls_end(client: Client) -> None:
    """Wait until the store has no call."""

    async def none() -> bool:
        return await stored_calls(client) == 0

    await poll_until(none)
