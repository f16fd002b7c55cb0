from __future__ import annotations

from typing import Any

from inline_snapshot import snapshot
from pydantic_ai.messages import (
    AgentStreamEvent,
    FinalResultEvent,
    ModelResponse,
    NativeToolCallPart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)

from pydantic_ai_a2a.server.conversion.answer_stream import AnswerStream
from pydantic_ai_a2a.types import Note, TextDelta


def deltas_of(stream: AnswerStream, *events: AgentStreamEvent) -> list[TextDelta]:
    return [delta for event in events if (delta := stream.feed(event)) is not None]


def part_start(part: Any, index: int = 0) -> PartStartEvent:
    return PartStartEvent(index=index, part=part)


def text_delta(text: str, index: int = 0) -> PartDeltaEvent:
    return PartDeltaEvent(index=index, delta=TextPartDelta(text))


def test_agent_without_text_output_streams_no_text() -> None:
    stream = AnswerStream(False)
    assert deltas_of(stream, part_start(TextPart('The sum:')), text_delta(' 3')) == []
    assert stream.streamed is None


def test_text_parts_of_a_response_are_joined() -> None:
    stream = AnswerStream(True)
    events = [
        part_start(ThinkingPart('Hm')),
        PartDeltaEvent(index=0, delta=ThinkingPartDelta(content_delta='m')),
        part_start(TextPart(''), 1),
        text_delta('', 1),
        text_delta('One', 1),
        FinalResultEvent(tool_name=None, tool_call_id=None),
        part_start(TextPart(' and two'), 2),
        text_delta('.', 2),
    ]
    assert (deltas_of(stream, *events), stream.streamed) == snapshot(
        (
            [
                TextDelta(text='One', first=True),
                TextDelta(text=' and two', first=False),
                TextDelta(text='.', first=False),
            ],
            'One and two.',
        )
    )


def test_text_after_native_tool_replaces_streamed_text() -> None:
    stream = AnswerStream(True)
    events = [
        part_start(TextPart('I search.')),
        part_start(NativeToolCallPart('web_search', {}), 1),
        part_start(TextPart('Found'), 2),
    ]
    assert (deltas_of(stream, *events), stream.streamed) == snapshot(
        ([TextDelta(text='I search.', first=True), TextDelta(text='Found', first=True)], 'Found')
    )


def test_streamed_text_is_kept_until_new_text_starts() -> None:
    stream = AnswerStream(True)
    seen = [stream.streamed]
    stream.feed(part_start(TextPart('One')))
    seen.append(stream.streamed)
    stream.end_response(ModelResponse([TextPart('One'), ToolCallPart('f')]))
    seen.append(stream.streamed)
    stream.feed(part_start(TextPart('Two')))
    seen.append(stream.streamed)
    assert seen == [None, 'One', 'One', 'Two']


def test_only_text_with_a_tool_call_is_a_note() -> None:
    call = ToolCallPart('f')
    responses = {
        'text': [TextPart('Hi')],
        'call': [call],
        'blank text and call': [TextPart(' \n'), call],
        'text and call': [TextPart('Hi'), call],
        'texts around a call': [TextPart('Hi'), call, TextPart('there')],
        'text and native call': [TextPart('Hi'), NativeToolCallPart('web_search', {})],
    }
    stream = AnswerStream(False)
    assert {name: stream.end_response(ModelResponse(parts)) for name, parts in responses.items()} == snapshot(
        {
            'text': None,
            'call': None,
            'blank text and call': None,
            'text and call': Note(text='Hi', of_model=True),
            'texts around a call': Note(
                text="""\
Hi

there\
""",
                of_model=True,
            ),
            'text and native call': None,
        }
    )
