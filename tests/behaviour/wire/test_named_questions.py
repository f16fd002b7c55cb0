"""Answers in words name the question that they answer, in the metadata of the message: they answer no later one."""

from __future__ import annotations

from typing import Any

from fasta2a.storage import InMemoryStorage

from pydantic_ai_a2a import Approvals
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.wire.extensions.pending_calls_extension import PENDING_CALLS_URI

from ...agents import clerk_agent
from ...app_client import Client, message, state_of, texts
from ...cases import each_case
from ...serving import each_backend, serving, wait_until_ended
from ..callers import caller_from_header, client_of_caller
from ..faulty_queues import BeforePause
from ..pending_calls import ApprovalAgent, answer_message, approve, pending_call_ids
from ..refusals import error_of_call


def answer_to(task: dict[str, Any], text: str = 'Paris', **fields: Any) -> dict[str, Any]:
    """A message in words that names the status message of a task as its question."""
    return named(task['status']['message']['messageId'], text, taskId=task['id'], **fields)


def named(question: Any, text: str = 'Paris', **fields: Any) -> dict[str, Any]:
    return message(text, metadata={PENDING_CALLS_URI: {'question': question}}, **fields)


@each_case('prompt, state', [('hello', 'INPUT_REQUIRED'), ('sign in', 'AUTH_REQUIRED')])
async def test_answer_to_earlier_question_is_refused(prompt: str, state: str) -> None:
    async with serving(clerk_agent()) as client:
        first = await client.send(prompt)
        earlier = answer_to(first)
        second = await client.send(answer_to(first, 'Rome'))
        error = await error_of_call(client.send(earlier))
        name = first['status']['message']['messageId']
        assert error.code == -32004
        waits = state.lower().replace('_', '-')
        assert f'The task is {waits}, and no longer asks the question {name!r}' in error.message
        assert (state_of(second), await client.get_task(first['id'])) == (state, second)
        ended = await client.send(answer_to(second, 'No. 7'))
        assert texts(ended) == [f'{prompt} + Rome + No. 7']
        error = await error_of_call(client.send(answer_to(second)))
        assert 'The task is completed, and no longer asks the question' in error.message


async def test_repeated_answer_to_earlier_question_returns_its_task() -> None:
    async with serving(clerk_agent()) as client:
        first = await client.send('hello')
        sent = answer_to(first, 'Rome')
        second = await client.send(sent)
        assert await client.send(sent) == second


async def test_late_answer_answers_no_later_question() -> None:
    backend = MemoryBackend('clerk', reader_lag=10**6)
    backend.reader = reader = BeforePause(backend)
    async with serving(clerk_agent(), backend=backend) as client:
        task = await client.send('hello')
        reader.first = lambda: client.send(answer_to(task, 'Rome'))
        error = await error_of_call(client.send(answer_to(task)))
        assert error.code == -32004
        ended = await client.send(message('No. 7', taskId=task['id']))
    assert texts(ended) == ['hello + Rome + No. 7']


@each_backend('sqlite', 'postgres')
async def test_restarted_server_refuses_answer_to_earlier_question(backend: str) -> None:
    async with serving(clerk_agent(), backend=backend) as client:
        first = await client.send('hello')
        second = await client.send(answer_to(first, 'Rome'))
    async with serving(clerk_agent(), backend=backend) as client:
        assert (await error_of_call(client.send(answer_to(first)))).code == -32004
        assert texts(await client.send(answer_to(second, 'No. 7'))) == ['hello + Rome + No. 7']


async def test_message_with_question_without_task_is_refused() -> None:
    async with serving(clerk_agent()) as client:
        error = await error_of_call(client.send(named('q')))
    assert (error.code, 'that waits for this answer' in error.message) == (-32602, True)


@each_case('question', [None, 7, ['q'], {'id': 'q'}])
async def test_name_of_question_must_be_text(question: Any) -> None:
    async with serving(clerk_agent()) as client:
        task = await client.send('hello')
        error = await error_of_call(client.send(named(question, taskId=task['id'])))
        assert (error.code, 'must be the messageId of the status message' in error.message) == (-32602, True)
        assert await client.get_task(task['id']) == task


