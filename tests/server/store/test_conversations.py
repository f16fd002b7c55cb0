"""How conversations are stored, where that takes another way than Pydantic AI's own adapters."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Conversation
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RequestUsage, RunUsage

from pydantic_ai_a2a.server.store.model_messages import dump_message, load_message_rows
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend

from ...suites.values import record_of


def usage(**beyond: Any) -> RunUsage:
    made = RunUsage(requests=2, input_tokens=3, details={'cached': 1})
    vars(made).update(beyond)
    return made


@pytest.mark.parametrize(
    'fields',
    [
        pytest.param({}, id='nothing used'),
        pytest.param({'usage': usage()}, id='usage'),
        pytest.param({'usage': usage(seconds=0.5, regions=['eu'], unknown=None)}, id='usage beyond its fields'),
        pytest.param(
            {'deferred_tool_requests': DeferredToolRequests(approvals=[ToolCallPart('delete', {'name': 'x'}, 'call')])},
            id='a tool to approve',
        ),
    ],
)
async def test_conversation_record_is_read_as_written(fields: dict[str, Any]) -> None:
    backend = MemoryBackend('agent', reader_lag=1)
    store = backend.conversations('/')
    record = ConversationRecord(conversation_id='c', head_id=None, scope='s', **fields)
    await store.write_record(record, expected_revision=None)
    read = await record_of(store, 'c')
    assert read == record
    assert vars(read.usage).items() >= vars(record.usage).items()
    backend.close()


async def test_messages_are_read_like_pydantic_ai_json() -> None:
    file = BinaryContent(b'\x00\xff', media_type='image/png')
    messages: list[ModelMessage] = [
        ModelRequest(parts=[SystemPromptPart('Be kind.'), UserPromptPart(['hi', file])], instructions='Be brief.'),
        ModelResponse(
            parts=[ThinkingPart('hm', signature='s'), ToolCallPart('f', '{"a": 1}', 'call'), FilePart(file)],
            usage=RequestUsage(input_tokens=1, details={'cached': 1}),
            provider_details={'finish': 'tool'},
        ),
        ModelRequest(parts=[ToolReturnPart('f', {'a': 1}, 'call')]),
        ModelResponse(parts=[TextPart('hello')], finish_reason='stop', metadata={'a': None}),
    ]
    backend = MemoryBackend('agent', reader_lag=1)
    store = backend.conversations('/')
    await store.save(Conversation(conversation_id='c', messages=messages))
    loaded = await store.load('c')
    assert loaded is not None
    assert loaded.messages == ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))
    backend.close()


def test_tool_bytes_have_same_text_after_storage() -> None:
    result = ToolReturnPart('read', content=b'\xff\x00', tool_call_id='c1')
    [message] = load_message_rows([dump_message(ModelRequest(parts=[result]))])
    [stored] = message.parts
    assert isinstance(stored, ToolReturnPart)
    assert stored.model_response_str() == result.model_response_str()


def test_interrupted_messages_are_read_as_written() -> None:
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart('hi')], state='interrupted'),
        ModelResponse(parts=[TextPart('hel')], state='interrupted'),
    ]
    assert load_message_rows(map(dump_message, messages)) == messages
