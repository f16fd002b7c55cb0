"""Thoughts and tool calls, for clients that watch a task of a server that shows them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from pydantic_ai_a2a import Approvals, AuthRequired, Progress, Push, Results

from ...agents import scripted_model
from ...app_client import Event, Stream, message, state_of, texts
from ...cases import each_case
from ...dialects import current_dialect, only_in
from ...serving import serving
from ...webhooks import webhook
from ..pending_calls import answer_message
from ..promised_behaviours import covers

ROW = covers('thinking, tool calls')
ALL = Progress(thinking=True, tools=True)
NOTES = Progress(notes=True, thinking=True, tools=True)


def turn(messages: list[ModelMessage]) -> int:
    return sum(isinstance(each, ModelResponse) for each in messages)


async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    if turn(messages):
        return ModelResponse(parts=[ThinkingPart('Done.', signature='SECRET'), TextPart('It is sunny.')])
    call = ToolCallPart('look', {'where': 'up'}, tool_call_id='call-1')
    return ModelResponse(parts=[ThinkingPart('I should look.', signature='SECRET'), TextPart('Let me look.'), call])


async def stream(
    messages: list[ModelMessage], _: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]]:
    if turn(messages):
        yield {0: DeltaThinkingPart(content='Done.', signature='SECRET')}
        yield 'It is sunny.'
    else:
        yield {0: DeltaThinkingPart(content='I should ')}
        yield {0: DeltaThinkingPart(content='look.', signature='SECRET')}
        yield 'Let me look.'
        yield {2: DeltaToolCall(name='look', json_args='{"where": "up"}', tool_call_id='call-1')}


def look(where: str) -> str:
    return f'SECRET is {where}'


STREAMING = Agent(FunctionModel(answer, stream_function=stream), tools=[look])
PLAIN = Agent(FunctionModel(answer), tools=[look])
EACH_AGENT = pytest.mark.parametrize('agent', [STREAMING, PLAIN], ids=['streaming', 'plain'])


def shown(events: list[Event]) -> list[Any]:
    """What a client sees: states with what is said and its metadata, and texts of the answer."""
    seen: list[Any] = []
    for event in events:
        if 'artifactUpdate' in event.result:
            seen.append(event.result['artifactUpdate']['artifact']['parts'][0]['text'])
        elif 'statusUpdate' in event.result:
            status = event.result['statusUpdate']['status']
            said = status.get('message', {})
            content = [part.get('text', part.get('data')) for part in said.get('parts', ())]
            metadata = said.get('metadata', {})
            kind = [metadata[key] for key in ('progress', 'phase', 'toolName', 'toolCallId') if key in metadata]
            seen.append((status['state'].removeprefix('TASK_STATE_'), *content, *kind))
    return seen


def tool_steps(events: list[Event]) -> list[Any]:
    """What a client sees of tools: the data and the phase of each step."""
    return [(step[1], step[3]) for step in shown(events) if 'tool' in step]


async def streamed(agent: Agent[None, Any], progress: Progress) -> tuple[list[Event], dict[str, Any]]:
    async with serving(agent, results=Results(progress=progress)) as client:
        async with client.live.send_streaming() as reader:
            events = await reader.rest()
        return events, await client.get_task(events[0].result['task']['id'])


@ROW
async def test_thinking_and_tool_calls_are_streamed_as_status_updates() -> None:
    events, _ = await streamed(STREAMING, ALL)
    assert 'SECRET' not in json.dumps([event.data for event in events])
    assert shown(events) == snapshot(
        [
            ('WORKING',),
            ('WORKING', 'I should look.', 'thinking'),
            'Let me look.',
            ('WORKING', 'Let me look.'),
            ('WORKING', {'where': 'up'}, 'tool', 'call', 'look', 'call-1'),
            ('WORKING', {'outcome': 'success'}, 'tool', 'return', 'look', 'call-1'),
            ('WORKING', 'Done.', 'thinking'),
            'It is sunny.',
            '',
            ('COMPLETED',),
        ]
    )


@ROW
async def test_progress_update_is_complete_agent_message() -> None:
    events, task = await streamed(STREAMING, Progress(tools=True))
    said = [event.result['statusUpdate']['status'].get('message') for event in events if 'statusUpdate' in event.result]
    [call] = [each for each in said if each and each.get('metadata', {}).get('phase') == 'call']
    assert len(call.pop('messageId')) >= 16
    assert (call.pop('taskId'), call.pop('contextId')) == (task['id'], task['contextId'])
    assert call.pop('parts') == current_dialect().parts([{'data': {'where': 'up'}, 'mediaType': 'application/json'}])
    assert call == snapshot(
        {
            'role': 'ROLE_AGENT',
            'metadata': {'progress': 'tool', 'phase': 'call', 'toolName': 'look', 'toolCallId': 'call-1'},
        }
    )


@ROW
async def test_progress_of_non_streaming_model_comes_with_response() -> None:
    events, _ = await streamed(PLAIN, ALL)
    assert shown(events) == snapshot(
        [
            ('WORKING',),
            ('WORKING', 'I should look.', 'thinking'),
            ('WORKING', 'Let me look.'),
            ('WORKING', {'where': 'up'}, 'tool', 'call', 'look', 'call-1'),
            ('WORKING', {'outcome': 'success'}, 'tool', 'return', 'look', 'call-1'),
            ('WORKING', 'Done.', 'thinking'),
            'It is sunny.',
            ('COMPLETED',),
        ]
    )


@ROW
@EACH_AGENT
@pytest.mark.parametrize(
    ('progress', 'kinds'),
    [
        (Progress(), []),
        (Progress(thinking=True), ['thinking', 'thinking']),
        (Progress(tools=True), ['tool', 'tool']),
    ],
    ids=['neither', 'thinking', 'tools'],
)
async def test_only_enabled_progress_kinds_are_streamed(
    agent: Agent[None, Any], progress: Progress, kinds: list[str]
) -> None:
    events, _ = await streamed(agent, progress)
    assert [each[2] for each in shown(events) if len(each) > 2 and each[0] == 'WORKING'] == kinds


@ROW
@EACH_AGENT
async def test_progress_is_not_stored_in_task(agent: Agent[None, Any]) -> None:
    _, task = await streamed(agent, ALL)
    assert [each['parts'][0]['text'] for each in task['history']] == ['hello', 'Let me look.', 'It is sunny.']
    assert texts(task) == ['It is sunny.']
    assert 'message' not in task['status']


@ROW
async def test_progress_does_not_replace_status_of_working_task() -> None:
    looking, go_on = asyncio.Event(), asyncio.Event()

    async def look(where: str) -> str:
        looking.set()
        await go_on.wait()
        return 'sun'

    async with (
        serving(Agent(FunctionModel(answer), tools=[look]), results=Results(progress=NOTES)) as client,
        client.send_streaming() as reader,
    ):
        task = (await anext(reader)).result['task']
        await looking.wait()
        status = (await client.get_task(task['id']))['status']
        go_on.set()
        await reader.rest()
    assert [part['text'] for part in status['message']['parts']] == ['Let me look.']


@ROW
@EACH_AGENT
async def test_no_progress_events_are_stored_without_subscribers(agent: Agent[None, Any]) -> None:
    async with serving(agent, results=Results(progress=ALL)) as client:
        task = await client.send()
        async with client.live.subscribe(task['id'], Last_Event_ID='1') as reader:
            [snapshot] = await reader.rest()
    answers = [part['text'] for each in task['history'] if each['role'] == 'ROLE_AGENT' for part in each['parts']]
    assert answers == ['Let me look.', 'It is sunny.']
    assert snapshot.id == 4  # working, the text before the call, the artifact, completed


@ROW
async def test_parallel_tool_returns_are_streamed_as_each_finishes() -> None:
    slow_may_return = asyncio.Event()

    async def slow() -> None:
        await slow_may_return.wait()

    async def fast() -> None:
        """Return at once."""

    model = scripted_model([ToolCallPart('slow'), ToolCallPart('fast')], 'done')
    async with (
        serving(Agent(model, tools=[slow, fast]), results=Results(progress=ALL)) as client,
        client.send_streaming() as reader,
    ):
        first = [await anext(reader) for _ in range(5)]
        slow_may_return.set()
        rest = await reader.rest()
    assert [each[3:5] for each in shown(first)] == [(), ('call', 'slow'), ('call', 'fast'), ('return', 'fast')]
    assert shown(rest)[0][3:5] == ('return', 'slow')


@ROW
async def test_tool_retry_and_tool_error_behave_as_without_progress() -> None:
    calls = [ToolCallPart('moody', tool_call_id=f'call-{n}') for n in range(2)]
    moods = iter([ModelRetry('Again.'), None, RuntimeError('SECRET')])

    def moody() -> None:
        if (mood := next(moods)) is not None:
            raise mood

    async with serving(Agent(scripted_model(*calls, 'done'), tools=[moody]), results=Results(progress=ALL)) as client:
        async with client.live.send_streaming() as reader:
            good = await reader.rest()
        async with client.live.send_streaming(message()) as reader:
            bad = await reader.rest()
    outcomes = [each[1]['outcome'] for each in shown(good) if each[3:5] == ('return', 'moody')]
    assert outcomes == ['retried', 'success']
    assert [each[0] for each in shown(bad)] == ['WORKING', 'WORKING', 'FAILED']
    assert 'SECRET' not in json.dumps([event.data for event in bad])


@covers('thinking, tool calls', 'cancel a running task')
async def test_watched_tool_is_canceled_with_its_task() -> None:
    looking, stopped = asyncio.Event(), asyncio.Event()

    async def look(where: str) -> str:
        looking.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            stopped.set()

    async with (
        serving(Agent(FunctionModel(answer), tools=[look]), results=Results(progress=ALL)) as client,
        client.send_streaming() as reader,
    ):
        task = (await anext(reader)).result['task']
        await looking.wait()
        canceled = await client.call('CancelTask', {'id': task['id']})
        assert stopped.is_set()
        rest = await reader.rest()
    assert state_of(canceled) == 'CANCELED'
    assert shown(rest)[-1] == ('CANCELED',)


@ROW
@EACH_AGENT
async def test_hidden_tool_arguments_are_not_streamed(agent: Agent[None, Any]) -> None:
    async with (
        serving(agent, results=Results(progress=ALL), approvals=Approvals(hide_arguments=['look'])) as client,
        client.live.send_streaming() as reader,
    ):
        events = await reader.rest()
    assert ('WORKING', {}, 'tool', 'call', 'look', 'call-1') in shown(events)
    assert '"up"' not in json.dumps([event.data for event in events])


CALL, OTHER = ({'where': 'up'}, 'call'), ({'where': 'east'}, 'call')
RETURN, DENIED = ({'outcome': 'success'}, 'return'), ({'outcome': 'denied'}, 'return')
APPROVE = {'decision': 'approve'}


@covers('thinking, tool calls', '`DeferredToolRequests`')
@pytest.mark.parametrize('kind', ['streaming', 'plain'])
@pytest.mark.parametrize(
    ('decision', 'ran'),
    [
        (APPROVE, [CALL, RETURN]),
        ({**APPROVE, 'args': {'where': 'east'}}, [OTHER, RETURN]),
        ({'decision': 'deny'}, [CALL, DENIED]),
    ],
    ids=['approved', 'changed', 'denied'],
)
async def test_answered_tool_call_and_its_text_are_shown_once(
    kind: str, decision: dict[str, Any], ran: list[Any]
) -> None:
    model = FunctionModel(answer, stream_function=stream) if kind == 'streaming' else FunctionModel(answer)
    agent: Agent[None, Any] = Agent(model, tools=[Tool(look, requires_approval=True)])
    async with serving(agent, results=Results(progress=ALL)) as client:
        async with client.live.send_streaming() as reader:
            first = await reader.rest()
        task_id = first[0].result['task']['id']
        async with client.live.send_streaming(answer_message(waiting(first), {'id': 'call-1', **decision})) as reader:
            second = await reader.rest()
        task = await client.get_task(task_id)
    events: list[tuple[Any, ...]] = [each for each in shown([*first, *second]) if isinstance(each, tuple)]
    assert tool_steps([*first, *second]) == ran
    assert [each[1] for each in events if 'thinking' in each] == ['I should look.', 'Done.']
    assert events.count(('WORKING', 'Let me look.')) == 1
    assert [each['parts'][0].get('text') for each in task['history']].count('Let me look.') == 1


async def until_it_waits(reader: Stream) -> list[Event]:
    """All events until the task waits for its client, or has ended; a sign-in does not end each stream."""
    events: list[Event] = []
    async for event in reader:
        events.append(event)
        state = event.result.get('statusUpdate', {}).get('status', {}).get('state', '')
        if state.endswith('_REQUIRED'):
            break
    return events


def waiting(events: list[Event]) -> dict[str, Any]:
    """The id and the status of a task, from events until it waits."""
    update = events[-1].result['statusUpdate']
    return {'id': update['taskId'], 'status': update['status']}


def unapproved(ctx: RunContext[None], where: str) -> str:
    if not ctx.tool_call_approved:
        raise ApprovalRequired
    return where


def elsewhere(where: str) -> str:
    raise CallDeferred


def unknown(ctx: RunContext[None], where: str) -> str:
    if not ctx.tool_call_approved:
        raise AuthRequired('Sign in.')
    return where


HIDDEN = {'approvals': Approvals(hide_arguments=['look'], change_arguments=['look'])}


@covers('thinking, tool calls', '`DeferredToolRequests`')
@each_case(
    ('tool', 'answer_data', 'ran'),
    [
        (unapproved, APPROVE, [CALL, RETURN]),
        (unapproved, {**APPROVE, 'args': {'where': 'up'}}, [CALL, RETURN]),
        (unapproved, {**APPROVE, 'args': {'where': 'east'}}, [CALL, OTHER, RETURN]),
        (unapproved, {'decision': 'deny'}, [CALL, DENIED]),
        (elsewhere, {'decision': 'result', 'result': 'sun'}, [CALL, RETURN]),
        (unknown, None, [CALL, RETURN]),
    ],
    ids=['approved', 'same', 'changed', 'denied', 'result', 'sign-in'],
)
@each_case('options', [{}, HIDDEN], ids=['', 'hidden'])
async def test_only_changed_arguments_show_deferred_call_again(
    tool: Any, answer_data: dict[str, Any] | None, ran: list[Any], options: Any
) -> None:
    agent: Agent[None, Any] = Agent(FunctionModel(answer), tools=[Tool(tool, name='look')])
    async with serving(agent, results=Results(progress=ALL), **options) as client:
        async with client.live.send_streaming() as reader:
            first = await until_it_waits(reader)
        task = waiting(first)
        sent = message('done', taskId=task['id'])
        if answer_data is not None:
            sent = answer_message(task, {'id': 'call-1', **answer_data})
        async with client.live.send_streaming(sent) as reader:
            second = await reader.rest()
    if options:  # of the arguments nothing is seen, and so no change of them
        ran = [({}, 'call'), ran[-1]]
    assert tool_steps([*first, *second]) == ran


@covers('thinking, tool calls', '`DeferredToolRequests`')
async def test_tool_call_deferred_without_subscriber_is_shown_when_resumed() -> None:
    tool: Any = unapproved
    agent: Agent[None, Any] = Agent(FunctionModel(answer), tools=[Tool(tool, name='look')])
    async with serving(agent, results=Results(progress=ALL)) as client:
        task = await client.send()
        async with client.live.send_streaming(answer_message(task, {'id': 'call-1', **APPROVE})) as reader:
            events = await reader.rest()
    assert tool_steps(events) == [CALL, RETURN]


@covers('thinking, tool calls', '`DeferredToolRequests`')
async def test_repeatedly_deferred_tool_call_is_shown_once() -> None:
    raised: list[Exception] = [AuthRequired('Sign in.'), ApprovalRequired()]

    def look(where: str) -> str:
        if raised:
            raise raised.pop(0)
        return where

    agent: Agent[None, Any] = Agent(FunctionModel(answer), tools=[Tool(look, requires_approval=True)])
    async with serving(agent, results=Results(progress=ALL)) as client:
        async with client.live.send_streaming() as reader:
            events = await until_it_waits(reader)
        for data in ({**APPROVE, 'args': {'where': 'east'}}, None, APPROVE):
            task = waiting(events)
            sent = (
                message('done', taskId=task['id']) if data is None else answer_message(task, {'id': 'call-1', **data})
            )
            async with client.live.send_streaming(sent) as reader:
                events += await until_it_waits(reader)
    assert tool_steps(events) == [OTHER, RETURN]


# --- text beside a tool call ------------------------------------------------------------------------------------------


class Looking:
    """An agent that looks until it is told to go on, with text beside the call."""

    def __init__(self, *, streams: bool) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        model = FunctionModel(answer, stream_function=stream) if streams else FunctionModel(answer)
        self.agent = Agent(model, tools=[self.look])

    async def look(self, where: str) -> str:
        self.begun.set()
        await self.go_on.wait()
        return 'sun'


EACH_MODEL = pytest.mark.parametrize('streams', [True, False], ids=['streaming', 'plain'])
EACH_SETTING = pytest.mark.parametrize('notes', [False, True], ids=['by default', 'with notes'])


@ROW
@EACH_MODEL
@EACH_SETTING
async def test_text_beside_tool_call_needs_live_stream_or_notes(streams: bool, notes: bool) -> None:
    looking = Looking(streams=streams)
    results = Results(interval=0, progress=Progress(notes=notes))
    async with (
        serving(looking.agent, results=results) as client,
        client.live.send_streaming() as asked,
    ):
        task_id = (await anext(asked)).result['task']['id']
        await looking.begun.wait()
        async with client.subscribe(task_id) as plain, client.live.subscribe(task_id) as late:
            tasks = [(await anext(reader)).result['task'] for reader in (plain, late)]
            tasks.append(await client.get_task(task_id))
            if client.dialect.has_lists:
                tasks += (await client.call('ListTasks', {'includeArtifacts': True}))['tasks']
            looking.go_on.set()
            seen = [shown(await reader.rest()) for reader in (plain, late, asked)]
        ended = await client.get_task(task_id)
    said = [texts({'artifacts': [task['status'].get('message', {'parts': []})]}) for task in tasks]
    assert said == [['Let me look.'] if notes else []] * len(tasks)
    if not notes:
        assert [texts(task) for task in tasks] == [[]] * len(tasks)
    assert seen[0] == ['It is sunny.', ('COMPLETED',)]
    assert ('WORKING', 'Let me look.') in seen[2]
    assert [each['parts'][0]['text'] for each in ended['history']] == ['hello', 'Let me look.', 'It is sunny.']
    assert texts(ended) == ['It is sunny.']


@EACH_MODEL
@EACH_SETTING
@pytest.mark.parametrize('chunks', [False, True], ids=['whole', 'chunks'])
async def test_webhooks_get_tool_call_text_only_with_notes(streams: bool, notes: bool, chunks: bool) -> None:
    looking = Looking(streams=streams)
    results, push = Results(progress=Progress(notes=notes)), Push(private_hosts=['127.0.0.1'], chunks=chunks)
    looking.go_on.set()
    async with webhook() as hook, serving(looking.agent, push=push, results=results) as client:
        await client.send(taskPushNotificationConfig={'url': hook.url})
        received = await hook.got(4 if notes else 3)
    assert [each.summary for each in received] == [*['WORKING'] * (1 + notes), 'It is sunny. lastChunk', 'COMPLETED']
    assert ('Let me look.' in str([each.body for each in received])) == notes


@only_in('0.3', 'webhooks of 0.3 get the whole task')
@EACH_SETTING
async def test_0_3_webhooks_get_tool_text_with_notes(notes: bool) -> None:
    looking = Looking(streams=True)
    results, push = Results(progress=Progress(notes=notes)), Push(private_hosts=['127.0.0.1'])
    looking.go_on.set()
    async with webhook() as hook, serving(looking.agent, push=push, results=results) as client:
        await client.send(taskPushNotificationConfig={'url': hook.url})
        received = await hook.got(3 if notes else 2)
    said = [each.json['status'].get('message', {'parts': []})['parts'] for each in received]
    assert [[part['text'] for part in parts] for parts in said] == [[], *[['Let me look.']] * notes, []]


@pytest.mark.parametrize('way', ['cancel', 'failure'])
async def test_text_beside_interrupted_tool_call_is_no_artifact(way: str) -> None:
    looking = Looking(streams=True)

    async def fail(where: str) -> str:
        raise LookupError

    agent = (
        looking.agent
        if way == 'cancel'
        else Agent(FunctionModel(answer, stream_function=stream), tools=[Tool(fail, name='look')])
    )
    async with serving(agent, results=Results(interval=0)) as client, client.live.send_streaming() as asked:
        task_id = (await anext(asked)).result['task']['id']
        if way == 'cancel':
            await looking.begun.wait()
            await client.call('CancelTask', {'id': task_id})
        seen = shown(await asked.rest())
        task = await client.get_task(task_id)
    assert 'Let me look.' in seen
    assert texts(task) == []
    assert 'Let me look.' in [part['text'] for each in task['history'] for part in each['parts']]
