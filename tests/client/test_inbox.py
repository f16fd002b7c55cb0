"""The inbox of a client: what waits for the caller, at servers of this package and at others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart

from pydantic_ai_a2a import A2AClient, AuthRequired, Caller, RemoteResult, WaitingTask, to_a2a
from pydantic_ai_a2a.errors import RemoteProtocolError, TaskNotFoundError, UnsupportedOperationError
from pydantic_ai_a2a.wire.extensions.pending_calls_extension import PENDING_CALLS

from ..agents import model_that_calls
from ..behaviour.pending_calls import ApprovalAgent
from ..bounds import LIMIT
from .agents.canned_tasks import DONE, pending_call, task_waiting_with
from .canned_agent import CARD, WORKING, CannedAgent, canned_client, error_response, list_response, result_response
from .servers import SERVERS, ServerKind, client_of, clients_of_approvers

OWN_CARD = {**CARD, 'capabilities': {'extensions': [PENDING_CALLS]}}
Rule = Callable[[Caller, WaitingTask], bool]


def listed(*tasks: tuple[str, int], token: str = '', state: str = 'INPUT_REQUIRED') -> Any:
    """A page of waiting tasks, by their ids and the day of their status."""
    page = [
        {
            'id': name,
            'contextId': 'c',
            'status': {'state': f'TASK_STATE_{state}', 'timestamp': f'2026-01-01T00:0{at}:00Z'},
        }
        for name, at in tasks
    ]
    return list_response(*page, token=token)


async def inbox_of(client: A2AClient) -> list[RemoteResult]:
    return [result async for result in client.inbox()]


async def ids_of(client: A2AClient) -> list[str]:
    return [result.task_id for result in await inbox_of(client)]


async def test_inbox_merges_pages_of_both_states() -> None:
    canned = CannedAgent(
        listed(('a', 9), ('b', 5), token='input'),
        listed(token='auth'),  # a page may be empty
        listed(('c', 7), state='AUTH_REQUIRED'),
        listed(('a', 4), ('d', 1), token='more'),
        listed(),
    )
    async with canned_client(canned) as client:
        assert await ids_of(client) == ['a', 'c', 'b', 'd']
    assert [(page['status'], page.get('pageToken')) for page in canned.params] == [
        ('TASK_STATE_INPUT_REQUIRED', None),
        ('TASK_STATE_AUTH_REQUIRED', None),
        ('TASK_STATE_AUTH_REQUIRED', 'auth'),
        ('TASK_STATE_INPUT_REQUIRED', 'input'),
        ('TASK_STATE_INPUT_REQUIRED', 'more'),
    ]


@pytest.mark.parametrize(('card', 'whole'), [(OWN_CARD, False), (CARD, True)], ids=['own', 'other'])
async def test_inbox_asks_other_servers_for_whole_tasks(card: Any, whole: bool) -> None:
    canned = CannedAgent(listed(), card=card)
    async with canned_client(canned) as client:
        assert await inbox_of(client) == []
    for params in canned.params:
        assert params.get('includeArtifacts', False) is whole
        assert ('historyLength' in params) is not whole


async def test_inbox_leaves_out_working_task() -> None:
    canned = CannedAgent(listed(('a', 1), state='WORKING'), listed())
    async with canned_client(canned) as client:
        assert await inbox_of(client) == []


def guarded_call(**fields: Any) -> dict[str, Any]:
    """An approval that only an approver can give."""
    return pending_call('approval', id='guarded', tool='pay', text='Pay?', decidedBy='approver', **fields)


async def test_inbox_leaves_out_calls_decided_by_approver() -> None:
    question = pending_call('question', id='q', tool='ask', text='Which size?')
    page = [
        {**task_waiting_with(pending=[guarded_call()]), 'id': 'guarded'},
        {**task_waiting_with(pending=[guarded_call(), question]), 'id': 'mixed'},
        {**task_waiting_with(pending=[{**guarded_call(), 'decidedBy': 'caller'}]), 'id': 'approver'},
    ]
    canned = CannedAgent(list_response(*page), listed(), result_response({'task': DONE}), card=OWN_CARD)
    async with canned_client(canned) as client:
        mixed, own = await inbox_of(client)
        assert (mixed.task_id, mixed.text, [call['id'] for call in mixed.pending]) == ('mixed', 'Which size?', ['q'])
        assert (own.task_id, [call.get('decidedBy') for call in own.pending]) == ('approver', ['caller'])
        await mixed.answer('small')
    [part] = canned.messages[-1]['parts']
    assert part['data'] == {'callAnswers': [{'id': 'q', 'decision': 'result', 'result': 'small'}]}


async def test_inbox_has_task_with_broken_question() -> None:
    twice = [pending_call('approval', id='x'), pending_call('approval', id='x')]
    broken = {**task_waiting_with(pending=twice), 'id': 'broken'}
    canned = CannedAgent(list_response(broken), listed(('a', 1)))
    async with canned_client(canned) as client:
        found = await inbox_of(client)
        assert {result.task_id for result in found} == {'broken', 'a'}
        with pytest.raises(RemoteProtocolError, match='two calls of the same id'):
            _ = next(result for result in found if result.task_id == 'broken').pending


@pytest.mark.parametrize('peer', [pytest.param(peer, id=name) for name, peer in SERVERS.items()])
async def test_inbox_needs_server_with_task_lists(peer: ServerKind) -> None:
    async with client_of(peer) as (client, _):
        if peer.lists:
            assert await inbox_of(client) == []
            return
        with pytest.raises(UnsupportedOperationError):
            await inbox_of(client)


async def test_inbox_with_storage_of_user_is_refused() -> None:
    agent = Agent('test', name='keeper')
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(agent, storage=InMemoryStorage())) as client:
        with pytest.raises(UnsupportedOperationError, match='storage'):
            await inbox_of(client)


# --- at a server of this package ------------------------------------------------------------------------------------


def only_bob(caller: Caller, task: WaitingTask) -> bool:
    return caller.id == 'bob' and bool(task.calls)


@pytest.mark.parametrize('rule', ['approve', only_bob], ids=['scope', 'function'])
@pytest.mark.parametrize('binding', ['JSONRPC', 'HTTP+JSON', 'GRPC'])
async def test_approver_decides_foreign_tasks_from_inbox(rule: str | Rule, binding: str) -> None:
    keeper = ApprovalAgent()
    async with clients_of_approvers(keeper.agent, approvers=rule, binding=binding) as (ann, bob, _):
        tasks = [(await ann.send('delete', context_id=f'secret {n}')).task_id for n in range(2)]
        own = (await bob.send('ask')).task_id
        found = await inbox_of(bob)
        assert [result.task_id for result in found] == [own, *reversed(tasks)]
        assert [result.context_id for result in found[1:]] == [result.task_id for result in found[1:]]
        await found[0].answer('small')
        await found[1].approve()
        await found[2].deny('Keep it.')
        assert await inbox_of(bob) == []
        ends = [[update.result async for update in ann.subscribe(task_id)][-1] for task_id in tasks]
    assert [end.text for end in ends] == ['delete + Keep it.', 'delete + deleted a']
    assert keeper.deleted == [('a', True)]


async def test_approval_returns_last_state_visible_to_approver() -> None:
    async with clients_of_approvers(ApprovalAgent().agent, approvers=only_bob) as (ann, bob, _):
        task_id = (await ann.send('delete')).task_id
        [result] = await inbox_of(bob)
        decided = await result.approve()
        assert (decided.task_id, decided.state) == (task_id, 'working')
        with pytest.raises(TaskNotFoundError):
            await bob.get(task_id)


async def test_second_approver_gets_error_about_earlier_decision() -> None:
    async with clients_of_approvers(ApprovalAgent().agent, approvers='approve') as (ann, bob, eve):
        await ann.send('delete')
        [first], [second] = await inbox_of(bob), await inbox_of(eve)
        await first.approve()
        with pytest.raises(UnsupportedOperationError, match='another caller has decided'):
            await second.approve()


async def test_task_waiting_again_is_in_next_inbox() -> None:
    async with clients_of_approvers(ApprovalAgent().agent, approvers='approve') as (ann, bob, _):
        await ann.send('delete two')
        async for result in bob.inbox():
            again = await result.approve(call_id=result.pending[0]['id'])
            assert again.state == 'input-required'
        assert len(await inbox_of(bob)) == 1


async def test_inbox_lists_sign_in_and_external_call_of_caller() -> None:
    agent = ApprovalAgent().agent
    signed_in = list[bool]()

    mailer = Agent(model_that_calls([ToolCallPart('mail', {}, 'm')]), name='mailer')

    @mailer.tool_plain
    def mail() -> str:
        if not signed_in:
            raise AuthRequired('Please sign in.')
        return 'Lunch?'

    async with clients_of_approvers(mailer) as (ann, bob, _):
        await ann.send('Read my mail.')
        assert await inbox_of(bob) == []
        [result] = await inbox_of(ann)
        assert (result.state, result.text) == ('auth-required', 'Please sign in.')
        signed_in.append(True)
        assert (await result.approve()).text == 'Lunch?'
    async with clients_of_approvers(agent) as (ann, _, _):
        await ann.send('fetch')
        [result] = await inbox_of(ann)
        assert (await result.answer('the page')).text == 'fetch + the page'


async def test_erased_task_is_not_found_while_followed() -> None:
    canned = CannedAgent(result_response({'task': WORKING}), error_response(-32001, 'Gone.'))
    async with canned_client(canned) as client:
        with pytest.raises(TaskNotFoundError):
            await client.send('hello')