@each_case('metadata', [{PENDING_CALLS_URI: {}}, {PENDING_CALLS_URI: 'q'}])
async def test_answer_naming_no_question_answers_current_question(metadata: dict[str, Any]) -> None:
    async with serving(clerk_agent()) as client:
        task = await client.send('hello')
        for text in ('Rome', 'No. 7'):
            task = await client.send(message(text, taskId=task['id'], metadata=metadata))
    assert texts(task) == ['hello + Rome + No. 7']


async def test_answer_to_foreign_question_is_not_found() -> None:
    async with serving(clerk_agent(), auth=caller_from_header) as client:
        task = await client_of_caller(client.app, 'ann').send('hello')
        error = await error_of_call(client_of_caller(client.app, 'eve').send(answer_to(task)))
    assert error.code == -32001


async def test_text_answer_to_call_names_its_question() -> None:
    async with serving(ApprovalAgent().agent) as client:
        first = await client.send('ask')
        asked = await client.send(message('ask', contextId=first['contextId']))
        error = await error_of_call(client.send(named(first['status']['message']['messageId'], taskId=asked['id'])))
        assert error.code == -32004
        assert state_of(await client.send(answer_to(asked))) == 'COMPLETED'


async def test_call_answers_ignore_question_in_metadata() -> None:
    agent = ApprovalAgent()
    async with serving(agent.agent) as client:
        task = await client.send('delete two')
        await client.send(answer_message(task, approve('c1')))
        named_earlier = named(task['status']['message']['messageId'])['metadata']
        await client.send(answer_message(task, approve('c2'), metadata=named_earlier))
    assert [path for path, _ in agent.deleted] == ['a', 'b']


async def test_approver_text_must_name_question_of_view() -> None:
    agent = ApprovalAgent()
    approvals = Approvals(approvers='approve', plain_text_answers='all')
    async with serving(agent.agent, auth=caller_from_header, approvals=approvals) as client:
        ann, bob, eve = (
            client_of_caller(client.app, name, scopes=scopes)
            for name, scopes in (('ann', ''), ('bob', 'approve'), ('eve', 'approve'))
        )
        task = await ann.send('delete')
        views = [await approver.get_task(task['id']) for approver in (bob, eve)]
        error = await error_of_call(bob.send(named('another', 'yes', taskId=task['id'])))
        assert (error.code, 'input-required, and no longer asks' in error.message) == (-32004, True)
        await bob.send(answer_to(views[0], 'yes'))
        error = await error_of_call(eve.send(answer_to(views[1], 'no')))
        assert error.code == -32004
        await wait_until_ended(ann, task['id'])
    assert agent.deleted == [('a', True)]


async def test_text_of_approver_answers_no_later_pause() -> None:
    approvals = Approvals(approvers='approve', plain_text_answers='all')
    async with serving(ApprovalAgent().agent, auth=caller_from_header, approvals=approvals) as client:
        ann, bob = client_of_caller(client.app, 'ann'), client_of_caller(client.app, 'bob', scopes='approve')
        task = await ann.send('delete two')
        view = await bob.get_task(task['id'])
        await bob.send(answer_message(view, approve('c1')))
        error = await error_of_call(bob.send(answer_to(view, 'no')))
        assert error.code == -32004
        assert pending_call_ids(await bob.get_task(task['id'])) == ['c2']


async def test_custom_storage_refuses_answer_to_earlier_question() -> None:
    async with serving(clerk_agent(), storage=InMemoryStorage()) as client:
        first = await client.send('hello')
        second = await client.send(answer_to(first, 'Rome'))
        assert (await error_of_call(client.send(answer_to(first)))).code == -32004
        assert texts(await client.send(answer_to(second, 'No. 7'))) == ['hello + Rome + No. 7']


async def test_streamed_answer_to_earlier_question_is_refused() -> None:
    async with serving(clerk_agent()) as client:
        first = await client.send('hello')
        await client.send(answer_to(first, 'Rome'))
        error = await error_of_call(first_event(client, answer_to(first)))
    assert (error.code, 'no longer asks the question' in error.message) == (-32004, True)


async def first_event(client: Client, sent: dict[str, Any]) -> Any:
    async with client.send_streaming(sent) as stream:
        return await anext(stream)
