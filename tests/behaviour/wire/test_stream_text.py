"""The model's text while it is written: what a reader sees on the way, and what is left in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.output import TextOutput

from pydantic_ai_a2a import Progress, Results

from ...agents import scripted_model
from ...app_client import LIVE, Client, Event, message, texts
from ...dialects import current_dialect, in_no_version
from ...serving import serving
from ..promised_behaviours import covers

Deltas = AsyncIterator[str | dict[int, DeltaToolCall]]
PIECES = Results(stream='replace', interval=0, progress=Progress(notes=True))
"""All that the model writes, for a client that asks for nothing."""
ScriptedResponse = tuple[list[str], bool]
"""The deltas of a response's text, and whether it calls a tool after them."""


def agent_with_responses(*responses: ScriptedResponse) -> Agent[object, str]:
    """An agent whose model gives these responses one after the other, streamed or not."""

    def turn(messages: list[ModelMessage]) -> ScriptedResponse:
        return responses[sum(isinstance(each, ModelResponse) for each in messages)]

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        deltas, calls = turn(messages)
        return ModelResponse(parts=[TextPart(''.join(deltas)), *([ToolCallPart('look')] if calls else [])])

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> Deltas:
        deltas, calls = turn(messages)
        for delta in deltas:
            yield delta
        if calls:
            yield {1: DeltaToolCall(name='look', json_args='{}')}

    agent = Agent[object, str](FunctionModel(answer, stream_function=stream))

    @agent.tool_plain
    def look() -> str:
        return 'seen'

    return agent


async def streamed(agent: Agent[Any, Any]) -> tuple[list[Event], dict[str, Any]]:
    """The events of a streaming send, and the task after it."""
    async with serving(agent, results=PIECES) as client, client.send_streaming() as stream:
        events = await stream.rest()
        return events, await client.get_task(events[0].result['task']['id'])


def updates(events: list[Event]) -> list[dict[str, Any]]:
    return [event.result['artifactUpdate'] for event in events if 'artifactUpdate' in event.result]


def describe_chunk(update: dict[str, Any]) -> tuple[str, Any, str | None]:
    """How an update's only part joins what was there, what is in it, and whether it is the last."""
    [part] = update['artifact']['parts']
    content = part['data'] if 'data' in part else part['text']
    return 'append' if update.get('append') else 'replace', content, 'last' if update.get('lastChunk') else None


def updates_seen(events: list[Event]) -> list[Any]:
    """What a person who reads along sees."""
    seen: list[Any] = []
    for event in events:
        if 'artifactUpdate' in event.result:
            seen.append(describe_chunk(event.result['artifactUpdate']))
        elif 'statusUpdate' in event.result:
            status = event.result['statusUpdate']['status']
            said = [part['text'] for part in status.get('message', {}).get('parts', ())]
            seen.append((status['state'].removeprefix('TASK_STATE_'), *said))
    return seen


def assemble_artifacts(events: list[Event]) -> dict[str, list[str]]:
    """The texts of all artifacts as a client puts them together (specification 4.2.2)."""
    artifacts: dict[str, list[str]] = {}
    for update in updates(events):
        parts = [part['text'] for part in update['artifact']['parts']]
        before = artifacts.get(update['artifact']['artifactId'], []) if update.get('append') else []
        artifacts[update['artifact']['artifactId']] = before + parts
    return artifacts


@covers('first chunk')
async def test_chunks_append_and_last_chunk_has_whole_text() -> None:
    events, task = await streamed(agent_with_responses((['It ', 'is ', 'sunny.'], False)))
    assert updates_seen(events) == snapshot(
        [
            ('WORKING',),
            ('replace', 'It ', None),
            ('append', 'is ', None),
            ('append', 'sunny.', None),
            ('replace', 'It is sunny.', 'last'),
            ('COMPLETED',),
        ]
    )
    assert ['append' in update for update in updates(events)] == [False, True, True, False]
    assert updates(events)[-1]['artifact'] == task['artifacts'][0]
    assert texts(task) == ['It is sunny.']


