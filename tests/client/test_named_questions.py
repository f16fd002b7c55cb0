"""Answers of the client name their question: somebody else may have answered it, and the task may ask another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pydantic_ai_a2a import A2AClient, RemoteResult
from pydantic_ai_a2a.errors import UnsupportedOperationError
from pydantic_ai_a2a.testing import A2ATestClient, Answers
from pydantic_ai_a2a.wire.extensions.pending_calls_extension import PENDING_CALLS, PENDING_CALLS_URI

from ..agents import clerk_agent
from ..bounds import LIMIT
from ..cases import each_case
from ..serving import running_app
from .agents.canned_tasks import DONE, agent_message, task_waiting_with, task_with
from .canned_agent import CARD, WORKING, CannedAgent, canned_client, error_response, result_response
from .servers import options_for_binding

REFUSED = 'no longer asks the question'
OWN_CARD = {**CARD, 'capabilities': {'extensions': [PENDING_CALLS]}}


@asynccontextmanager
async def clients(binding: Any = None, **options: Any) -> AsyncGenerator[tuple[A2AClient, A2AClient]]:
    """Two clients of an agent that asks twice, for one caller."""
    async with running_app(clerk_agent(), **options_for_binding(binding)) as app:
        client, other = (A2AClient(app, binding=binding, **options) for _ in range(2))
        async with client, other:
            yield client, other


@pytest.mark.parametrize('binding', ['JSONRPC', 'HTTP+JSON', 'GRPC'])
@each_case('prompt, answer', [('hello', 'Paris'), ('sign in', True)])
async def test_answer_to_earlier_question_is_not_taken(binding: str, prompt: str, answer: Any) -> None:
    async with clients(binding) as (client, other):
        first = await client.send(prompt)
        assert first.task_id
        second = await (await other.get(first.task_id)).answer(answer)
        with pytest.raises(UnsupportedOperationError, match=REFUSED):
            await first.answer(answer)
        assert (await client.get(first.task_id)).text == second.text == 'Which account shall I delete?'
        assert (await second.answer(answer)).state == 'completed'
        with pytest.raises(UnsupportedOperationError, match='The task is completed, and no longer asks'):
            await second.answer(answer)


async def test_answer_of_a2a_0_3_names_its_question() -> None:
    async with clients(version='0.3') as (client, other):
        first = await client.send('hello')
        assert first.task_id
        await (await other.get(first.task_id)).answer('Rome')
        with pytest.raises(UnsupportedOperationError, match=REFUSED):
            await first.answer('Paris')


async def test_answer_from_inbox_names_its_question() -> None:
    async with clients() as (client, other):
        await client.send('hello')
        [earlier], [same] = [[task async for task in each.inbox()] for each in (client, other)]
        await same.answer('Rome')
        with pytest.raises(UnsupportedOperationError, match=REFUSED):
            await earlier.answer('Paris')


async def test_conversation_does_not_answer_unread_question() -> None:
    async with clients() as (client, other):
        chat, streaming = client.conversation(), client.conversation()
        first, events = await chat.send('hello'), [event async for event in streaming.stream('hello')]
        for result in (first, events[-1].result):
            await (await other.get(result.task_id)).answer('Rome')
        with pytest.raises(UnsupportedOperationError, match=REFUSED):
            await chat.send('Paris')
        with pytest.raises(UnsupportedOperationError, match=REFUSED):
            await anext(streaming.stream('Paris'))
        assert (await chat.send('No. 7')).text == 'hello + Rome + No. 7'
        assert (await chat.send('more')).text.startswith('Which account')


async def test_late_answer_of_conversation_becomes_no_new_task() -> None:
    answers = [result_response({'task': task_waiting_with()}), error_response(-32004), result_response(WORKING)]
    async with canned_client(canned := CannedAgent(*answers, card=OWN_CARD)) as client:
        chat = client.conversation()
        await chat.send('hello')
        with pytest.raises(UnsupportedOperationError):
            await chat.send('Paris')
    assert canned.methods == ['SendMessage', 'SendMessage', 'GetTask']


async def test_message_to_another_task_names_no_question() -> None:
    canned = CannedAgent(*(result_response({'task': task}) for task in (task_waiting_with(), DONE)), card=OWN_CARD)
    async with canned_client(canned) as client:
        chat = client.conversation()
        await chat.send('Go.')
        await chat.send('this', task_id='another')
    assert 'metadata' not in canned.messages[1]


async def test_message_after_ended_task_names_no_question() -> None:
    done = task_with([{'text': 'Done.'}], status=agent_message({'text': 'Done.'}))
    async with canned_client(canned := CannedAgent(result_response({'task': done}), card=OWN_CARD)) as client:
        chat = client.conversation()
        for _ in range(2):
            await chat.send('Go.')
    assert 'metadata' not in canned.messages[1]


async def test_answer_keeps_other_metadata_of_message() -> None:
    canned = CannedAgent(*(result_response({'task': task}) for task in (task_waiting_with(), DONE)), card=OWN_CARD)
    async with canned_client(canned) as client:
        chat = client.conversation()
        await chat.send('Go.')
        await chat.send({'parts': [{'text': 'this'}], 'metadata': {'colour': 'red'}})
    assert canned.messages[1]['metadata'] == {'colour': 'red', PENDING_CALLS_URI: {'question': 'm'}}


async def test_test_client_answers_each_question_by_its_name() -> None:
    async with A2ATestClient(clerk_agent()) as client:
        answers = Answers(question='Rome')
        events = [event async for event in client.stream('hello', answers=answers)]
        assert events[-1].result.text == 'hello + Rome + Rome'
        assert (await client.send('hello', answers=answers)).text == 'hello + Rome + Rome'


async def test_streaming_test_client_names_each_question() -> None:
    canned = CannedAgent(*(result_response({'task': task}) for task in (task_waiting_with(), DONE)), card=OWN_CARD)
    async with asyncio.timeout(LIMIT), A2ATestClient(canned.app) as client:
        events = [event async for event in client.stream('Go.', answers=Answers(question='this'))]
    assert events[-1].state == 'completed'
    assert canned.messages[1]['metadata'] == {PENDING_CALLS_URI: {'question': 'm'}}


@each_case('card, metadata', [(OWN_CARD, {PENDING_CALLS_URI: {'question': 'm'}}), (CARD, None)])
async def test_only_agents_with_pending_calls_get_name_of_question(card: Any, metadata: Any) -> None:
    canned = CannedAgent(*(result_response({'task': task}) for task in (task_waiting_with(), DONE)), card=card)
    async with canned_client(canned) as client:
        await (await client.send('Go.')).answer('this')
    assert canned.messages[1].get('metadata') == metadata


async def test_agent_without_extension_gets_remaining_metadata() -> None:
    canned = CannedAgent(result_response({'task': DONE}))
    metadata: dict[str, Any] = {PENDING_CALLS_URI: {'question': 'm'}, 'colour': 'red'}
    async with canned_client(canned) as client:
        await client.send({'parts': [{'text': 'this'}], 'metadata': metadata}, task_id='t')
    assert canned.messages[0]['metadata'] == {'colour': 'red'}


@each_case('message', [None, {'messageId': '', 'role': 'ROLE_AGENT', 'parts': []}])
async def test_question_without_id_is_answered(message: Any) -> None:
    waiting = task_waiting_with()
    status = {**waiting['status'], **({'message': message} if message else {})}
    if message is None:
        del status['message']
    canned = CannedAgent(*(result_response({'task': task}) for task in ({**waiting, 'status': status}, DONE)))
    canned.card = OWN_CARD
    async with canned_client(canned) as client:
        result: RemoteResult = await client.send('Go.')
        assert (await result.answer('this')).state == 'completed'
    assert 'metadata' not in canned.messages[1]
