"""The ends of calls: deadlines, cancelled calls, slow readers, and the drain of the server."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from a2a.types import GetTaskRequest, SendMessageRequest, SubscribeToTaskRequest, TaskState
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import A2AApp, Access, Limits, Messages, Results, Workers, serve_grpc, to_a2a
from pydantic_ai_a2a import Caller as Who
from pydantic_ai_a2a.errors import ClientGone, TaskNotFoundError
from pydantic_ai_a2a.server.grpc.call import GrpcCall

from ...agents import GatedAgent
from ...app_client import LIMIT, lifespan
from ...constants import with_constants
from .grpc_client import GrpcAgent as Caller
from .grpc_client import event_id, refusal_of, send_request, serving, text_of

QUICK = Workers(drain_grace=0.1)


async def text_after(gates: GatedAgent, agent: Caller, app: A2AApp) -> str:
    """The answer of the only task, after its run may go on."""
    (task,) = await app.list_tasks()
    stream = agent.stream('SubscribeToTask', SubscribeToTaskRequest(id=task['id']))
    await stream.next()
    gates.open('wait')
    (*_, last) = await stream.rest()
    assert TaskState.Name(last.status_update.status.state) == 'TASK_STATE_COMPLETED'
    return text_of(await agent.call('GetTask', GetTaskRequest(id=task['id'])))


@pytest.mark.parametrize('way', ['cancel', 'deadline'])
@pytest.mark.parametrize('stream', [False, True])
async def test_end_of_call_does_not_end_its_task(ended_methods: asyncio.Queue[str], way: str, stream: bool) -> None:
    gates, request = GatedAgent(), send_request('wait')
    app = to_a2a(gates.agent)
    async with serving(app) as agent:
        reached, seconds = asyncio.ensure_future(gates.reached('wait')), LIMIT if way == 'cancel' else 0.5
        while True:
            if stream:
                streaming = agent.stream('SendStreamingMessage', request, timeout=seconds)
                call, reading = streaming.call, asyncio.ensure_future(streaming.rest())
            else:
                call = agent.start('SendMessage', request, timeout=seconds)
                reading = asyncio.ensure_future(call)
            await asyncio.wait([reached, reading], return_when=asyncio.FIRST_COMPLETED)
            if reached.done():
                break
            seconds *= 2  # a slow machine takes longer to read the message
        if way == 'cancel':
            call.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert (await call.code()).name == ('CANCELLED' if way == 'cancel' else 'DEADLINE_EXCEEDED')
        assert await ended_methods.get() == ('SendStreamingMessage' if stream else 'SendMessage')
        assert await text_after(gates, agent, app) == 'wait'


async def test_call_cancelled_during_storing_still_creates_task(ended_methods: asyncio.Queue[str]) -> None:
    gates, storing, store = GatedAgent(), asyncio.Event(), asyncio.Event()
    app = to_a2a(gates.agent)
    submit = app.backend.queue.submit

    async def slowly(*args: Any, **options: Any) -> Any:
        storing.set()
        await store.wait()
        return await submit(*args, **options)

    app.backend.queue.submit = slowly
    async with serving(app) as agent:
        call = agent.start('SendMessage', send_request('wait'))
        await storing.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        refused = await agent.refused('GetTask', GetTaskRequest(id='unknown'))  # the server has read the cancel before
        assert (refused.code, await ended_methods.get()) == ('NOT_FOUND', 'GetTask')
        store.set()
        assert await ended_methods.get() == 'SendMessage'
        await gates.reached('wait')
        assert await text_after(gates, agent, app) == 'wait'


async def test_server_stops_after_storing_cancelled_messages(
    ended_methods: asyncio.Queue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    storing, store = asyncio.Event(), asyncio.Event()
    app = to_a2a(Agent(TestModel()), workers=QUICK)
    submit, server_type = app.backend.queue.submit, type(grpc.aio.server())
    stop = server_type.stop

    async def slowly(*args: Any, **options: Any) -> Any:
        storing.set()
        await store.wait()
        return await submit(*args, **options)

    async def then_store(server: grpc.aio.Server, grace: float | None) -> None:
        await stop(server, grace)
        asyncio.get_running_loop().call_soon(store.set)

    app.backend.queue.submit = slowly
    monkeypatch.setattr(server_type, 'stop', then_store)
    async with asyncio.timeout(LIMIT), lifespan(app):
        async with serve_grpc(app, port=0) as state, grpc.aio.insecure_channel(state['grpc_address']) as channel:
            call = Caller(channel).start('SendMessage', send_request())
            await storing.wait()
            call.cancel()
        assert ended_methods.get_nowait() == 'SendMessage'
        assert len(await app.list_tasks()) == 1


async def test_call_cancelled_before_its_refusal_ends_without_error(ended_methods: asyncio.Queue[str]) -> None:
    storing, store = asyncio.Event(), asyncio.Event()
    app = to_a2a(Agent(TestModel()))

    async def refuse(*args: Any, **options: Any) -> Any:
        storing.set()
        await store.wait()
        raise TaskNotFoundError

    app.backend.queue.submit = refuse
    async with serving(app) as agent:
        call = agent.start('SendMessage', send_request())
        await storing.wait()
        call.cancel()
        await agent.refused('GetTask', GetTaskRequest(id='unknown'))
        assert await ended_methods.get() == 'GetTask'
        store.set()
        assert await ended_methods.get() == 'SendMessage'


@pytest.mark.parametrize('kind', [grpc.aio.InternalError, grpc.aio.UsageError])
async def test_write_after_call_ended_means_client_gone(kind: type[Exception]) -> None:
    async def write() -> None:
        raise kind('the call, or the server, has ended')

    call = GrpcCall.__new__(GrpcCall)
    with pytest.raises(ClientGone):
        await call._send(write())  # pyright: ignore[reportPrivateUsage]


async def test_direct_reply_ends_with_its_cancelled_call(ended_methods: asyncio.Queue[str]) -> None:
    gates = GatedAgent()
    app = to_a2a(gates.agent, messages=Messages(reply='message'))
    async with serving(app) as agent:
        call = agent.start('SendMessage', send_request('wait'))
        await gates.reached('wait')
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await ended_methods.get() == 'SendMessage'


async def test_drain_ends_streams_and_refuses_new_calls() -> None:
    gates = GatedAgent()
    app = to_a2a(gates.agent, workers=QUICK, results=Results(stream='mark', interval=0))
    async with serving(app) as agent:
        stream = agent.stream('SendStreamingMessage', send_request('wait'))
        await gates.reached('wait')
        app.hosting.drain(asyncio.get_running_loop())
        events = await stream.rest()
        refused = await agent.refused('SendMessage', send_request('more'))
    assert (await stream.call.code()).name == 'OK'
    assert [event_id(event) for event in events] == [*range(len(events))]
    assert refused.code == 'UNAVAILABLE'


async def test_blocking_send_is_answered_by_the_drain() -> None:
    gates = GatedAgent()
    async with lifespan(app := to_a2a(gates.agent, workers=QUICK)):
        async with serve_grpc(app, port=0) as state:
            channel = grpc.aio.insecure_channel(state['grpc_address'])
            sending = asyncio.ensure_future(Caller(channel).call('SendMessage', send_request('wait')))
            await gates.reached('wait')
        task = (await sending).task
        await channel.close()
    assert TaskState.Name(task.status.state) == 'TASK_STATE_FAILED'  # the memory of the process ends with the process


async def test_slow_request_body_is_refused() -> None:
    app = to_a2a(Agent(TestModel()), limits=with_constants(Limits, body_time=0.1))
    async with serving(app) as agent:
        channel: Any = agent.channel
        call = channel.stream_stream('/lf.a2a.v1.A2AService/GetTask')()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
    assert refusal_of(raised.value)[:2] == ('DEADLINE_EXCEEDED', 'The request body did not arrive in time.')


async def test_two_thousand_concurrent_calls_are_all_answered() -> None:
    async with serving(to_a2a(Agent(TestModel()))) as agent:
        requests = (agent.refused('GetTask', GetTaskRequest(id='unknown')) for _ in range(2_000))
        codes = [refused.code for refused in await asyncio.gather(*requests)]
    assert codes == ['NOT_FOUND'] * 2_000


@pytest.mark.parametrize('option', ['auth', 'tenants'])
async def test_operator_function_is_cancelled_with_its_call(ended_methods: asyncio.Queue[str], option: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(*_: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    if option == 'auth':
        app = to_a2a(Agent(TestModel()), auth=endless)
    else:
        app = to_a2a(Agent(TestModel()), auth=lambda _: Who(id='ann'), access=Access(tenants=endless))
    async with serving(app) as agent:
        call = agent.start('SendMessage', SendMessageRequest(message=send_request().message, tenant='acme'))
        await begun.wait()
        call.cancel()
        await ended.wait()
        assert await ended_methods.get() == 'SendMessage'
        assert await app.list_tasks() == []
