"""Messages in the stream of a task, as Agno and .NET send them: they belong to the task, and pieces are joined."""

from __future__ import annotations

from typing import Any

import pytest

from pydantic_ai_a2a import RemoteAgent, RemoteProtocolError
from pydantic_ai_a2a.client import following
from pydantic_ai_a2a.client.content import content_of

from ..tables import each_case
from .canned import TASK, WORKING, Canned, result, stream
from .test_answers import calling

IDS: dict[str, Any] = {'taskId': 't', 'contextId': 'c'}
AGNO: dict[str, Any] = {
    'name': 'agno',
    'protocolVersion': '0.3.0',
    'url': 'http://agent.example/rpc',
    'capabilities': {'streaming': True},
}


def message(text: str, message_id: str = 'm', **fields: Any) -> dict[str, Any]:
    return {'messageId': message_id, 'role': 'ROLE_AGENT', 'parts': [{'text': text}], **fields}


def status(state: str, said: Any = None) -> dict[str, Any]:
    return {'statusUpdate': {**IDS, 'status': {'state': state, **({} if said is None else {'message': said})}}}


def agno(*texts: str, last: bool) -> list[Any]:
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
async def test_the_pieces_of_agno_are_one_answer(last: bool) -> None:
    canned = Canned(stream(*agno('It ', 'is ', '21.', last=last)), card=AGNO)
    async with calling(canned) as client:
        seen = [(update.task, update) async for update in client.stream('hello')]
    assert content_of(seen[-1][1].outcome) == 'It is 21.'
    assert [update.task for _, update in seen] == [task for task, _ in seen]
    assert [len((task or {}).get('history', [])) for task, _ in seen[:6]] == [0, 1, 2, 2, 2, 2]
    canned = Canned(stream(*agno('It ', 'is ', '21.', last=last)), card=AGNO)
    assert (await RemoteAgent(canned.app).run('hello')).output == 'It is 21.'


HISTORIES: dict[str, tuple[list[Any], list[str]]] = {
    'pieces with one id': ([{'message': message(text, **IDS)} for text in ('ha', 'ha', '!')], ['haha!']),
    'pieces with new ids': ([{'message': message(text, text)} for text in 'abc'], ['abc']),
    'pieces without ids': ([{'message': message(text, '')} for text in 'abc'], ['abc']),
    'status messages': ([status('TASK_STATE_WORKING', message(text, text)) for text in 'abc'], ['a', 'b', 'c']),
    'a status message in pieces': ([status('TASK_STATE_WORKING', message(text)) for text in ('ab', 'c')], ['abc']),
    'a status message that grows': (
        [status('TASK_STATE_WORKING', message(text)) for text in ('It', 'It is', 'It is 21.')],
        ['It is 21.'],
    ),
}


@each_case('name', HISTORIES)
async def test_the_history_of_a_stream_has_its_messages(name: str) -> None:
    events, texts = HISTORIES[name]
    user = {**message('Hi', 'u'), 'role': 'ROLE_USER'}
    first = {'task': {**WORKING, 'history': [user]}}
    async with calling(Canned(stream(first, *events, {'task': TASK}))) as client:
        task: Any = (await client.send('hello')).outcome
    assert task['status']['state'] == 'completed'
    assert [''.join(part['text'] for part in said['parts']) for said in task['history']] == ['Hi', *texts]


async def test_messages_without_a_task_are_joined() -> None:
    for ids in ('aaa', 'abc'):
        events = [{'message': message(text, n)} for text, n in zip(('It ', 'is ', '21.'), ids, strict=True)]
        async with calling(Canned(stream(*events))) as client:
            answer: Any = (await client.send('hello')).outcome
        assert answer['parts'] == [{'text': 'It is 21.'}]


async def test_a_message_before_its_task_belongs_to_the_task() -> None:
    events = [{'message': message('Done.', **IDS)}, status('TASK_STATE_WORKING'), status('TASK_STATE_COMPLETED')]
    async with calling(Canned(stream(*events))) as client:
        task: Any = (await client.send('hello')).outcome
    assert (task['id'], task['history'][0]['parts']) == ('t', [{'text': 'Done.'}])


async def test_the_messages_of_a_task_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, 'MAX_ANSWER', 3_000)
    events = [event for n in range(9) for event in ({'message': message('x' * 300, str(n))}, {'task': WORKING})]
    async with calling(Canned(stream(*events), result(TASK))) as client:
        with pytest.raises(RemoteProtocolError, match='the events of the task hold more than 3000 characters'):
            await client.send('hello')
