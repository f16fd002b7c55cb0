"""Whatever is sent over gRPC is served or refused, and never breaks the server; what is refused leaves nothing.

`make fuzz` sends more than ten thousand calls, and others each time.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_core import from_json

from pydantic_ai_a2a import to_a2a
from pydantic_ai_a2a.types import StoredTask
from pydantic_ai_a2a.wire.protobuf.method_messages import SERVICE, MethodMessages, methods
from pydantic_ai_a2a.wire.protocol.versions import HTTP

from ...app_client import LIMIT
from ...sizes import LONG, examples, short_or_long
from ...wire.protocol.fuzzing import ALL_OPERATIONS_ON, stored_message_counts, stored_tasks
from .grpc_client import Refused, serving

VALUES: dict[int, list[Any]] = {
    FieldDescriptor.TYPE_BOOL: [False, True],
    FieldDescriptor.TYPE_BYTES: [b'', b'a', b'\xff\xfe', b'\x89PNG\r\n\x1a\n'],
    FieldDescriptor.TYPE_DOUBLE: [0.0, 1.0, -1.5, 1e308, float('nan'), float('inf')],
    FieldDescriptor.TYPE_ENUM: [*range(-2, 12)],
    FieldDescriptor.TYPE_INT32: [0, 1, -1, 50, 2**31 - 1, -(2**31)],
    FieldDescriptor.TYPE_INT64: [0, 1, -1, 10**10, 2**63 - 1],
    FieldDescriptor.TYPE_STRING: ['', 'a', 'unknown', '\0', 'é', 'x' * 300, 'text/plain', 'https://example.com/', '..'],
}
TOKENS = [b'\xff' * 10, b'\x0a\xff\xff\xff\xff\x0f', b'\x0b', b'\x0c', b'\x2a\x00' * 20, b'\x32\x02\x0a\x00', b'\x00']
METADATA: list[tuple[str, Any]] = [
    ('a2a-version', '1.0'),
    ('a2a-version', '0.3'),
    ('a2a-version', 'x'),
    ('a2a-extensions', 'https://example.com/e,,'),
    ('last-event-id', '-1'),
    ('last-event-id', '1' * 30),
    ('traceparent', '00-0123456789abcdef0123456789abcdef-0123456789abcdef-01'),
    ('authorization', 'Bearer x'),
    ('x-forwarded-for', '1.2.3.4'),
    ('x-bin', b'\xff\x00'),
]


def message(random: Random, descriptor: Descriptor, depth: int = 0) -> Any:
    """A message with any values in any fields."""
    made: Any = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if random.random() > (0.8 if depth < 2 else 0.4):
            continue
        if field.message_type is not None:
            if depth < 12:
                fill(random, made, field, depth)
        elif field.default_value == []:
            getattr(made, field.name).append(random.choice(VALUES[field.type]))
        else:
            setattr(made, field.name, random.choice(VALUES[field.type]))
    return made


def fill(random: Random, made: Any, field: FieldDescriptor, depth: int) -> None:
    """Set a field that holds messages."""
    inner = field.message_type
    assert inner is not None
    target = getattr(made, field.name)
    if inner.GetOptions().map_entry:
        value = inner.fields_by_name['value'].message_type
        if value is not None:
            key = random.choice(VALUES[FieldDescriptor.TYPE_STRING])
            target[key].CopyFrom(message(random, value, depth + 1))
    elif field.default_value == []:
        target.add().CopyFrom(message(random, inner, depth + 1))
    else:
        target.CopyFrom(message(random, inner, depth + 1))


def valid(made: Any, random: Random) -> None:
    """Make a request to send a message right, for the most part: else nearly all are refused at once."""
    made.message.role = 1
    made.message.message_id = f'message-{random.random()}'
    made.message.ClearField('task_id')
    made.ClearField('tenant')
    del made.message.parts[:]
    made.message.parts.add().text = 'hello'


def call(seed: int) -> tuple[str, bytes, list[tuple[str, Any]]]:
    """A method, the bytes of a message, mostly of the method, and metadata."""
    random = Random(seed)
    names = sorted(methods())
    method = random.choice(names)
    kind = method if random.random() < 0.9 else random.choice(names)
    made = message(random, methods()[kind].input_type)
    if 'message' in made.DESCRIPTOR.fields_by_name and random.random() < 0.6:
        valid(made, random)
    body = made.SerializeToString()
    if random.random() < 0.4:
        start = random.randint(0, len(body))
        body = body[:start] + random.choice(TOKENS) + body[start + random.randint(0, 8) :]
    return method, body, random.sample(METADATA, random.choice([0, 0, 0, 1, 2]))


calls = st.integers(min_value=0, max_value=2**32).map(call)


ERRORS = {'INVALID_ARGUMENT', 'NOT_FOUND', 'FAILED_PRECONDITION', 'RESOURCE_EXHAUSTED', 'UNAUTHENTICATED'}


@pytest.mark.parametrize('round_', range(5 if LONG else 1))
@examples(short_or_long(10, 40), 200)
@given(sent=st.lists(calls, min_size=10, max_size=10))
async def test_random_calls_are_served_or_refused_without_effect(
    round_: int, sent: list[tuple[str, bytes, list[tuple[str, Any]]]]
) -> None:
    app = to_a2a(Agent('test'), **ALL_OPERATIONS_ON)
    async with asyncio.timeout(LIMIT), serving(app, anonymous=True) as agent:
        before = await stored_message_counts(app)
        for method, body, metadata in sent:
            answer = await agent.raw(f'/{SERVICE}/{method}', body, metadata=metadata)
            after = await stored_message_counts(app)
            if isinstance(answer, Refused):
                assert answer.code in ERRORS, (answer, method, body)
                assert answer.details
                assert after == before
            else:
                GetMessageClass(methods()[method].output_type).FromString(answer)
            before = after


@given(task=stored_tasks())
def test_encoded_task_equals_the_official_protobuf_conversion(task: StoredTask) -> None:
    """Numbers are doubles on both ways."""
    json = b''.join(HTTP.task_pieces(task))
    method = methods()['GetTask']
    message = GetMessageClass(method.output_type).FromString(MethodMessages(method, 1_000).encode(json))
    expected = ParseDict(from_json(json), GetMessageClass(method.output_type)(), ignore_unknown_fields=True)
    assert MessageToDict(message) == MessageToDict(expected)
    assert message == expected
