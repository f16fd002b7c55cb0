"""What a factory of dependencies is told of the call that a run answers."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from starlette.requests import Request

from pydantic_ai_a2a import CallContext, Caller, Messages

from ...client import message
from ..stage import serving

AGENT = Agent(TestModel())


def known(request: Request) -> Caller:
    return Caller(id='ann', tenant='acme', scopes=frozenset({'read'}))


async def test_a_factory_is_told_the_call_and_of_its_headers_only_those_that_are_listed() -> None:
    told: list[CallContext] = []
    async with serving(
        AGENT, deps_factory=told.append, messages=Messages(deps_headers=('X-Region', 'x-shop')), auth=known
    ) as client:
        client.headers |= {'X-Region': 'eu', 'Authorization': 'Bearer secret', 'X-Other': 'other'}
        sent = {**message('hi', contextId='c'), 'metadata': {'of': 'message'}}
        answer = await client.call('SendMessage', {'message': sent, 'metadata': {'of': 'request'}})
    [call] = told
    task_id = answer['task']['id']
    assert (call.caller, call.caller.scopes, call.tenant) == (
        Caller(id='ann', tenant='acme'),
        frozenset({'read'}),
        'acme',
    )
    assert call.headers == {'x-region': 'eu'}
    assert call.metadata == {'of': 'request'}
    assert (call.task_id, call.context_id) == (task_id, 'c')
    assert call.message == {
        'message_id': sent['messageId'],
        'role': 'user',
        'parts': [{'text': 'hi'}],
        'metadata': {'of': 'message'},
        'task_id': task_id,
        'context_id': 'c',
    }