@covers('first chunk')
async def test_chunk_is_a_complete_artifact_update() -> None:
    events, task = await streamed(agent_with_responses((['Hi'], False)))
    first = updates(events)[0]
    assert (first.pop('taskId'), first.pop('contextId')) == (task['id'], task['contextId'])
    artifact = first.pop('artifact')
    assert artifact == task['artifacts'][0]
    assert artifact.pop('artifactId') == f'{task["id"]}.1.result'
    assert artifact.pop('parts') == current_dialect().parts([{'text': 'Hi', 'mediaType': 'text/plain'}])
    assert artifact == snapshot({'name': 'result'})
    assert first == snapshot({})


@covers('first chunk')
async def test_stored_task_shows_partial_streamed_text() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> Deltas:
        yield 'Once '
        yield 'upon '
        begun.set()
        await go_on.wait()
        yield 'a time'

    async with (
        serving(Agent(FunctionModel(stream_function=stream)), results=PIECES) as client,
        client.send_streaming() as reader,
    ):
        first = await anext(reader)
        await begun.wait()
        seen = [await anext(reader) for _ in range(3)]
        half = await client.get_task(first.result['task']['id'])
        go_on.set()
        await reader.rest()
        whole = await client.get_task(half['id'])
    assert [part for part in updates_seen(seen) if part[0] != 'WORKING'] == [
        ('replace', 'Once ', None),
        ('append', 'upon ', None),
    ]
    assert ''.join(texts(half)) == 'Once upon '
    assert texts(whole) == ['Once upon a time']


@covers('text between tool calls')
async def test_text_before_tool_call_becomes_status_message() -> None:
    events, task = await streamed(agent_with_responses((['Let me ', 'look.'], True), (['It is ', 'sunny.'], False)))
    assert updates_seen(events) == snapshot(
        [
            ('WORKING',),
            ('replace', 'Let me ', None),
            ('append', 'look.', None),
            ('WORKING', 'Let me look.'),
            ('replace', 'It is ', None),
            ('append', 'sunny.', None),
            ('replace', 'It is sunny.', 'last'),
            ('COMPLETED',),
        ]
    )
    assert len({update['artifact']['artifactId'] for update in updates(events)}) == 1
    assert texts(task) == ['It is sunny.']
    assert [(each['role'], each['parts'][0]['text']) for each in task['history']] == snapshot(
        [('ROLE_USER', 'hello'), ('ROLE_AGENT', 'Let me look.'), ('ROLE_AGENT', 'It is sunny.')]
    )


@covers('text between tool calls')
async def test_text_before_data_is_replaced_by_data() -> None:
    async def stream(messages: list[ModelMessage], _: AgentInfo) -> Deltas:
        yield 'I think it is '
        yield {1: DeltaToolCall(name='final_result', json_args='{"response": 42}')}

    async with (
        serving(Agent(FunctionModel(stream_function=stream), output_type=[int, str]), results=PIECES) as client,
        client.send_streaming() as reader,
    ):
        events = await reader.rest()
    assert updates_seen(events) == [
        ('WORKING',),
        ('replace', 'I think it is ', None),
        ('WORKING', 'I think it is '),
        ('replace', {'result': 42}, 'last'),
        ('COMPLETED',),
    ]
    assert len({update['artifact']['artifactId'] for update in updates(events)}) == 1


@covers('text between tool calls')
async def test_blocking_send_stores_same_task_as_stream() -> None:
    agent = agent_with_responses((['Let me look.'], True), (['Once more.'], True), (['It is sunny.'], False))
    _, task = await streamed(agent)
    async with serving(agent) as client:
        plain = await client.send()
    assert texts(plain) == texts(task) == ['It is sunny.']
    assert [each['parts'] for each in plain['history']] == [each['parts'] for each in task['history']]


words = st.lists(st.text(st.characters(codec='utf-8', exclude_characters='\0'), max_size=5), max_size=4)


