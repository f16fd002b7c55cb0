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
from pydantic_ai_a2a.types import as_list, as_object

from ...bounds import LIMIT
from ...tables import each_case
from ..canned import CARD, TASK, WORKING, Canned, result, served, stream
from .agents import caller
from .test_hostile_questions import call, waits
from .test_places import confirmation, confirming
from .test_three_servers import Between, in_between

STATUS: dict[str, Any] = {'taskId': 't', 'contextId': 'c', 'status': TASK['status']}
PIECE: dict[str, Any] = {'taskId': 't', 'contextId': 'c', 'artifact': {'artifactId': 'a', 'parts': [{'text': 'A'}]}}
NO_ANSWERS: dict[str, Any] = {
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
@each_case('name', NO_ANSWERS)
async def test_stream_event_without_valid_task_is_typed_error(kind: str, name: str) -> None:
    with served(Canned(stream(NO_ANSWERS[name]))) as server:
        async with asyncio.timeout(LIMIT):
            if kind == 'client':
                async with A2AClient(server.url) as client:
                    with pytest.raises(RemoteProtocolError, match='has not answered in the form of A2A'):
                        await client.send('hello')
            elif kind == 'tool':
                answered = await caller(capabilities=[A2A(server.url)]).run('hello')
                assert 'has not answered in the form of A2A' in answered.output
            else:
                with pytest.raises(ModelAPIError, match='has not answered in the form of A2A'):
                    await RemoteAgent(server.url).run('hello')


async def test_a_listed_task_without_an_id_is_left_out() -> None:
    with served(Canned(result({'tasks': [{**TASK, 'id': ''}, TASK]}))) as server:
        async with asyncio.timeout(LIMIT), A2AClient(server.url) as client:
            assert [listed.task_id async for listed in client.list()] == ['t']


WHOLE: dict[str, Any] = {
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
    'question': waits(
        pending=[call('approval', id='i', args={'a': 1}, metadata={'schemes': ['a'], 'url': 'u'}), call()],
        authorization={'schemes': ['a']},
        schema={'type': 'integer', 'enum': [1]},
    ),
    'confirmation': confirming(confirmation(payload={'a': 1})),
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
ODD: list[Any] = [None, '', 5, [None], {'a': [{}]}]


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in JSON."""
    for key, item in (*as_object(value).items(), *enumerate(as_list(value))):
        yield (*place, key)
        yield from places(item, (*place, key))


def changed(whole: Any, place: tuple[Any, ...], value: Any) -> Any:
    copied = deepcopy(whole)
    holder = copied
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return copied


@pytest.mark.parametrize('name', WHOLE)
async def test_malformed_task_value_raises_only_typed_errors(name: str) -> None:
    wires = [changed(WHOLE[name], place, odd) for place in places(WHOLE[name]) for odd in ODD]
    canned = Canned(result(TASK))
    async with asyncio.timeout(LIMIT), A2AClient(canned.app) as client:
        for wire in wires:
            canned.answers = [result({'task': wire})]
            with suppress(A2AError, RemoteError):
                await read(await client.send('hello'))
            canned.answers = [result({'tasks': [wire]})]
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
    canned = Canned(result(TASK), card={**CARD, 'capabilities': {}})
    tool = caller(capabilities=[A2A(canned.app)])
    model = RemoteAgent(canned.app, [str, DeferredToolRequests])
    async with asyncio.timeout(LIMIT):
        for place in places(WHOLE[name]):
            for odd in (None, '', [None]):
                canned.answers = [result({'task': changed(WHOLE[name], place, odd)})]
                await tool.run('hello')
                with suppress(ModelAPIError):
                    await model.run('hello')


async def test_repr_of_malformed_result_never_raises() -> None:
    twice = waits(pending=[call('approval', tool='read'), call('approval', tool='delete')])
    canned = Canned(result({'task': twice}), result({'tasks': [{**TASK, 'artifacts': []}]}))
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


def deep(depth: int) -> dict[str, dict[str, Any]]:
    """Answers with a value that is nested so deep, in each place that takes any value."""
    value, done = nested(depth), {'artifacts': [{'artifactId': 'a', 'parts': [{'text': 'Done.'}]}]}
    confirmed = {'name': 'd', 'args': value}
    adk = confirmation(args={'originalFunctionCall': confirmed}) if depth else {}
    return {
        'arguments': waits(pending=[call('approval', args=value)]),
        'metadata of a call': waits(pending=[call(metadata=value)]),
        'sign-in': waits(authorization=value),
        'function call': confirming({**adk, 'data': {**adk['data'], 'args': {'originalFunctionCall': confirmed}}}),
        'data': {**TASK, 'artifacts': [{'artifactId': 'a', 'parts': [{'data': value}]}]},
        'metadata': {**TASK, **done, 'metadata': value},
        'metadata of a part': {**TASK, 'artifacts': [{'artifactId': 'a', 'parts': [{'text': 'A', 'metadata': value}]}]},
        'status': {**TASK, **done, 'status': {**TASK['status'], 'message': {'role': 'agent', 'metadata': value}}},
    }


@in_between
@pytest.mark.parametrize('streams', [True, False])
@each_case('depth', [90, 110, 150, 190, 1_000])
async def test_deeply_nested_answers_leave_tasks_of_caller_readable(
    between: Between, depth: int, *, streams: bool
) -> None:
    answers = deep(depth) if depth < 500 else {'too deep for JSON': '@'}
    canned = Canned(card={**CARD, 'capabilities': {'streaming': streams}})
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(between(canned.app, 'middle'))) as client:
        for wire in answers.values():
            body = json.dumps({'task': wire}).replace('"@"', '[' * depth + ']' * depth)
            canned.answers = [stream(f'data: {{"result": {body}}}\n\n')] if streams else [result({'task': wire})]
            await client.send('hello')
        listed = [task async for task in client.list(include_artifacts=True)]
        assert len(listed) == len(answers)
        for task in listed:
            assert (await client.get(task.task_id)).state == task.state
            await read(task)


@pytest.mark.parametrize('streams', [True, False])
async def test_too_deeply_nested_answer_is_protocol_error(*, streams: bool) -> None:
    wire = {'task': {**WORKING, 'metadata': nested(160)}}
    canned = Canned(stream(wire) if streams else result(wire), card={**CARD, 'capabilities': {'streaming': streams}})
    async with asyncio.timeout(LIMIT), A2AClient(canned.app) as client:
        with pytest.raises(RemoteProtocolError, match='the answer is nested more than 160 deep'):
            await client.send('hello')


async def test_too_deeply_nested_question_is_protocol_error() -> None:
    async with asyncio.timeout(LIMIT), A2AClient(Canned(result({'task': deep(100)['arguments']})).app) as client:
        answered = await client.send('hello')
        with pytest.raises(RemoteProtocolError, match='asks with values nested more than 100 deep'):
            _ = answered.waiting
