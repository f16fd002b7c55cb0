"""Answers to what a client has seen in an earlier pause: none decides about the call that waits now."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, ToolOutput
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Approvals, AuthRequired, Caller, InputRequired, Progress, Results, WaitingTask, to_a2a
from pydantic_ai_a2a.server.service.approvers import ApproverAccess
from pydantic_ai_a2a.types.service_calls import Call
from pydantic_ai_a2a.types.stored_tasks import StoredTask, TaskHeader

from ...agents import scripted_model, user_prompts
from ...app_client import Client, RpcError, lifespan, message, state_of, texts
from ...cases import each_case
from ...serving import serving, wait_until_ended
from ..callers import caller_from_header, client_of_caller
from ..pending_calls import DEFERRED_ROW, ApprovalAgent, answer_message, approve, pending_call_ids, pending_calls
from ..promised_behaviours import covering
from ..refusals import error_of_call

pytestmark = covering(DEFERRED_ROW)

SMALL, LARGE = 'pay {"cents":5}', 'pay {"cents":1000000}'
CALL = 'local-1'
"""The id that the model gives to each of its calls."""
DENY = {'id': CALL, 'decision': 'deny'}


class Cashier:
    """An agent that wants to pay 5 cents, and then a million, in calls with one id; other tools may come before."""

    def __init__(self, *before: str, signs_in: bool = False) -> None:
        self.paid: list[int] = []
        self.calls: set[str | None] = set()
        self._before, self._signs_in = before, signs_in
        self.agent: Agent[object, Any] = Agent(FunctionModel(self._answer))
        self.agent.tool(requires_approval=True)(self.pay)
        self.agent.tool_plain(self.ask)

    def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = [part for sent in messages for part in sent.parts if isinstance(part, ToolReturnPart)]
        calls: list[tuple[str, dict[str, Any]]] = [
            *((name, {}) for name in self._before),
            ('pay', {'cents': 5}),
            ('pay', {'cents': 1_000_000}),
        ]
        if len(returned) == len(calls):
            return ModelResponse(parts=[TextPart(' + '.join(str(part.content) for part in returned))])
        name, args = calls[len(returned)]
        return ModelResponse(parts=[ToolCallPart(name, args, CALL)])

    async def pay(self, ctx: RunContext[object], cents: int) -> str:
        self.calls.add(ctx.tool_call_id)
        if self._signs_in:
            self._signs_in = False
            raise AuthRequired('Sign in.')
        self.paid.append(cents)
        return f'paid {cents}'

    async def ask(self) -> str:
        raise InputRequired('Whom shall I pay?')


def with_approvers(limit: int = 1_000_000, **options: Any) -> dict[str, Any]:
    """Options of a server where bob approves everything, and eve payments up to a limit."""

    def rule(caller: Caller, task: WaitingTask) -> bool:
        largest = max(((call.args or {}).get('cents', 0) for call in task.calls), default=0)
        return caller.id == 'bob' or (caller.id == 'eve' and largest <= limit)

    return {'auth': caller_from_header, 'approvals': Approvals(approvers=rule, **options)}


async def next_pause(client: Client, sent: dict[str, Any]) -> None:
    """Send a message to a task, and wait until the task waits again or has ended."""
    before = await last_event(client, sent['taskId'])
    await client.send(sent, returnImmediately=True)
    await client.a2a_app.backend.events.wait(sent['taskId'], before)


async def last_event(client: Client, task_id: str) -> int:
    """The number of the newest event of a task."""
    task = await client.a2a_app.backend.reader.load(task_id, None, history_length=0)
    assert task is not None
    return task.header.last_event


async def test_stale_answer_of_an_approver_is_refused() -> None:
    cashier = Cashier()
    async with serving(cashier.agent, **with_approvers()) as client:
        ann, bob, eve = (client_of_caller(client.app, name) for name in ('ann', 'bob', 'eve'))
        task = await ann.send('pay')
        seen = await eve.get_task(task['id'])
        assert pending_calls(seen) == [{**call, 'decidedBy': 'caller'} for call in pending_calls(task)]
        await next_pause(bob, answer_message(task, approve(CALL)))
        assert (cashier.paid, cashier.calls) == ([5], {CALL})
        waiting = await eve.get_task(task['id'])
        assert (pending_call_ids(waiting), pending_calls(waiting)[0]['text']) == ([CALL], f'May I call {LARGE}?')
        for sent in (
            answer_message(seen, approve(CALL)),
            answer_message(seen, DENY),
            message('yes', taskId=task['id']),
        ):
            error = await error_of_call(eve.send(sent))
            assert (error.code, cashier.paid) == (-32602, [5])
            if 'data' in sent['parts'][0]:
                assert error.fields == ['message.parts[0].data.callAnswers[0].id']
                assert (
                    f'Now the task waits with: May I call {LARGE}? (id {pending_calls(waiting)[0]["id"]})'
                    in error.message
                )
        await eve.send(answer_message(waiting, approve(CALL)))
        assert texts(await wait_until_ended(ann, task['id'])) == ['paid 5 + paid 1000000']


async def test_stale_answer_of_a_client_is_refused() -> None:
    cashier = Cashier()
    async with serving(cashier.agent) as client:
        task = await client.send('pay')
        waiting = await client.send(answer_message(task, approve(CALL)))
        error = await error_of_call(client.send(answer_message(task, approve(CALL))))
        assert (LARGE in error.message, cashier.paid) == (True, [5])
        assert await client.get_task(task['id']) == waiting
        old = await error_of_call(
            client.send(message(parts=[{'data': {'callAnswers': [approve(CALL)]}}], taskId=task['id']))
        )
        assert (old.message, cashier.paid) == (error.message, [5])
        assert texts(await client.send(answer_message(waiting, DENY))) == ['paid 5 + The tool call was denied.']


async def test_stale_answer_error_omits_hidden_arguments() -> None:
    cashier = Cashier()
    async with serving(cashier.agent, **with_approvers(hide_arguments=['pay'])) as client:
        ann, bob = (client_of_caller(client.app, name) for name in ('ann', 'bob'))
        task = await ann.send('pay')
        await next_pause(bob, answer_message(task, approve(CALL)))
        error = await error_of_call(bob.send(answer_message(task, approve(CALL))))
    assert ('May I call pay?' in error.message, '1000000' in str((error.message, error.data))) == (True, False)


async def test_approver_of_earlier_call_gets_task_not_found() -> None:
    cashier = Cashier()
    async with serving(cashier.agent, **with_approvers(10)) as client:
        ann, bob, eve = (client_of_caller(client.app, name) for name in ('ann', 'bob', 'eve'))
        task = await ann.send('pay')
        seen = await eve.get_task(task['id'])
        await next_pause(bob, answer_message(task, approve(CALL)))
        error = await error_of_call(eve.send(answer_message(seen, approve(CALL))))
    assert (error.code, '1000000' in error.message, cashier.paid) == (-32001, False, [5])


async def test_decision_response_hides_call_of_next_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    cashier = Cashier()
    async with serving(cashier.agent, **with_approvers(limit=10)) as client:
        ann, eve = (client_of_caller(client.app, name) for name in ('ann', 'eve'))
        task = await ann.send('pay')
        seen = await eve.get_task(task['id'])
        view_of = ApproverAccess.view_of

        async def late_view(access: ApproverAccess, call: Call, header: TaskHeader, *rest: Any) -> StoredTask:
            await client.a2a_app.backend.events.wait(header.id, header.last_event)
            return await view_of(access, call, header, *rest)

        monkeypatch.setattr(ApproverAccess, 'view_of', late_view)
        decided = await eve.send(answer_message(seen, approve(CALL)))
        assert (cashier.paid, 'message' in decided['status']) == ([5], False)
        assert pending_calls(await ann.get_task(task['id']))[0]['text'] == f'May I call {LARGE}?'


async def test_late_owner_answer_error_names_pending_call() -> None:
    cashier = Cashier('ask')
    async with serving(cashier.agent, **with_approvers()) as client:
        ann = client_of_caller(client.app, 'ann')
        task = await ann.send('pay')
        sent = [answer_message(task, {'id': CALL, 'decision': 'result', 'result': name}) for name in ('Joe', 'Jim')]
        waiting = await ann.send(sent[0])
        error = await error_of_call(ann.send(sent[1]))
        assert (error.code, SMALL in error.message) == (-32602, True)
        assert (await error_of_call(ann.send(answer_message(waiting, approve(CALL))))).code == -32000
        bob = await error_of_call(client_of_caller(client.app, 'bob').send(sent[1]))
        assert (bob.code, SMALL in bob.message, cashier.paid) == (-32602, True, [])


async def test_stale_answer_error_hides_owner_questions_from_approvers() -> None:
    agent = ApprovalAgent().agent
    async with serving(agent, **with_approvers()) as client:
        ann, bob = (client_of_caller(client.app, name) for name in ('ann', 'bob'))
        task = await ann.send('mixed')
        error = await error_of_call(bob.send(answer_message(task, approve('another'))))
        assert ('delete {"path":"b"}' in error.message, 'size' in error.message) == (True, False)
        owner = await error_of_call(ann.send(answer_message(task, approve('another'))))
        assert ('delete {"path":"b"}' in owner.message, 'size' in owner.message) == (True, True)


@each_case('parts', [[{'text': 'yes'}], [{'data': {'callAnswers': [{'id': CALL, 'decision': 'approve'}]}}]])
async def test_overtaken_approver_does_not_learn_owner_question(parts: list[Any]) -> None:
    """The task goes on, and asks its owner, while the rule still decides about the approver."""
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def rule(caller: Caller, _: WaitingTask) -> bool:
        if caller.id == 'eve':
            begun.set()
            await goes_on.wait()
        return caller.id in ('bob', 'eve')

    def whom() -> InputRequired:
        return InputRequired('Whom did I pay?', {'type': 'string', 'enum': ['Joe', 'Jim']})

    model = scripted_model(ToolCallPart('pay', {'cents': 5}, CALL), ToolCallPart('whom', {}))
    agent: Agent[object, Any] = Agent(model, output_type=ToolOutput(whom, name='whom'))
    agent.tool(requires_approval=True)(Cashier().pay)
    async with serving(agent, auth=caller_from_header, approvals=Approvals(approvers=rule)) as client:
        ann, bob, eve = (client_of_caller(client.app, name) for name in ('ann', 'bob', 'eve'))
        task = await ann.send('pay')
        overtaken = asyncio.create_task(error_of_call(eve.send(message(parts=parts, taskId=task['id']))))
        await begun.wait()
        await next_pause(bob, answer_message(task, approve(CALL)))
        assert 'Whom did I pay?' in str(await ann.get_task(task['id']))
        goes_on.set()
        error = await overtaken
    told = str((error.message, error.data))
    assert (error.code, 'Whom' in told, 'Joe' in told) == (-32004, False, False)


async def test_second_decision_says_call_was_already_decided() -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent, **with_approvers()) as client:
        ann, bob, eve = (client_of_caller(client.app, name) for name in ('ann', 'bob', 'eve'))
        task = await ann.send('delete two')
        await bob.send(answer_message(task, approve('c1')))
        error = await error_of_call(eve.send(answer_message(task, {'id': 'c1', 'decision': 'deny'})))
        assert (error.code, 'is of a call that was decided before' in error.message) == (-32602, True)
        assert ('{"path":"b"}' in error.message, '{"path":"a"}' in error.message) == (True, False)
        await eve.send(answer_message(task, approve('c2')))
        error = await error_of_call(bob.send(answer_message(task, approve('c2'))))
        assert (error.code, 'another caller has decided' in error.message) == (-32004, True)
        await wait_until_ended(ann, task['id'])
    assert tools.deleted == [('a', True), ('b', True)]


async def test_pending_call_ids_stay_the_same_during_pause() -> None:
    async with serving(ApprovalAgent().agent) as client:
        task = await client.send('mixed')
        ids = {call['toolCallId']: call['id'] for call in pending_calls(task)}
        assert (len({*ids.values()}), {*ids} & {*ids.values()}) == (4, set())
        first = answer_message(task, approve('c1'))
        for _ in range(2):
            half = await client.send(first)
            assert {call['toolCallId']: call['id'] for call in pending_calls(half)} == {
                call_id: ids[call_id] for call_id in ('x1', 'q1', 'c2')
            }
        results = [{'id': call_id, 'decision': 'result', 'result': 'page'} for call_id in ('x1', 'q1')]
        last = await client.send(answer_message(task, *results))
        again = await client.send(message('perhaps', taskId=task['id']))
        assert (
            [call['id'] for call in pending_calls(again)] == [call['id'] for call in pending_calls(last)] == [ids['c2']]
        )
        other = await client.send('mixed')
        assert {call['id'] for call in pending_calls(other)}.isdisjoint(ids.values())


# --- what keeps the id of the call ------------------------------------------------------------------------------------


async def test_edited_arguments_survive_a_sign_in() -> None:
    cashier = Cashier(signs_in=True)
    async with serving(cashier.agent) as client:
        task = await client.send('pay')
        signing_in = await client.send(answer_message(task, approve(CALL, args={'cents': 4})))
        [call] = pending_calls(signing_in)
        assert (state_of(signing_in), call['args'], call['toolCallId']) == ('AUTH_REQUIRED', {'cents': 4}, CALL)
        error = await error_of_call(client.send(answer_message(task, approve(CALL))))
        assert ('Now the task waits with: Sign in.' in error.message, cashier.paid) == (True, [])
        waiting = await client.send(message('I have signed in', taskId=task['id']))
        assert (state_of(waiting), cashier.paid, cashier.calls) == ('INPUT_REQUIRED', [4], {CALL})
        ids = [pending_calls(paused)[0]['id'] for paused in (task, signing_in, waiting)]
        assert len({CALL, *ids}) == 4


async def test_progress_keeps_the_tool_call_id() -> None:
    progress = Results(progress=Progress(tools=True))
    async with serving(Cashier().agent, results=progress) as client:
        task = await client.send('pay')
        async with client.send_streaming(answer_message(task, approve(CALL))) as stream:
            events = [event.result['statusUpdate']['status'] for event in (await stream.rest())[1:]]
    steps = [sent['message']['metadata'] for sent in events if 'metadata' in sent.get('message', {})]
    assert [step['toolCallId'] for step in steps] == [*pending_call_ids(task), CALL]


# --- words ------------------------------------------------------------------------------------------------------------


@each_case('words', ['all', ['pay']])
async def test_with_approvers_plain_text_approves_only_first_pause(words: Any) -> None:
    cashier = Cashier()
    async with serving(cashier.agent, **with_approvers(plain_text_answers=words)) as client:
        ann, bob, eve = (client_of_caller(client.app, name) for name in ('ann', 'bob', 'eve'))
        task = await ann.send('pay')
        first = await eve.get_task(task['id'])
        await next_pause(bob, message('yes', taskId=task['id']))
        error = await error_of_call(eve.send(message('yes', taskId=task['id'])))
        assert (error.code, error.fields, cashier.paid) == (-32602, ['message.parts'], [5])
        said = [
            read['status']['message']['parts'][0]['text'].splitlines()[1]
            for read in (first, await eve.get_task(task['id']), await ann.get_task(task['id']))
        ]
        assert ['Write "yes" to approve' in line for line in said] == [True, False, False]
        assert said[1] == said[2]
        assert 'Plain words cannot approve it' in said[1]
        await eve.send(message('no: too much', taskId=task['id']))
        assert texts(await wait_until_ended(ann, task['id'])) == ['paid 5 + too much']


async def test_with_approvers_plain_text_never_approves_later_turns() -> None:
    """The turn of the first pause has ended, and the message begins another turn of the same task."""
    pays, release = asyncio.Event(), asyncio.Event()
    paid: list[int] = []

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse(parts=[TextPart('paid')])
        return ModelResponse(parts=[ToolCallPart('pay', {'cents': int(user_prompts(messages)[-1])}, CALL)])

    agent: Agent[object, Any] = Agent(FunctionModel(answer))

    @agent.tool_plain(requires_approval=True)
    async def pay(cents: int) -> str:
        pays.set()
        await release.wait()
        paid.append(cents)
        return 'paid'

    async with serving(agent, **with_approvers(plain_text_answers='all')) as client:
        ann, bob, eve = (client_of_caller(client.app, name) for name in ('ann', 'bob', 'eve'))
        task = await ann.send('5')
        await bob.send(message('yes', taskId=task['id']))
        await pays.wait()
        await ann.send(message('6', taskId=task['id']), returnImmediately=True)
        async with ann.subscribe(task['id']) as events:
            release.set()
            async for event in events:
                if 'INPUT_REQUIRED' in str(event.result):
                    break
        error = await error_of_call(eve.send(message('yes', taskId=task['id'])))
    assert (error.code, error.fields, paid) == (-32602, ['message.parts'], [5])


async def test_with_approvers_plain_text_never_approves_after_questions() -> None:
    cashier = Cashier('ask')
    async with serving(cashier.agent, **with_approvers(plain_text_answers='all')) as client:
        ann, bob = (client_of_caller(client.app, name) for name in ('ann', 'bob'))
        task = await ann.send(message('Joe', taskId=(await ann.send('pay'))['id']))
        error = await error_of_call(bob.send(message('yes', taskId=task['id'])))
        assert (error.code, cashier.paid) == (-32602, [])


async def test_without_approvers_plain_text_approves_in_every_pause() -> None:
    cashier = Cashier()
    async with serving(cashier.agent, approvals=Approvals(plain_text_answers='all')) as client:
        task = await client.send('pay')
        await client.send(message('yes', taskId=task['id']))
        await client.send(message('yes', taskId=task['id']))
    assert cashier.paid == [5, 1_000_000]


async def test_plain_text_off_refuses_denials_in_later_pauses() -> None:
    cashier = Cashier()
    async with serving(cashier.agent, **with_approvers(plain_text_answers='none')) as client:
        ann, bob = (client_of_caller(client.app, name) for name in ('ann', 'bob'))
        task = await ann.send('pay')
        await next_pause(bob, answer_message(task, approve(CALL)))
        with pytest.raises(RpcError, match='Plain words cannot answer this'):
            await bob.send(message('no', taskId=task['id']))


# --- tasks of an earlier version of the package, and tasks that go back to one ----------------------------------------


def as_stored_by_earlier_version(path: Path) -> None:
    """Take from the stored calls what an earlier version of the package neither writes nor reads."""
    with closing(sqlite3.connect(path)) as connection, connection:
        [(body,)] = connection.execute('SELECT pending FROM task').fetchall()
        pending = json.loads(body)
        for call in pending['calls']:
            del call['answer_id']
        connection.execute('UPDATE task SET pending = ?', (json.dumps(pending).encode(),))


async def test_task_of_earlier_version_accepts_old_call_ids(tmp_path: Path) -> None:
    cashier, url = Cashier(), f'sqlite:///{tmp_path}/agent.db?synchronous=normal'
    async with serving(cashier.agent, backend=url, name='cashier', **with_approvers()) as client:
        task = await client_of_caller(client.app, 'ann').send('pay')
    as_stored_by_earlier_version(tmp_path / 'agent.db')
    async with serving(cashier.agent, backend=url, name='cashier', **with_approvers()) as client:
        ann, bob, eve = (client_of_caller(client.app, name) for name in ('ann', 'bob', 'eve'))
        old = message(parts=[{'data': {'callAnswers': [approve(CALL)]}}], taskId=task['id'])
        assert [call['id'] for call in pending_calls(await eve.get_task(task['id']))] == [CALL]
        assert (await error_of_call(bob.send(answer_message(task, approve(CALL))))).fields == [
            'message.parts[0].data.callAnswers[0].id'
        ]
        await next_pause(bob, old)
        again = await error_of_call(eve.send({**old, 'messageId': 'a message of eve'}))
        assert (LARGE in again.message, cashier.paid) == (True, [5])
        await bob.send(answer_message(await bob.get_task(task['id']), DENY))
        await wait_until_ended(ann, task['id'])


async def test_answered_task_runs_on_an_earlier_version(tmp_path: Path) -> None:
    cashier, url = Cashier(), f'sqlite:///{tmp_path}/agent.db?synchronous=normal'
    async with serving(cashier.agent, backend=url, name='cashier') as client:
        task = await client.send('pay')
    app = to_a2a(cashier.agent, backend=url, name='cashier')
    app.hosting.runs_tasks = False
    async with lifespan(app):
        client = Client(app)
        await client.send(answer_message(task, approve(CALL, args={'cents': 4})), returnImmediately=True)
        before = await last_event(client, task['id'])
    as_stored_by_earlier_version(tmp_path / 'agent.db')
    async with serving(cashier.agent, backend=url, name='cashier') as client:
        await client.a2a_app.backend.events.wait(task['id'], before)
    assert cashier.paid == [4]