@in_no_version('the codecs have properties of their own')
@covers('first chunk', 'text between tool calls')
@given(before=st.lists(words, max_size=3), answer=words.filter(lambda deltas: ''.join(deltas).strip() != ''))
async def test_assembled_chunks_equal_stored_artifact(before: list[list[str]], answer: list[str]) -> None:
    events, task = await streamed(agent_with_responses(*((deltas, True) for deltas in before), (answer, False)))
    [artifact] = task['artifacts']
    [(artifact_id, parts)] = assemble_artifacts(events).items()
    assert artifact_id == artifact['artifactId']
    assert ''.join(parts) == artifact['parts'][0]['text'] == ''.join(answer)
    assert [update.get('lastChunk', False) for update in updates(events)][-1] is True
    assert sum(update.get('lastChunk', False) for update in updates(events)) == 1
    notes = [each[1] for each in updates_seen(events) if each[0] == 'WORKING' and len(each) > 1]
    assert notes == [''.join(deltas) for deltas in before if ''.join(deltas).strip()]


async def test_text_changed_by_output_validator_replaces_streamed_text() -> None:
    agent = agent_with_responses((['quiet ', 'please'], False))

    @agent.output_validator
    def shout(text: str) -> str:
        return text.upper()

    events, task = await streamed(agent)
    assert updates_seen(events) == snapshot(
        [
            ('WORKING',),
            ('replace', 'quiet ', None),
            ('append', 'please', None),
            ('replace', 'QUIET PLEASE', 'last'),
            ('COMPLETED',),
        ]
    )
    assert texts(task) == ['QUIET PLEASE']


async def test_retry_replaces_text_refused_by_output_validator() -> None:
    agent = agent_with_responses((['wrong'], False), (['right'], False))

    @agent.output_validator
    def check(text: str) -> str:
        if text == 'wrong':
            raise ModelRetry('Try again.')
        return text

    events, task = await streamed(agent)
    assert updates_seen(events) == snapshot(
        [
            ('WORKING',),
            ('replace', 'wrong', None),
            ('replace', 'right', None),
            ('replace', 'right', 'last'),
            ('COMPLETED',),
        ]
    )
    assert texts(task) == ['right']


async def test_text_for_output_function_is_not_streamed() -> None:
    async def stream(messages: list[ModelMessage], _: AgentInfo) -> Deltas:
        yield 'one '
        yield 'two'

    def count(text: str) -> int:
        return len(text.split())

    agent = Agent(scripted_model('one two', stream_function=stream), output_type=TextOutput(count))
    async with serving(agent, results=PIECES) as client, client.send_streaming() as reader:
        [update] = updates(await reader.rest())
    assert (update['artifact']['parts'][0]['data'], update['lastChunk']) == ({'result': 2}, True)


async def test_model_without_streaming_answers_in_single_chunk() -> None:
    events, task = await streamed(Agent(scripted_model('all at once')))
    assert updates_seen(events) == snapshot([('WORKING',), ('replace', 'all at once', 'last'), ('COMPLETED',)])
    assert texts(task) == ['all at once']


async def test_model_streams_only_for_live_text_readers() -> None:
    requests: list[str] = []

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        requests.append('plain')
        return ModelResponse(parts=[TextPart('done')])

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> Deltas:
        requests.append('streamed')
        yield 'done'

    async with serving(Agent(FunctionModel(answer, stream_function=stream))) as client:
        await client.send()
        for headers in (None, LIVE):
            async with Client(client.app, headers=headers).send_streaming() as reader:
                await reader.rest()
        await Client(client.app, headers=LIVE).send(message())
    assert requests == ['plain', 'plain', 'streamed', 'plain']


@pytest.mark.parametrize('space', ['', ' ', '\n\n'])
async def test_whitespace_before_tool_call_sends_no_status_message(space: str) -> None:
    events, _ = await streamed(agent_with_responses(([space], True), (['done'], False)))
    assert [each for each in updates_seen(events) if each[0] == 'WORKING'] == [('WORKING',)]
