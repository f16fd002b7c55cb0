"""Malformed answers of remote agents: what cannot be read is a typed error, and what can be read is shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from pydantic_ai import DeferredToolRequests
from pydantic_ai.exceptions import ModelAPIError

from pydantic_ai_a2a import A2A, A2AClient, A2AError, RemoteAgent, RemoteError, to_a2a
from pydantic_ai_a2a.client.results import RemoteResult
from pydantic_ai_a2a.errors import RemoteProtocolError
from pydantic_ai_a2a.json_values import as_list, as_object

from ...bounds import LIMIT
from ...cases import each_case
from ..canned_agent import CARD, TASK, WORKING, CannedAgent, result_response, serve_canned, stream_response
from .canned_tasks import adk_confirmation, pending_call, task_waiting_with, task_with_confirmations
from .sample_agents import MakeAgent, calling_agent, each_middle_agent

STATUS: dict[str, Any] = {'taskId': 't', 'contextId': 'c', 'status': TASK['status']}
PIECE: dict[str, Any] = {'taskId': 't', 'contextId': 'c', 'artifact': {'artifactId': 'a', 'parts': [{'text': 'A'}]}}
INVALID_EVENTS: dict[str, Any] = {
    'task without an id': {'task': {'id': ''}},
    'task with an empty id': {'task': {**TASK, 'id': ''}},
    'task without a state': {'task': {**TASK, 'status': {}}},
    'task with an empty state': {'task': {**TASK, 'status': {'state': ''}}},
    'status of no task': {'statusUpdate': {**STATUS, 'taskId': ''}},
    'artifact of no task': {'artifactUpdate': {**PIECE, 'taskId': ''}},
    'nothing': {},
    'null': None,
    'list': [],
}


@pytest.mark.parametrize('kind', ['client', 'tool', 'model'])
@each_case('name', INVALID_EVENTS)
async def test_stream_event_without_valid_task_is_typed_error(kind: str, name: str) -> None:
    with serve_canned(CannedAgent(stream_response(INVALID_EVENTS[name]))) as server:
        async with asyncio.timeout(LIMIT):
            if kind == 'client':
                async with A2AClient(server.url) as client:
                    with pytest.raises(RemoteProtocolError, match='has not answered in the form of A2A'):
                        await client.send('hello')
            elif kind == 'tool':
                answered = await calling_agent(capabilities=[A2A(server.url)]).run('hello')
                assert 'has not answered in the form of A2A' in answered.output
            else:
                with pytest.raises(ModelAPIError, match='has not answered in the form of A2A'):
                    await RemoteAgent(server.url).run('hello')


@pytest.mark.parametrize('kind', ['client', 'tool', 'model'])
async def test_file_with_broken_base64_is_typed_error(kind: str) -> None:
    task = {**TASK, 'artifacts': [{'artifactId': 'a', 'parts': [{'raw': 'A', 'mediaType': 'image/png'}]}]}
    app = CannedAgent(stream_response({'task': task})).app
    if kind == 'client':
        async with A2AClient(app) as client:
            answered = await client.send('hello')
        with pytest.raises(RemoteProtocolError, match='is not base64'):
            _ = answered.files
    elif kind == 'tool':
        ended = await calling_agent(capabilities=[A2A(app)]).run('hello')
        assert 'A file of the answer is not base64.' in ended.output
    else:
        with pytest.raises(ModelAPIError, match='is not base64'):
            await RemoteAgent(app).run('hello')


async def test_listed_task_without_id_is_left_out() -> None:
    with serve_canned(CannedAgent(result_response({'tasks': [{**TASK, 'id': ''}, TASK]}))) as server:
        async with asyncio.timeout(LIMIT), A2AClient(server.url) as client:
            assert [listed.task_id async for listed in client.list()] == ['t']


TASKS: dict[str, Any] = {
    'answer': {
        **TASK,
        'artifacts': [
            {
                'artifactId': 'a',
                'name': 'result',
                'parts': [
                    {'text': 'x'},
                    {'data': {'result': 1}, 'metadata': {'json_schema': {'type': 'object'}}},
                    {'raw': 'AAEC', 'mediaType': 'image/png', 'filename': 'f'},
                    {'url': 'https://x.example/y.png', 'mediaType': 'image/png'},
                ],
            }
        ],
        'history': [{'messageId': 'm', 'role': 'ROLE_AGENT', 'parts': [{'text': 'q'}]}],
    },
    'question': task_waiting_with(
        pending=[
            pending_call('approval', id='i', args={'a': 1}, metadata={'schemes': ['a'], 'url': 'u'}),
            pending_call(),
        ],
        authorization={'schemes': ['a']},
        schema={'type': 'integer', 'enum': [1]},
    ),
    'confirmation': task_with_confirmations(adk_confirmation(payload={'a': 1})),
    'refusal': {
        **TASK,
        'status': {
            'state': 'TASK_STATE_FAILED',
            'message': {
                'messageId': 'm',
                'role': 'ROLE_AGENT',
                'parts': [{'text': 'No.'}],
                'metadata': {'correlationId': 'c'},
            },
        },
    },
}
MALFORMED_VALUES: list[Any] = [None, '', 5, [None], {'a': [{}]}]


def value_paths(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in JSON."""
    for key, item in (*as_object(value).items(), *enumerate(as_list(value))):
        yield (*place, key)
        yield from value_paths(item, (*place, key))


def replaced(whole: Any, place: tuple[Any, ...], value: Any) -> Any:
    copied = deepcopy(whole)
    holder = copied
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return copied


