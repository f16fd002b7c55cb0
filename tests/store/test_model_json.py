"""Model messages as stored JSON."""

from __future__ import annotations

from pydantic_ai.messages import ModelRequest, ToolReturnPart

from pydantic_ai_a2a.store.histories import dump_message, load_message_rows


def test_a_model_reads_the_same_text_for_bytes_of_a_tool_before_and_after_the_store() -> None:
    result = ToolReturnPart('read', content=b'\xff\x00', tool_call_id='c1')
    [message] = load_message_rows([dump_message(ModelRequest(parts=[result]))])
    [stored] = message.parts
    assert isinstance(stored, ToolReturnPart)
    assert stored.model_response_str() == result.model_response_str()
