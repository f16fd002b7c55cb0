"""Calls that wait for their user or for a tool of the client, answered by the official clients over HTTP."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast
from uuid import uuid4

import httpx
import pytest
from a2a.helpers import get_data_parts, new_data_part
from a2a.types import Message, SendMessageRequest, Task
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict

from ..behaviour.promised_behaviours import covers
from .official import (
    BINDINGS,
    OFFICIAL,
    official_client,
    send,
    serving_process,
    state_of,
    task_of,
    text_of,
    text_request,
    using_binding,
)
from .official_0_3 import OFFICIAL_0_3, client_0_3
from .official_0_3 import text_of as text_of_0_3
from .server import LIMIT, ROOT, Process
from .venvs import python_with_a2a_sdk_0_3

ROW = '`DeferredToolRequests`'
Start: TypeAlias = Callable[[], AbstractContextManager[Process]]
ANSWERS: list[tuple[dict[str, Any], str, list[str]]] = [
    ({'decision': 'approve'}, 'deleted a', ['a']),
    ({'decision': 'deny', 'reason': 'Keep it.'}, 'Keep it.', []),
    ({'decision': 'approve', 'args': {'path': 'b'}}, 'deleted b', ['b']),
]
"""What answers the call, what its tool then returns, and what is deleted."""


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a server on the test's file."""
    (tmp_path / 'ledger').touch()
    env = {'APPS_BACKEND': f'sqlite:///{tmp_path}/agent.db', 'APPS_LEDGER': str(tmp_path / 'ledger')}

    return partial(serving_process, 'tests.e2e.shared_apps:keeper', env=env)


@pytest.fixture(scope='session')
def python() -> Path:
    return python_with_a2a_sdk_0_3()


def deleted(folder: Path) -> list[str]:
    return (folder / 'ledger').read_text().split()


def answers(task: Task, *items: dict[str, Any]) -> SendMessageRequest:
    """A message that answers calls of a task, which the items name by the ids of the tool calls."""
    ids = {call['toolCallId']: call['id'] for call in pending(task)}
    request = send(new_data_part({'callAnswers': [{**item, 'id': ids[item['id']]} for item in items]}))
    request.message.task_id = task.id
    return request


def pending(task: Task) -> list[dict[str, Any]]:
    [data] = get_data_parts(task.status.message.parts)
    return cast('dict[str, Any]', data)['pending']


def asked(task: Task) -> list[tuple[Any, Any]]:
    """Ids of the tool calls and kinds of what the task waits with."""
    return [(call['toolCallId'], call['kind']) for call in pending(task)]


@asynccontextmanager
async def client_of(server: Process) -> AsyncGenerator[Callable[[SendMessageRequest], Any]]:
    async with official_client(server.url, streaming=False) as client:

        async def sent(request: SendMessageRequest) -> Task:
            return await task_of(client.send_message(request))

        yield sent


@covers(OFFICIAL, ROW)
async def test_pending_calls_are_answered_across_restarts(start: Start, tmp_path: Path) -> None:
    with start() as server:
        async with client_of(server) as sent:
            task = await sent(text_request('delete:a fetch:b ask:c'))
            assert asked(task) == [('c1', 'approval'), ('c2', 'external'), ('c3', 'question')]
            half = await sent(answers(task, {'id': 'c2', 'decision': 'result', 'result': 'b!'}))
            assert asked(half) == [('c1', 'approval'), ('c3', 'question')]
        server.signal(signal.SIGKILL)
    with start() as server:
        async with client_of(server) as sent:
            between = await sent(text_request('meanwhile', context_id=task.context_id))
            assert text_of(between) == 'meanwhile'
            half = await sent(answers(task, {'id': 'c1', 'decision': 'approve'}))
            assert (asked(half), deleted(tmp_path)) == ([('c3', 'question')], [])
        server.signal(signal.SIGKILL)
    with start() as server:
        async with client_of(server) as sent:
            ended = await sent(text_request('c!', task_id=task.id))
            after = await sent(text_request('after', context_id=task.context_id))
    assert text_of(ended) == 'delete:a fetch:b ask:c + deleted a + b! + c!'
    assert text_of(after).startswith('meanwhile + delete:a fetch:b ask:c + after')
    assert deleted(tmp_path) == ['a']


