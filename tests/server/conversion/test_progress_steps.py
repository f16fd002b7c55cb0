from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    OutputToolCallEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
)

from pydantic_ai_a2a import Progress
from pydantic_ai_a2a.server.conversion.progress_steps import StepsShown
from pydantic_ai_a2a.types import Part, Step

THOUGHT = ThinkingPart(
    'I should look.', id='id', signature='SECRET', provider_name='p', provider_details={'a': 'SECRET'}
)
CALL = ToolCallPart('look', '{"where": "up"}', tool_call_id='c1')
RETURN = ToolReturnPart('look', 'SECRET', tool_call_id='c1', metadata={'b': 'SECRET'})
NATIVE_CALL = NativeToolCallPart('web_search', {'query': 'sun'}, tool_call_id='c2')
NATIVE_RETURN = NativeToolReturnPart('web_search', 'SECRET', tool_call_id='c2')
EVENTS: list[AgentStreamEvent] = [
    PartStartEvent(index=0, part=ThinkingPart('I ')),
    PartDeltaEvent(index=0, delta=ThinkingPartDelta(content_delta='should look.')),
    PartEndEvent(index=0, part=THOUGHT),
    PartEndEvent(index=1, part=NATIVE_CALL),
    PartEndEvent(index=2, part=NATIVE_RETURN),
    PartEndEvent(index=3, part=TextPart('Let me look.')),
    PartEndEvent(index=4, part=CALL),
    FunctionToolCallEvent(CALL, args_valid=True),
    FunctionToolResultEvent(RETURN),
    OutputToolCallEvent(ToolCallPart('final_result'), args_valid=True),
]


def steps(progress: Progress) -> list[Step]:
    shown = StepsShown(progress)
    return [step for event in EVENTS if (step := shown.of_event(event)) is not None]


def test_no_progress_steps_are_sent_by_default() -> None:
    assert steps(Progress()) == []
    assert list(StepsShown(Progress()).of_response(ModelResponse([THOUGHT, NATIVE_CALL, NATIVE_RETURN, CALL]))) == []


def test_thinking_step_is_sent_whole_without_signature() -> None:
    assert steps(Progress(thinking=True)) == [
        Step(Part(text='I should look.', media_type='text/plain'), {'progress': 'thinking'})
    ]


def test_tool_steps_show_arguments_but_not_return_content() -> None:
    shown = steps(Progress(tools=True))
    assert 'SECRET' not in repr(shown)
    assert shown == snapshot(
        [
            Step(
                part={'data': {'query': 'sun'}, 'media_type': 'application/json'},
                metadata={'progress': 'tool', 'phase': 'call', 'toolName': 'web_search', 'toolCallId': 'c2'},
            ),
            Step(
                part={'data': {'outcome': 'success'}, 'media_type': 'application/json'},
                metadata={'progress': 'tool', 'phase': 'return', 'toolName': 'web_search', 'toolCallId': 'c2'},
            ),
            Step(
                part={'data': {'where': 'up'}, 'media_type': 'application/json'},
                metadata={'progress': 'tool', 'phase': 'call', 'toolName': 'look', 'toolCallId': 'c1'},
            ),
            Step(
                part={'data': {'outcome': 'success'}, 'media_type': 'application/json'},
                metadata={'progress': 'tool', 'phase': 'return', 'toolName': 'look', 'toolCallId': 'c1'},
            ),
        ]
    )


def test_unstreamed_response_has_the_same_steps() -> None:
    shown = StepsShown(Progress(thinking=True, tools=True))
    response = ModelResponse([THOUGHT, NATIVE_CALL, NATIVE_RETURN, TextPart('Let me look.'), CALL])
    assert list(shown.of_response(response)) == steps(Progress(thinking=True, tools=True))[:3]


@pytest.mark.parametrize('thought', ['', ' \n'])
def test_hidden_thinking_is_not_a_step(thought: str) -> None:
    part = ThinkingPart(thought, signature='SECRET')
    assert list(StepsShown(Progress(thinking=True)).of_response(ModelResponse([part]))) == []


@pytest.mark.parametrize(
    ('args', 'shown'), [(None, {}), ('', {}), ({'a': 1}, {'a': 1}), ('{"a', {'INVALID_JSON': '{"a'})]
)
def test_tool_arguments_are_always_shown_as_object(args: Any, shown: dict[str, Any]) -> None:
    step = StepsShown(Progress(tools=True)).of_event(FunctionToolCallEvent(ToolCallPart('look', args)))
    assert step is not None
    assert step.part.get('data') == shown


def test_retried_tool_step_has_outcome_retried() -> None:
    again = ToolReturnPart('look', 'SECRET', tool_call_id='c1', outcome='retried')
    step = StepsShown(Progress(tools=True)).of_event(FunctionToolResultEvent(again))
    assert step is not None
    assert step.part.get('data') == {'outcome': 'retried'}
