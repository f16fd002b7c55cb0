"""Bad input over gRPC: each call gets a clear error, nothing is stored, and nothing runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
from a2a.types import GetTaskRequest, ListTasksRequest, Message, Part, Role, SendMessageRequest
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Limits, to_a2a
from pydantic_ai_a2a.settings.limits import LONG
from pydantic_ai_a2a.wire.protobuf.method_messages import SERVICE

from ...bounds import LIMIT
from ...constants import with_constants
from .grpc_client import GrpcAgent as Caller
from .grpc_client import Refused, send_request, serving

AGENT = Agent(TestModel(custom_output_text='The answer.'))
NO_MESSAGE = 'Invalid request: the bytes must be a lf.a2a.v1.SendMessageRequest, nested at most 100 messages deep'
SEND = f'/{SERVICE}/SendMessage'


@asynccontextmanager
async def server_without_tasks(**options: Any) -> AsyncGenerator[Caller]:
    """An agent that has no task after the block."""
    app = to_a2a(AGENT, **options)
    async with serving(app) as agent:
        yield agent
        assert await app.list_tasks() == []


def length(size: int) -> bytes:
    """A size as protobuf writes it."""
    return bytes([size & 127 | 128]) + length(size >> 7) if size > 127 else bytes([size])


def field(number: int, content: bytes) -> bytes:
    """A field with bytes or a message."""
    return bytes([number << 3 | 2]) + length(len(content)) + content


def deep(depth: int) -> bytes:
    """A request whose metadata has so many lists in each other."""
    value = b'\x20\x01'
    for _ in range(depth):
        value = field(6, field(1, value))
    return field(4, field(1, field(1, b'a') + field(2, value))) + send_request().SerializeToString()


NAN = Struct(fields={'a': Value(number_value=float('nan'))})
REQUESTS: dict[str, bytes] = {
    'no message': SendMessageRequest().SerializeToString(),
    'no parts': SendMessageRequest(message=Message(message_id='m', role=Role.ROLE_USER)).SerializeToString(),
    'empty part': SendMessageRequest(message=Message(role=Role.ROLE_USER, parts=[Part()])).SerializeToString(),
    'unknown role': SendMessageRequest(message=Message(role=99, parts=[Part(text='a')])).SerializeToString(),  # pyright: ignore[reportArgumentType]
    'NaN': SendMessageRequest(message=send_request().message, metadata=NAN).SerializeToString(),
    'NUL': send_request('a\0b').SerializeToString(),
    'infinity': SendMessageRequest(
        message=Message(role=Role.ROLE_USER, parts=[Part(data=Value(number_value=float('inf')))])
    ).SerializeToString(),
    'garbage': b'\xff\xff\xff',
    'cut': send_request().SerializeToString()[:-3],
    'text that is no UTF-8': field(2, field(1, b'\xff')),
    'deep lists': deep(40),
    'too deep lists': deep(500),
}


@pytest.mark.parametrize('name', REQUESTS)
async def test_invalid_message_is_refused(name: str) -> None:
    async with server_without_tasks() as agent:
        refused = await agent.raw(SEND, REQUESTS[name])
        assert isinstance(refused, Refused)
        assert refused.code == 'INVALID_ARGUMENT', refused
        assert refused.details[0]['reason'] in ('INVALID_PARAMS', 'INVALID_REQUEST')


async def test_unknown_methods_and_services_are_unimplemented() -> None:
    async with server_without_tasks() as agent:
        paths = ('/lf.a2a.v1.A2AService/Nothing', '/a2a.v1.A2AService/SendMessage', '/grpc.health.v1.Health/Check', '/')
        codes = [refused.code for path in paths if isinstance(refused := await agent.raw(path, b''), Refused)]
        assert codes == ['UNIMPLEMENTED'] * 4


async def test_call_without_a_message_is_refused() -> None:
    async with server_without_tasks() as agent:
        refused = await agent.raw(SEND, None)
        assert isinstance(refused, Refused)
        assert refused[:2] == ('INVALID_ARGUMENT', 'Invalid request: the call ended without a message')


async def test_message_over_the_size_limit_is_refused() -> None:
    async with server_without_tasks(limits=Limits(body=50_000)) as agent:
        refused = await agent.raw(SEND, send_request('a' * 60_000).SerializeToString())
        assert isinstance(refused, Refused)
        assert refused.code == 'RESOURCE_EXHAUSTED'


@pytest.mark.parametrize(
    'body',
    [
        SendMessageRequest(message=Message(parts=[Part()] * 900)).SerializeToString(),
        field(4, field(1, field(2, field(6, field(1, b'\x20\x01') * 900)))),
        b'\x9d\x06abcd' * 900,
        b'\x99\x06abcdefgh' * 900,
    ],
    ids=['parts', 'values', 'unknown of 4 bytes', 'unknown of 8 bytes'],
)
async def test_message_with_too_many_values_is_refused(body: bytes) -> None:
    async with server_without_tasks(limits=with_constants(Limits, values=800)) as agent:
        refused = await agent.raw(SEND, body)
        assert isinstance(refused, Refused)
        assert refused[:2] == ('RESOURCE_EXHAUSTED', 'The request holds more than 800 values.')


def with_metadata(fields: int) -> bytes:
    """A request with so many fields: first a message with a text at its end, then empty metadata again and again."""
    return send_request('a' * 800).SerializeToString() + field(4, b'') * (fields - 5)


async def test_number_of_fields_may_reach_limit() -> None:
    async with serving(to_a2a(AGENT, limits=with_constants(Limits, values=800))) as agent:
        assert isinstance(await agent.raw(SEND, with_metadata(800)), bytes)


async def test_fields_after_nested_messages_are_counted() -> None:
    async with server_without_tasks(limits=with_constants(Limits, values=800)) as agent:
        refused = await agent.raw(SEND, with_metadata(801))
        assert isinstance(refused, Refused)
        assert refused[:2] == ('RESOURCE_EXHAUSTED', 'The request holds more than 800 values.')


@pytest.mark.parametrize(
    'body',
    [
        b'\x0b' + b'a' * 900,
        field(2, b'\x0a\xff\xff\xff\x0f' + b'a' * 900),
        b'\x08' + b'\xff' * 900,
        b'a' * 900 + b'\x0a',
    ],
    ids=['group', 'longer than its message', 'endless number', 'cut'],
)
async def test_long_malformed_bytes_are_refused(body: bytes) -> None:
    async with server_without_tasks(limits=with_constants(Limits, values=800)) as agent:
        refused = await agent.raw(SEND, body)
        assert isinstance(refused, Refused)
        assert refused[:2] == ('INVALID_ARGUMENT', NO_MESSAGE)


class Held(ThreadPoolExecutor):
    """Counts the functions for its threads, and lets them wait."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted = 0
        self.first, self.gate = asyncio.Event(), threading.Event()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        def run() -> Any:
            self.gate.wait(LIMIT)
            return fn(*args, **kwargs)

        self.submitted += 1
        self.first.set()
        return super().submit(run)