# --- a client that knows only the card of the agent, and the messages of its tasks


async def declared(url: str, word: str) -> str:
    """The URI of the extension whose description on the card has a word."""
    async with httpx.AsyncClient(timeout=LIMIT) as http:
        card = (await http.get(f'{url}.well-known/agent-card.json')).json()
    [uri] = [own['uri'] for own in card['capabilities']['extensions'] if word in own['description']]
    return uri


def schema_of(task: Task) -> dict[str, Any]:
    """The JSON Schema of the message that answers a task, from the data of the task's message."""
    message = MessageToDict(task.status.message)
    [data] = [part['data'] for part in message['parts'] if 'data' in part]
    return data['messageSchema']


def answer_of(schema: dict[str, Any], **wanted: Any) -> SendMessageRequest:
    """A message made by its schema: a value that is wanted under a name, else the first that the schema allows."""
    message = _made(schema, {'messageId': uuid4().hex, 'role': 'ROLE_USER', **wanted}, '')
    return SendMessageRequest(message=ParseDict(message, Message()))


def _made(schema: dict[str, Any], wanted: dict[str, Any], name: str) -> Any:
    if 'oneOf' in schema:
        return next(_fitting(schema['oneOf'], wanted))
    if 'const' in schema:
        return schema['const']
    if name in wanted:
        return wanted[name]
    if schema.get('type') == 'array':
        return [_made(schema['items'], wanted, name)]
    required = {*schema['required'], *(wanted.keys() & schema['properties'].keys())}
    return {own: _made(of_it, wanted, own) for own, of_it in schema['properties'].items() if own in required}


def _fitting(choices: list[dict[str, Any]], wanted: dict[str, Any]) -> Iterator[Any]:
    """The forms whose fixed values are those that are wanted."""
    for choice in choices:
        fixed = {name: of_it['const'] for name, of_it in choice['properties'].items() if 'const' in of_it}
        if all(wanted.get(name, value) == value for name, value in fixed.items()):
            yield _made(choice, wanted, '')


@covers(OFFICIAL, ROW)
@pytest.mark.parametrize('binding', BINDINGS)
async def test_approval_is_answered_by_message_schema(start: Start, tmp_path: Path, binding: str) -> None:
    with using_binding(binding), start() as server:
        assert await declared(server.url, 'lists the answers it needs')
        async with client_of(server) as sent:
            for wanted, said, done in ANSWERS:
                before = deleted(tmp_path)
                task = await sent(text_request('delete:a'))
                assert (state_of(task), asked(task)) == ('TASK_STATE_INPUT_REQUIRED', [('c1', 'approval')])
                assert deleted(tmp_path) == before
                ended = await sent(answer_of(schema_of(task), **wanted))
                assert (ended.id, text_of(ended)) == (task.id, f'delete:a + {said}')
                assert deleted(tmp_path) == [*before, *done]


# --- the client of 0.3, and one that sends nothing but text


def part_of(task: dict[str, Any], *items: dict[str, Any]) -> list[dict[str, Any]]:
    """What a client of 0.3 answers with, which the items name by the ids of the tool calls."""
    ids = {call['toolCallId']: call['id'] for call in pending_in_0_3(task)}
    return [{'kind': 'data', 'data': {'callAnswers': [{**item, 'id': ids[item['id']]} for item in items]}}]


def pending_in_0_3(task: dict[str, Any]) -> list[dict[str, Any]]:
    [data] = [part['data'] for part in task['status']['message']['parts'] if part['kind'] == 'data']
    return data['pending']


def asked_in_0_3(task: dict[str, Any]) -> list[tuple[str, str]]:
    """Ids of the tool calls and kinds of what the task waits with."""
    return [(call['toolCallId'], call['kind']) for call in pending_in_0_3(task)]


@covers(OFFICIAL_0_3, ROW)
async def test_0_3_client_answers_approval(python: Path, start: Start, tmp_path: Path) -> None:
    with start() as server:
        async with client_0_3(python, server.url, streaming=False) as client:
            for answer, said, done in ANSWERS:
                before = deleted(tmp_path)
                task = await client.task_of('delete:a')
                assert (task['status']['state'], asked_in_0_3(task)) == ('input-required', [('c1', 'approval')])
                ended = await client.task_of(parts=part_of(task, {'id': 'c1', **answer}), task_id=task['id'])
                assert (ended['id'], text_of_0_3(ended)) == (task['id'], f'delete:a + {said}')
                assert deleted(tmp_path) == [*before, *done]


