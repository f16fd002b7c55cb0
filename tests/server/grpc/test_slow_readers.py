"""Clients that do not read their answers. gRPC keeps a message until the client takes it, so long ones are counted."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.types import GetTaskRequest, ListTasksRequest, SubscribeToTaskRequest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Limits, Results, to_a2a
from pydantic_ai_a2a.commands.erase import erase_all
from pydantic_ai_a2a.server.app.backend_choice import open_store
from pydantic_ai_a2a.server.service import unsent_answers
from pydantic_ai_a2a.wire.protobuf.method_messages import SERVICE

from ...agents import user_prompts
from ...behaviour.pending_calls import ApprovalAgent
from ...behaviour.tasks.test_retention import OWNER
from ...constants import with_constants
from .grpc_client import GrpcAgent as Caller
from .grpc_client import refusal_of, send_request, serving, text_of

LONG = 2_000_000
WIDE = [('grpc.max_receive_message_length', -1), ('grpc.http2.bdp_probe', 0), ('grpc.http2.lookahead_bytes', 65_536)]
SLOW = 'The client reads too slowly: read the task again, or subscribe again.'


def start_unread_call(agent: Caller, method: str, request: Any) -> Any:
    """A call whose answer nobody reads for now."""
    channel: Any = agent.channel
    return channel.unary_stream(f'/{SERVICE}/{method}')(request.SerializeToString())


def never(answer: unsent_answers.UnsentAnswer, now: float) -> bool:
    return False


def always(answer: unsent_answers.UnsentAnswer, now: float) -> bool:
    return True


async def read_all(call: Any) -> None:
    while await call.read():
        pass


async def test_slowest_reader_is_cut_when_answer_memory_is_full(
    ended_methods: asyncio.Queue[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = to_a2a(Agent(TestModel(custom_output_text='x' * LONG)), limits=Limits(unsent=3 * LONG))
    async with serving(app) as local, grpc.aio.insecure_channel(local.address, options=WIDE) as channel:
        agent = Caller(channel)
        task = (await agent.call('SendMessage', send_request())).task
        monkeypatch.setattr(unsent_answers.UnsentAnswer, 'is_slow', never)
        call = start_unread_call(agent, 'GetTask', GetTaskRequest(id=task.id))
        await call.initial_metadata()
        refused = await agent.refused('GetTask', GetTaskRequest(id=task.id))
        monkeypatch.setattr(unsent_answers.UnsentAnswer, 'is_slow', always)
        assert await agent.call('GetTask', GetTaskRequest(id=task.id)) == task
        refused_again = await agent.refused('GetTask', GetTaskRequest(id=task.id))
        await call.read()
        with pytest.raises(grpc.aio.AioRpcError) as cut:
            await call.read()
        same = await agent.call('GetTask', GetTaskRequest(id=task.id))
    assert (refused.code, refused.trailing['retry-after'], refused_again.code) == ('UNAVAILABLE', '1', 'UNAVAILABLE')
    assert refusal_of(cut.value)[:2] == ('UNAVAILABLE', SLOW)
    assert same == task
    assert 'A slow client was disconnected to free memory for other answers (correlation id' in caplog.text
    assert unsent_answers.UNSENT.bytes == unsent_answers.UNSENT.ending == 0


@pytest.mark.parametrize('way', ['cancel', 'close'])
@pytest.mark.parametrize('method', ['GetTask', 'SendStreamingMessage'])
async def test_client_leaving_during_long_answer_frees_memory(
    ended_methods: asyncio.Queue[str], caplog: pytest.LogCaptureFixture, method: str, way: str
) -> None:
    app = to_a2a(Agent(TestModel(custom_output_text='x' * LONG)))
    async with serving(app) as local:
        request = send_request()
        task = (await local.call('SendMessage', request)).task
        assert await ended_methods.get() == 'SendMessage'
        async with grpc.aio.insecure_channel(local.address, options=WIDE) as channel:
            agent = Caller(channel)
            call = start_unread_call(
                agent, method, request if method == 'SendStreamingMessage' else GetTaskRequest(id=task.id)
            )
            await call.initial_metadata()
            await agent.refused('GetTask', GetTaskRequest(id='unknown'))  # meanwhile, the server has begun to write
            assert await ended_methods.get() == 'GetTask'
            assert unsent_answers.UNSENT.bytes > LONG
            if way == 'cancel':
                call.cancel()
                assert await ended_methods.get() == method
        if way == 'close':
            assert await ended_methods.get() == method
        gc.collect()  # an exception that nobody has retrieved is logged now
        assert unsent_answers.UNSENT.bytes == unsent_answers.UNSENT.ending == 0
        assert (await local.call('GetTask', GetTaskRequest(id=task.id))) == task
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_client_leaving_after_cut_answer_frees_memory(
    ended_methods: asyncio.Queue[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = to_a2a(Agent(TestModel(custom_output_text='x' * LONG)), limits=Limits(unsent=3 * LONG))
    async with serving(app) as local, grpc.aio.insecure_channel(local.address, options=WIDE) as channel:
        agent = Caller(channel)
        task = (await agent.call('SendMessage', send_request())).task
        monkeypatch.setattr(unsent_answers.UnsentAnswer, 'is_slow', always)
        call = start_unread_call(agent, 'GetTask', GetTaskRequest(id=task.id))
        await call.initial_metadata()
        assert await local.call('GetTask', GetTaskRequest(id=task.id)) == task  # there is room once the first is cut
        assert [await ended_methods.get() for _ in range(2)] == ['SendMessage', 'GetTask']
        call.cancel()
        assert await ended_methods.get() == 'GetTask'
        gc.collect()
        assert unsent_answers.UNSENT.bytes == unsent_answers.UNSENT.ending == 0
    assert [record for record in caplog.records if record.name == 'asyncio'] == []


async def test_answer_without_room_is_refused_before_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    nested: Any = 'x' * LONG
    for _ in range(60):  # deeper than protobuf can carry, which only the conversion finds
        nested = [nested]

    async def produce(kind: str) -> Any:
        return nested

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompt = user_prompts(messages)[-1]
        if prompt == 'plain':
            return ModelResponse(parts=[TextPart('x' * LONG)])
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {'kind': prompt})])

    app = to_a2a(Agent(FunctionModel(model), output_type=[str, produce]), limits=Limits(unsent=LONG))
    monkeypatch.setattr(unsent_answers.UnsentAnswer, 'is_slow', never)
    async with serving(app) as local, grpc.aio.insecure_channel(local.address, options=WIDE) as channel:
        agent = Caller(channel)
        plain = (await agent.call('SendMessage', send_request('plain'))).task

        async def refusals() -> list[str]:
            request = send_request('nested', context_id='c')
            lists = ListTasksRequest(context_id='c', include_artifacts=True)
            refused = [
                await agent.refused('SendMessage', request),
                await agent.refused('SendStreamingMessage', send_request('nested')),
                await agent.refused('SendStreamingMessage', request),
                await agent.refused('ListTasks', lists),
            ]
            return [end.code for end in refused]

        assert await refusals() == ['FAILED_PRECONDITION'] * 4
        call = start_unread_call(agent, 'GetTask', GetTaskRequest(id=plain.id))
        await call.initial_metadata()
        assert await refusals() == ['UNAVAILABLE'] * 4
        await read_all(call)


async def test_slow_reader_ends_its_stream_and_task_continues(
    ended_methods: asyncio.Queue[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def flood(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for _ in range(400):
            yield 'x' * 50_000
            await asyncio.sleep(0)

    app = to_a2a(
        Agent(FunctionModel(stream_function=flood)),
        limits=with_constants(Limits, reader_lag=100_000),
        results=Results(stream='mark', interval=0),
    )
    async with serving(app) as local, grpc.aio.insecure_channel(local.address, options=WIDE) as channel:
        agent = Caller(channel)
        call = start_unread_call(agent, 'SendStreamingMessage', send_request())
        await call.initial_metadata()
        (task,) = await app.list_tasks()
        await app.backend.events.wait(task['id'], 0)
        whole = await agent.call('GetTask', GetTaskRequest(id=task['id']))
        rest = asyncio.ensure_future(read_all(call))
        with pytest.raises(grpc.aio.AioRpcError) as cut:
            await rest
    assert 'A subscriber reads its events too slowly, and its stream ends (correlation id' in caplog.text
    assert refusal_of(cut.value)[:2] == ('UNAVAILABLE', SLOW)
    assert len(text_of(whole)) == 400 * 50_000


async def test_stream_ends_when_another_process_erases_task(tmp_path: Path) -> None:
    url = f'sqlite:///{tmp_path}/agent.db?synchronous=normal'
    app = to_a2a(ApprovalAgent(name='agent').agent, backend=url)
    with closing(open_store(url, 'agent')) as other:  # as another process has
        async with serving(app) as agent:
            task = (await agent.call('SendMessage', send_request('delete'))).task
            stream = agent.stream('SubscribeToTask', SubscribeToTaskRequest(id=task.id))
            assert await stream.next()
            await erase_all(other, OWNER, None, grace=None)
            with pytest.raises(grpc.aio.AioRpcError) as cut:
                await stream.next()
            assert refusal_of(cut.value)[:2] == ('UNAVAILABLE', SLOW)
            assert (await agent.refused('GetTask', GetTaskRequest(id=task.id))).code == 'NOT_FOUND'
