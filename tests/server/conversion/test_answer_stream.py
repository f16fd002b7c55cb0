from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.messages import (
    AgentStreamEvent,
    FinalResultEvent,
    ModelMessage,
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
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_graph import End

from pydantic_ai_a2a.server.conversion.answer_stream import AnswerStream
from pydantic_ai_a2a.types import Note, TextDelta


def deltas_of(stream: AnswerStream, *events: AgentStreamEvent) -> list[TextDelta]:
    return [delta for event in events if (delta := stream.feed(event)) is not None]


def part_start(part: Any, index: int = 0) -> PartStartEvent:
    return PartStartEvent(index=index, part=part)


def text_delta(text: str, index: int = 0) -> PartDeltaEvent:
    return PartDeltaEvent(index=index, delta=TextPartDelta(text))


async def run_streamed(
    agent: Agent[None, Any], *, text_output: bool = True
) -> tuple[list[TextDelta | Note], str | None, Any]:
    """Everything that a streamed run says, as a runner feeds it, with what was streamed and the output."""
    stream, said = AnswerStream(text_output), list[TextDelta | Note]()
    async with agent.iter('Go') as run:
        node = run.next_node
        while not isinstance(node, End):
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as events:
                    async for event in events:
                        if (delta := stream.feed(event)) is not None:
                            said.append(delta)
            node = await run.next(node)
            if Agent.is_call_tools_node(node) and (note := stream.end_response(node.model_response)) is not None:
                said.append(note)
    assert run.result is not None
    return said, stream.streamed, run.result.output


def streaming_model(*responses: Sequence[str | DeltaToolCall]) -> FunctionModel:
    left = iter(responses)

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for n, chunk in enumerate(next(left)):
            yield chunk if isinstance(chunk, str) else {n: chunk}

    return FunctionModel(stream_function=stream)


async def test_streamed_answer_begins_with_a_first_delta() -> None:
    assert await run_streamed(Agent(streaming_model(['Hel', 'lo', '!']))) == snapshot(
        (
            [TextDelta(text='Hel', first=True), TextDelta(text='lo', first=False), TextDelta(text='!', first=False)],
            'Hello!',
            'Hello!',
        )
    )


async def test_text_beside_a_tool_call_becomes_a_note() -> None:
    def look() -> str:
        return 'sun'

    agent = Agent(
        streaming_model(['Let me ', 'look.', DeltaToolCall('look', '{}')], ['It is ', 'sunny.']), tools=[look]
    )
    assert await run_streamed(agent) == snapshot(
        (
            [
                TextDelta(text='Let me ', first=True),
                TextDelta(text='look.', first=False),
                Note(text='Let me look.', of_model=True),
                TextDelta(text='It is ', first=True),
                TextDelta(text='sunny.', first=False),
            ],
            'It is sunny.',
            'It is sunny.',
        )
    )


async def test_text_beside_an_output_tool_becomes_a_note() -> None:
    agent = Agent(
        streaming_model(['The sum:', DeltaToolCall('final_result', '{"response": 3}')]), output_type=[int, str]
    )
    assert await run_streamed(agent) == snapshot(
        ([TextDelta(text='The sum:', first=True), Note(text='The sum:', of_model=True)], 'The sum:', 3)
    )


async def test_agent_without_text_output_streams_no_text() -> None:
    agent = Agent(streaming_model(['The sum:', DeltaToolCall('final_result', '{"response": 3}')]), output_type=int)
    assert await run_streamed(agent, text_output=False) == snapshot(([Note(text='The sum:', of_model=True)], None, 3))


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


def test_text_after_a_native_tool_restarts_the_answer() -> None:
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


@given(st.lists(st.lists(st.text())))
def test_joined_deltas_equal_the_streamed_text(responses: list[list[str]]) -> None:
    stream, client = AnswerStream(True), None
    for chunks in responses:
        for delta in deltas_of(stream, part_start(TextPart('')), *map(text_delta, chunks)):
            client = delta.text if delta.first else f'{client}{delta.text}'
        stream.end_response(ModelResponse([TextPart(''.join(chunks))]))
    assert stream.streamed == client