@covers(OFFICIAL_0_3, ROW)
async def test_0_3_client_answers_calls_across_restarts(python: Path, start: Start, tmp_path: Path) -> None:
    with start() as server:
        async with client_0_3(python, server.url, streaming=False) as client:
            task = await client.task_of('delete:a fetch:b ask:c')
            assert task['status']['message']['parts'][0]['text'].splitlines()[2] == 'What about c?'
            fetched = part_of(task, {'id': 'c2', 'decision': 'result', 'result': 'b!'})
            half = await client.task_of(parts=fetched, task_id=task['id'])
            assert asked_in_0_3(half) == [('c1', 'approval'), ('c3', 'question')]
        server.signal(signal.SIGKILL)
    with start() as server:
        async with client_0_3(python, server.url, streaming=False) as client:
            between = await client.task_of('meanwhile', context_id=task['contextId'])
            approved = part_of(task, {'id': 'c1', 'decision': 'approve'})
            half = await client.task_of(parts=approved, task_id=task['id'])
            assert (half['status']['state'], deleted(tmp_path)) == ('input-required', [])
            ended = await client.task_of('c!', task_id=task['id'])
    assert text_of_0_3(between) == 'meanwhile'
    assert text_of_0_3(ended) == 'delete:a fetch:b ask:c + deleted a + b! + c!'
    assert deleted(tmp_path) == ['a']


@covers(OFFICIAL, ROW)
async def test_text_only_client_may_deny_call(start: Start, tmp_path: Path) -> None:
    with start() as server:
        async with client_of(server) as sent:
            task = await sent(text_request('delete:a'))
            what = task.status.message.parts[0].text.splitlines()[-1]
            assert what.startswith('Write "no" or "no: reason" to deny the call.')
            with pytest.raises(InvalidParamsError) as refused:
                await sent(text_request('yes', task_id=task.id))
            assert what.removesuffix('.') in str(refused.value)
            again = await sent(text_request('yes, but only once', task_id=task.id))
            assert (state_of(again), asked(again)) == ('TASK_STATE_INPUT_REQUIRED', [('c1', 'approval')])
            ended = await sent(text_request('No!', task_id=task.id))
    assert text_of(ended) == 'delete:a + The tool call was denied.'
    assert deleted(tmp_path) == []


# --- tools of the client

NOTE: dict[str, Any] = {
    'name': 'read_note',
    'description': 'Read a note of the user.',
    'inputSchema': {
        'type': 'object',
        'properties': {'name': {'type': 'string', 'minLength': 1, 'maxLength': 40}},
        'required': ['name'],
    },
}


def with_tools(request: SendMessageRequest, uri: str, *tools: dict[str, Any]) -> SendMessageRequest:
    ParseDict({uri: {'tools': [*tools]}}, request.message.metadata)
    return request


@covers(OFFICIAL, ROW)
@pytest.mark.parametrize('binding', BINDINGS)
async def test_official_client_answers_call_of_declared_tool(binding: str) -> None:
    with using_binding(binding), serving_process('client_tools:app', app_dir=ROOT / 'examples') as server:
        uri = await declared(server.url, 'may declare tools')
        async with official_client(server.url, streaming=False) as client:
            without = await task_of(client.send_message(text_request('What is in note a?')))
            task = await task_of(client.send_message(with_tools(text_request('What is in note a?'), uri, NOTE)))
            [call] = [
                call
                for part in MessageToDict(task.status.message)['parts']
                for call in part.get('data', {}).get('pending', [])
            ]
            answer = answer_of(schema_of(task), decision='result', result='Buy milk.')
            done = await task_of(client.send_message(answer))
            with pytest.raises(InvalidParamsError, match='is the name of an earlier tool'):
                await task_of(client.send_message(with_tools(text_request('Hello!'), uri, NOTE, NOTE)))
    assert text_of(without) == 'I have no tool to read notes.'
    assert (state_of(task), call['tool'], call['args']) == ('TASK_STATE_INPUT_REQUIRED', 'read_note', {'name': 'a'})
    assert (done.id, text_of(done)) == (task.id, 'The note says: Buy milk.')