@pytest.mark.parametrize('name', TASKS)
async def test_malformed_task_value_raises_only_typed_errors(name: str) -> None:
    wires = [replaced(TASKS[name], place, odd) for place in value_paths(TASKS[name]) for odd in MALFORMED_VALUES]
    canned = CannedAgent(result_response(TASK))
    async with asyncio.timeout(LIMIT), A2AClient(canned.app) as client:
        for wire in wires:
            canned.answers = [result_response({'task': wire})]
            with suppress(A2AError, RemoteError):
                await read(await client.send('hello'))
            canned.answers = [result_response({'tasks': [wire]})]
            with suppress(A2AError, RemoteError):
                for listed in [listed async for listed in client.list()]:
                    await read(listed)


async def read(answered: RemoteResult) -> None:
    """Read an answer in all ways. Its text for people never raises."""
    for name in ('text', 'data', 'files', 'output', 'waiting', 'pending'):
        with suppress(RemoteError):
            getattr(answered, name)
    assert repr(answered).startswith('RemoteResult(')
    assert answered._repr_html_()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize('name', ['question', 'confirmation'])
async def test_malformed_remote_question_raises_only_typed_errors(name: str) -> None:
    canned = CannedAgent(result_response(TASK), card={**CARD, 'capabilities': {}})
    tool = calling_agent(capabilities=[A2A(canned.app)])
    model = RemoteAgent(canned.app, [str, DeferredToolRequests])
    async with asyncio.timeout(LIMIT):
        for place in value_paths(TASKS[name]):
            for odd in (None, '', [None]):
                canned.answers = [result_response({'task': replaced(TASKS[name], place, odd)})]
                await tool.run('hello')
                with suppress(ModelAPIError):
                    await model.run('hello')


async def test_repr_of_malformed_result_never_raises() -> None:
    twice = task_waiting_with(pending=[pending_call('approval', tool='read'), pending_call('approval', tool='delete')])
    canned = CannedAgent(result_response({'task': twice}), result_response({'tasks': [{**TASK, 'artifacts': []}]}))
    async with asyncio.timeout(LIMIT), A2AClient(canned.app) as client:
        shown = repr(await client.send('hello'))
        assert shown.startswith("RemoteResult(state='input-required', error='The remote task t waits with two calls")
        assert [repr(listed) async for listed in client.list()] == ["RemoteResult(state='completed', task_id='t')"]


# --- depth


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth - 1):
        value = {'a': value}
    return value


def deep_tasks(depth: int) -> dict[str, dict[str, Any]]:
    """Answers with a value that is nested so deep, in each place that takes any value."""
    value, done = nested(depth), {'artifacts': [{'artifactId': 'a', 'parts': [{'text': 'Done.'}]}]}
    confirmed = {'name': 'd', 'args': value}
    adk = adk_confirmation(args={'originalFunctionCall': confirmed}) if depth else {}
    return {
        'arguments': task_waiting_with(pending=[pending_call('approval', args=value)]),
        'metadata of a call': task_waiting_with(pending=[pending_call(metadata=value)]),
        'sign-in': task_waiting_with(authorization=value),
        'function call': task_with_confirmations(
            {**adk, 'data': {**adk['data'], 'args': {'originalFunctionCall': confirmed}}}
        ),
        'data': {**TASK, 'artifacts': [{'artifactId': 'a', 'parts': [{'data': value}]}]},
        'metadata': {**TASK, **done, 'metadata': value},
        'metadata of a part': {**TASK, 'artifacts': [{'artifactId': 'a', 'parts': [{'text': 'A', 'metadata': value}]}]},
        'status': {**TASK, **done, 'status': {**TASK['status'], 'message': {'role': 'agent', 'metadata': value}}},
    }


@each_middle_agent
@pytest.mark.parametrize('streams', [True, False])
@each_case('depth', [90, 110, 150, 190, 1_000])
async def test_deeply_nested_answers_leave_tasks_of_caller_readable(
    between: MakeAgent, depth: int, *, streams: bool
) -> None:
    answers = deep_tasks(depth) if depth < 500 else {'too deep for JSON': '@'}
    canned = CannedAgent(card={**CARD, 'capabilities': {'streaming': streams}})
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(between(canned.app, 'middle'))) as client:
        for wire in answers.values():
            body = json.dumps({'task': wire}).replace('"@"', '[' * depth + ']' * depth)
            canned.answers = (
                [stream_response(f'data: {{"result": {body}}}\n\n')] if streams else [result_response({'task': wire})]
            )
            await client.send('hello')
        listed = [task async for task in client.list(include_artifacts=True)]
        assert len(listed) == len(answers)
        for task in listed:
            assert (await client.get(task.task_id)).state == task.state
            await read(task)


@pytest.mark.parametrize('streams', [True, False])
async def test_too_deeply_nested_answer_is_protocol_error(*, streams: bool) -> None:
    wire = {'task': {**WORKING, 'metadata': nested(160)}}
    canned = CannedAgent(
        stream_response(wire) if streams else result_response(wire),
        card={**CARD, 'capabilities': {'streaming': streams}},
    )
    async with asyncio.timeout(LIMIT), A2AClient(canned.app) as client:
        with pytest.raises(RemoteProtocolError, match='the answer is nested more than 160 deep'):
            await client.send('hello')


async def test_too_deeply_nested_question_is_protocol_error() -> None:
    async with (
        asyncio.timeout(LIMIT),
        A2AClient(CannedAgent(result_response({'task': deep_tasks(100)['arguments']})).app) as client,
    ):
        answered = await client.send('hello')
        with pytest.raises(RemoteProtocolError, match='asks with values nested more than 100 deep'):
            _ = answered.waiting