async def test_long_messages_are_converted_in_turn() -> None:
    threads = Held()
    asyncio.get_running_loop().set_default_executor(threads)
    async with serving(to_a2a(AGENT)) as agent:
        sends = [agent.start('SendMessage', send_request('a' * LONG)) for _ in range(3)]
        try:
            await threads.first.wait()
            for _ in range(3):  # the server has read the long messages by the end of later calls
                assert (await agent.refused('GetTask', GetTaskRequest(id='unknown'))).code == 'NOT_FOUND'
            converting = threads.submitted
        finally:
            threads.gate.set()
        for send in sends:
            assert (await send).task.id
    assert converting == 1


async def test_long_message_with_few_values_is_served() -> None:
    async with serving(to_a2a(AGENT, limits=with_constants(Limits, values=800))) as agent:
        sent = send_request('a' * 400_000)
        sent.message.metadata['b'] = 1.5
        sent.configuration.history_length = 1
        task = (await agent.call('SendMessage', sent)).task
    assert [part.text for part in task.artifacts[0].parts] == ['The answer.']


async def test_out_of_range_timestamp_is_refused() -> None:
    async with server_without_tasks() as agent:
        refused = await agent.refused('ListTasks', ListTasksRequest(status_timestamp_after=Timestamp(seconds=10**17)))
    assert refused.code == 'INVALID_ARGUMENT'


@pytest.mark.parametrize(
    ('metadata', 'code'),
    [
        ([('a2a-version', '1.0, 2.0')], 'INVALID_ARGUMENT'),
        ([('a2a-version', 'x' * 2_000)], 'FAILED_PRECONDITION'),
        ([('last-event-id', '9' * 5_000)], 'NOT_FOUND'),
        ([('a2a-extensions', ',' * 5_000)], 'NOT_FOUND'),
        ([('traceparent', 'x')], 'NOT_FOUND'),
        ([('x-any-bin', b'\xff\x00')], 'NOT_FOUND'),
        ([('x-long', 'x' * 100_000)], 'RESOURCE_EXHAUSTED'),
    ],
)
async def test_unusual_metadata_is_ignored_or_refused(metadata: Any, code: str) -> None:
    async with server_without_tasks() as agent:
        refused = await agent.raw(f'/{SERVICE}/SubscribeToTask', field(2, b'unknown'), metadata=metadata)
        assert isinstance(refused, Refused)
        assert refused.code == code


async def test_answer_too_deep_for_protobuf_is_refused() -> None:
    nested: Any = 'deepest'
    for _ in range(60):
        nested = {'a': nested}

    async def produce() -> dict[str, Any]:
        return nested

    app = to_a2a(Agent(TestModel(), output_type=produce))
    async with serving(app) as agent:
        refused = await agent.refused('SendMessage', send_request())
        (task,) = await app.list_tasks()
    assert (refused.code, refused.details[0]['reason']) == ('FAILED_PRECONDITION', 'UNSUPPORTED_OPERATION')
    assert task['status']['state'] == 'completed'


async def test_answer_too_deep_for_clients_is_refused() -> None:
    nested: Any = 'deepest'
    for _ in range(32):  # one level more than a client parses
        nested = {'a': nested}

    async def produce() -> dict[str, Any]:
        return nested

    async with serving(to_a2a(Agent(TestModel(), output_type=produce))) as agent:
        refused = await agent.refused('SendMessage', send_request())
    assert (refused.code, refused.details[0]['reason']) == ('FAILED_PRECONDITION', 'UNSUPPORTED_OPERATION')
