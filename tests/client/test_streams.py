"""Streams that a client reads: messages between their events, events in pieces, and what the client keeps of them."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import (
    A2AApp,
    A2AClient,
    InputRequired,
    Progress,
    Rejected,
    RemoteAgent,
    RemoteProtocolError,
    Results,
    to_a2a,
)
from pydantic_ai_a2a.client import followed_task
from pydantic_ai_a2a.client.answer_content import content_of
from pydantic_ai_a2a.client.send_options import SendOptions
from pydantic_ai_a2a.client.server_sent_events import EventReader, EventTooLong
from pydantic_ai_a2a.client.updates import START

from ..bounds import LIMIT
from ..cases import each_case
from .canned_agent import (
    TASK,
    WORKING,
    CannedAgent,
    agent_message,
    canned_client,
    result_response,
    status_update,
    stream_response,
)

# --- messages, as Agno and .NET send them: they belong to the task, and pieces are joined

IDS = {'taskId': 't', 'contextId': 'c'}
AGNO: dict[str, Any] = {
    'name': 'agno',
    'protocolVersion': '0.3.0',
    'url': 'http://agent.example/rpc',
    'capabilities': {'streaming': True},
}


def agno_events(*texts: str, last: bool) -> list[Any]:
    """The events of Agno: its status updates, its reasoning and its answer as messages, and perhaps its last task."""

    def update(state: str, **fields: Any) -> dict[str, Any]:
        return {'kind': 'status-update', **IDS, 'status': {'state': state}, 'final': state == 'completed', **fields}

    def said(text: str, message_id: str, category: str) -> dict[str, Any]:
        parts = [{'kind': 'text', 'text': text}]
        metadata = {'agno_content_category': category}
        return {
            'kind': 'message',
            'messageId': message_id,
            'role': 'agent',
            'parts': parts,
            **IDS,
            'metadata': metadata,
        }

    pieces = [said(text, 'answer', 'content') for text in texts]
    whole = {
        'kind': 'message',
        'messageId': 'new',
        'role': 'agent',
        'parts': [{'kind': 'text', 'text': ''.join(texts)}],
    }
    task = {'kind': 'task', 'id': 't', 'contextId': 'c', 'status': {'state': 'completed'}, 'history': [whole]}
    return [
        update('working'),
        pieces[0],
        said('Hmm.', 'thought', 'reasoning'),
        update('working', metadata={'agno_event_type': 'tool_call_started', 'tool_name': 'look'}),
        *pieces[1:],
        update('completed'),
        *([task] if last else []),
    ]


@each_case('last', [True, False])
async def test_message_pieces_of_agno_are_joined_into_answer(last: bool) -> None:
    canned = CannedAgent(stream_response(*agno_events('It ', 'is ', '21.', last=last)), card=AGNO)
    async with canned_client(canned) as client:
        seen = [(update.task, update) async for update in client.stream('hello')]
    assert content_of(seen[-1][1].outcome) == 'It is 21.'
    assert [update.task for _, update in seen] == [task for task, _ in seen]
    assert [len((task or {}).get('history', [])) for task, _ in seen[:6]] == [0, 1, 2, 2, 2, 2]
    canned = CannedAgent(stream_response(*agno_events('It ', 'is ', '21.', last=last)), card=AGNO)
    assert (await RemoteAgent(canned.app).run('hello')).output == 'It is 21.'


HISTORIES: dict[str, tuple[list[Any], list[str]]] = {
    'pieces with one id': ([{'message': agent_message(text, **IDS)} for text in ('ha', 'ha', '!')], ['haha!']),
    'pieces with new ids': ([{'message': agent_message(text, messageId=text)} for text in 'abc'], ['abc']),
    'pieces without ids': ([{'message': agent_message(text, messageId='')} for text in 'abc'], ['abc']),
    'status messages': (
        [status_update('WORKING', agent_message(text, messageId=text)) for text in 'abc'],
        ['a', 'b', 'c'],
    ),
    'a status message in pieces': (
        [status_update('WORKING', agent_message(text)) for text in ('ab', 'c')],
        ['abc'],
    ),
    'a status message that grows': (
        [status_update('WORKING', agent_message(text)) for text in ('It', 'It is', 'It is 21.')],
        ['It is 21.'],
    ),
}


@each_case('name', HISTORIES)
async def test_streamed_messages_are_added_to_task_history(name: str) -> None:
    events, texts = HISTORIES[name]
    user = agent_message('Hi', messageId='u', role='ROLE_USER')
    first = {'task': {**WORKING, 'history': [user]}}
    async with canned_client(CannedAgent(stream_response(first, *events, {'task': TASK}))) as client:
        task: Any = (await client.send('hello')).outcome
    assert task['status']['state'] == 'completed'
    assert [''.join(part['text'] for part in said['parts']) for said in task['history']] == ['Hi', *texts]


async def test_status_message_enters_history_with_next_status() -> None:
    """As in the tasks that GetTask of the official SDK returns: a question is only in the status."""
    events = [
        {'task': WORKING},
        *(status_update('WORKING', agent_message(text, messageId=text)) for text in ('one', 'two')),
        status_update('INPUT_REQUIRED', agent_message('Which city?', messageId='question')),
    ]
    async with canned_client(CannedAgent(stream_response(*events))) as client:
        tasks: list[Any] = [update.task async for update in client.stream('hello')]
    histories = [[said['message_id'] for said in task.get('history', [])] for task in tasks]
    assert histories == [[], [], ['one'], ['one', 'two']]
    assert [task['status'].get('message', {}).get('message_id') for task in tasks] == [None, 'one', 'two', 'question']


async def test_answer_of_earlier_turn_is_in_history_once() -> None:
    artifacts: list[Any] = [{'artifactId': f't.{n}.result', 'name': 'result', 'parts': [{'text': n}]} for n in '12']
    earlier = {**WORKING, 'artifacts': artifacts[:1], 'history': [agent_message('1', messageId='t.1.answer')]}
    events = [{'task': earlier}, {'artifactUpdate': {**IDS, 'artifact': artifacts[1]}}, status_update('COMPLETED')]
    async with canned_client(CannedAgent(stream_response(*events))) as client:
        task: Any = (await client.send('hello')).task
    assert [said['message_id'] for said in task['history']] == ['t.1.answer', 't.2.answer']


def asking(**options: Any) -> A2AApp:
    """An agent that asks with words beside the question, and answers with a text."""

    def ask_then_answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answered = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
        asked = [ThinkingPart('Hm.'), TextPart('I need more.'), ToolCallPart('ask', {}, 'c1')]
        return ModelResponse([TextPart('Paris.')] if answered else asked)

    def ask() -> str:
        raise InputRequired('Which city?')

    return to_a2a(Agent(FunctionModel(ask_then_answer), name='asking', tools=[ask]), **options)


def raising(error: Exception) -> A2AApp:
    def fail() -> str:
        raise error

    return to_a2a(Agent(TestModel(), name='raising', tools=[fail]))


APPS: dict[str, Callable[[], A2AApp]] = {
    'text': lambda: to_a2a(Agent('test', name='text')),
    'data': lambda: to_a2a(Agent('test', name='data', output_type=list[int])),
    'question': asking,
    'question after steps': lambda: asking(results=Results(progress=Progress(tools=True, thinking=True))),
    'failure': lambda: raising(ZeroDivisionError()),
    'rejection': lambda: raising(Rejected('No.')),
}


@each_case('version', ['1.0', '0.3'])
@each_case('name', APPS)
async def test_streamed_task_is_the_task_of_get_task(name: str, version: Any) -> None:
    async with asyncio.timeout(LIMIT), A2AClient(APPS[name](), version=version) as client:
        options: SendOptions = {}
        for text in ('hello', 'Paris') if 'question' in name else ('hello',):
            update = [update async for update in client.stream(text, **options)][-1]
            options['task_id'] = task_id = update.task_id or ''
            assert update.task == (await client.get(task_id)).task


async def test_streamed_messages_without_task_are_joined() -> None:
    for ids in ('aaa', 'abc'):
        pieces = zip(('It ', 'is ', '21.'), ids, strict=True)
        events = [{'message': agent_message(text, messageId=message_id)} for text, message_id in pieces]
        async with canned_client(CannedAgent(stream_response(*events))) as client:
            answer: Any = (await client.send('hello')).outcome
        assert answer == {'message_id': ids[-1], 'role': 'agent', 'parts': [{'text': 'It is 21.'}]}


async def test_message_before_task_event_is_added_to_task_history() -> None:
    events = [{'message': agent_message('Done.', **IDS)}, status_update('WORKING'), status_update('COMPLETED')]
    async with canned_client(CannedAgent(stream_response(*events))) as client:
        task: Any = (await client.send('hello')).outcome
    assert (task['id'], task['history'][0]['parts']) == ('t', [{'text': 'Done.'}])


async def test_streamed_messages_over_size_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_task, 'MAX_ANSWER', 3_000)
    messages = [agent_message('x' * 300, messageId=str(n)) for n in range(9)]
    events = [event for message in messages for event in ({'message': message}, {'task': WORKING})]
    async with canned_client(CannedAgent(stream_response(*events), result_response(TASK))) as client:
        with pytest.raises(RemoteProtocolError, match='the events of the task hold more than 3000 characters'):
            await client.send('hello')


# --- events in the pieces of a stream, wherever the pieces begin and end

STREAM = (
    ': comment\n\nid: 1\ndata: {"a":\ndata:1}\n\nretry: 5\n\ndata: two\nevent: x\n\n'
    'id:é\ndata:  spaces\n\ndata: cut off'
)
EVENTS = [(b'{"a":\n1}', b'1'), (b'two', b'1'), (b' spaces', 'é'.encode())]


def read(pieces: Sequence[bytes], limit: int = 1000) -> list[tuple[bytes, bytes]]:
    reader = EventReader(limit)
    return [event for piece in pieces for event in reader.read(piece)]


@given(st.sampled_from(['\n', '\r\n', '\r']), st.lists(st.integers(0, 120)))
def test_sse_events_ignore_chunk_borders_and_line_endings(end: str, cuts: list[int]) -> None:
    stream = STREAM.replace('\n', end).encode()
    places = [0, *sorted(cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert read(pieces) == EVENTS


def test_event_limit_does_not_bound_stream() -> None:
    assert read([b'data: 1234\n\n'] * 20, 15) == [(b'1234', b'')] * 20


@pytest.mark.parametrize(
    'pieces',
    [[b'data: 12345', b'67890'], [b'data: 1234\n', b'data: 1234\n'], [b': comment', b' that does not end']],
    ids=['line', 'event', 'comment'],
)
def test_oversized_sse_event_is_refused_before_its_end(pieces: list[bytes]) -> None:
    assert read(pieces, 100) == []
    with pytest.raises(EventTooLong):
        read(pieces, 15)


# --- what a client keeps of a stream


async def test_earlier_updates_keep_their_text_without_copying_artifacts() -> None:
    """A copy for each update would take 250 MB."""
    updates = [START.followed_by({'task': {'id': 't', 'context_id': 'c', 'status': {'state': 'working'}}})]
    tracemalloc.start()
    try:
        for n in range(500):
            artifact: Any = {'artifact_id': 'a', 'parts': [{'text': f'{n:<1999} '}]}
            update: Any = {'task_id': 't', 'context_id': 'c', 'artifact': artifact, 'append': True}
            updates.append(updates[-1].followed_by({'artifact_update': update}))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000
    whole = ''.join(f'{n:<1999} ' for n in range(500))
    for count in (500, 1, 250):
        task: Any = updates[count].task
        assert task['artifacts'] == [{'artifact_id': 'a', 'parts': [{'text': whole[: 2000 * count]}]}]


async def test_status_update_replaces_task_metadata() -> None:
    begun = {**WORKING, 'metadata': {'tokens': 1, 'model': 'a'}}
    updates = [status_update(state, metadata={'tokens': n}) for state, n in (('WORKING', 2), ('COMPLETED', 3))]
    async with A2AClient(CannedAgent(stream_response({'task': begun}, *updates)).app) as client:
        tasks = [update.task async for update in client.stream('Hello.')]
    assert [task and task.get('metadata') for task in tasks] == [{'tokens': n, 'model': 'a'} for n in (1, 2, 3)]
