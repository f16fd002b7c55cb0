"""A turn becomes a part of its conversation."""

from __future__ import annotations

from dataclasses import replace

from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.conversion.stream import appended, closed

PROMPT = ModelRequest(parts=[UserPromptPart('hi')])
CALL = ModelResponse(parts=[ToolCallPart('work', {}, 'call')])
RETURN = ModelRequest(parts=[ToolReturnPart('work', 'done', 'call')])
ANSWER = ModelResponse(parts=[TextPart('all')])


def test_a_cancelled_turn_can_be_continued_with_another_prompt() -> None:
    assert closed([]) == []
    assert closed([PROMPT, CALL]) == [PROMPT, replace(CALL, state='interrupted')]
    assert closed([PROMPT, CALL, RETURN, ANSWER]) == [PROMPT, CALL, RETURN, ANSWER]


def test_each_turn_is_appended_to_the_one_before() -> None:
    first, entries = appended(
        None, [PROMPT, ANSWER], conversation_id='c', owner='o', run_id='t.1', usage=RunUsage(requests=1), at=1000
    )
    assert entries == [('t.1.0', None, PROMPT), ('t.1.1', 't.1.0', ANSWER)]
    assert (first.conversation_id, first.scope, first.head_id, first.revision) == ('c', 'o', 't.1.1', 't.1')
    second, entries = appended(first, [PROMPT], conversation_id='c', owner='o', run_id='t.2', usage=None, at=2000)
    assert entries == [('t.2.0', 't.1.1', PROMPT)]
    assert (second.head_id, second.revision, second.usage) == ('t.2.0', 't.2', RunUsage(requests=1))
    assert second.updated_at.timestamp() == 2
