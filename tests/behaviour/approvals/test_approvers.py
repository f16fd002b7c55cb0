"""Approvers: who may decide about a call of somebody else's task, and what an approver sees of the task."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Collection
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Access, Approvals, AuthRequired, Caller, Push, WaitingTask, to_a2a
from pydantic_ai_a2a.server.agent.call_context import CallContext

from ...agents import scripted_model, user_prompts
from ...app_client import Client, RpcError, lifespan, message, state_of, texts
from ...dialects import current_dialect
from ...logs import audit_records
from ...serving import wait_until_ended
from ...webhooks import webhook
from ..callers import caller_from_header, client_of_caller
from ..pending_calls import DEFERRED_ROW, ApprovalAgent, answer_message, approve, pending_call_ids, pending_calls
from ..promised_behaviours import covering

pytestmark = covering(DEFERRED_ROW)

DENY = {'id': 'c1', 'decision': 'deny', 'reason': 'Too much.'}


def client_of_ann(app: Any, scopes: str = '') -> Client:
    return client_of_caller(app, 'ann', scopes=scopes)


def client_of_boss(app: Any, name: str = 'boss', scopes: str = 'approve') -> Client:
    return client_of_caller(app, name, scopes=scopes)


def app_with_approvers(agent: Agent[Any, Any], **options: Any) -> Any:
    return to_a2a(
        agent, auth=caller_from_header, approvals=options.pop('approvals', Approvals(approvers='approve')), **options
    )


def text_to(text: str, task: dict[str, Any]) -> dict[str, Any]:
    return message(text, taskId=task['id'])


async def _read(stream: Any) -> None:
    async with stream:
        pass


async def refused(client: Client, sent: dict[str, Any], *, streamed: bool = False) -> tuple[int, str]:
    with pytest.raises(RpcError) as error:
        await (_read(client.send_streaming(sent)) if streamed else client.send(sent))
    return error.value.code, error.value.message


@pytest.mark.parametrize('streamed', [False, True])
async def test_caller_cannot_decide_its_own_call(streamed: bool) -> None:
    tools = ApprovalAgent()
    app = app_with_approvers(tools.agent, approvals=Approvals(approvers='approve', plain_text_answers='all'))
    async with lifespan(app):
        task = await client_of_ann(app).send('delete')
        before = await client_of_ann(app).get_task(task['id'])
        assert 'Only an approver can decide.' in task['status']['message']['parts'][0]['text']
        for sent in (
            answer_message(task, approve()),
            answer_message(task, DENY),
            text_to('yes', task),
            text_to('no', task),
        ):
            code, text = await refused(client_of_ann(app), sent, streamed=streamed)
            assert (code, 'An approver decides about approvals' in text) == (-32000, True)
        assert await client_of_ann(app).get_task(task['id']) == before
    assert tools.deleted == []


async def test_approver_decides_and_sees_only_pending_calls() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    agent: Agent[Any, Any] = ApprovalAgent(deps_type=object).agent

    @agent.tool
    def look_around(ctx: RunContext[Any]) -> str:
        return ''

    def note(call: CallContext) -> None:
        seen.append((call.caller.id, dict(call.metadata)))

    app = app_with_approvers(agent, deps_factory=note)
    async with lifespan(app):
        secret = 'delete'
        sent = message(secret, contextId='secret of ann')
        task = (await client_of_ann(app).call('SendMessage', {'message': sent, 'metadata': {'trip': 7}}))['task']
        view = await client_of_boss(app).get_task(task['id'])
        assert (view['id'], view['contextId']) == (task['id'], task['id'])
        assert pending_calls(view) == [{**call, 'decidedBy': 'caller'} for call in pending_calls(task)]
        assert (view.get('history', []), view.get('artifacts', [])) == ([], [])
        assert 'secret' not in json.dumps(view)
        after = await client_of_boss(app).send(answer_message(task, approve()))
        assert (after['id'], after['contextId'], after.get('history', [])) == (task['id'], task['id'], [])
        assert 'message' not in after['status']
        done = await wait_until_ended(client_of_ann(app), task['id'])
        over = await client_of_boss(app).get_task(task['id'])
        assert (state_of(over), over.keys() <= {'id', 'contextId', 'status', 'kind', 'history'}) == ('COMPLETED', True)
        assert over['status'].keys() == {'state', 'timestamp'}
        with pytest.raises(RpcError, match='Task not found'):
            await client_of_caller(app, 'someone').get_task(task['id'])
    assert texts(done) == ['delete + deleted a']
    assert [part['metadata']['answeredBy'] for part in done['history'] if 'answeredBy' in part.get('metadata', {})] == [
        {'id': 'boss'}
    ]
    assert seen == [('ann', {'trip': 7})] * 2


@pytest.mark.parametrize('shown', [False, True])
async def test_show_caller_names_the_sender_to_approvers(shown: bool) -> None:
    approvals = Approvals(approvers='approve', show_caller=shown)
    app = app_with_approvers(
        ApprovalAgent().agent, approvals=approvals, access=Access(owner=lambda caller: f'team of {caller.id}')
    )
    async with lifespan(app):
        task = await client_of_ann(app).send('delete')
        view = await client_of_boss(app).get_task(task['id'])
        [data] = [part['data'] for part in view['status']['message']['parts'] if 'data' in part]
        assert data.get('askedBy') == ({'id': 'ann'} if shown else None)
        assert 'askedBy' not in json.dumps(task)


async def test_approver_stream_ends_with_the_decision() -> None:
    app = app_with_approvers(ApprovalAgent().agent)
    async with lifespan(app):
        task = await client_of_ann(app).send('delete')
        async with client_of_boss(app).send_streaming(answer_message(task, DENY)) as stream:
            [event] = await stream.rest()
        assert event.result['task'].keys() <= {'id', 'contextId', 'status', 'kind'}
        assert texts(await wait_until_ended(client_of_ann(app), task['id'])) == ['delete + Too much.']


@pytest.mark.parametrize('method', ['CancelTask', 'SubscribeToTask'])
async def test_approver_cannot_cancel_subscribe_or_list(method: str) -> None:
    app = app_with_approvers(ApprovalAgent().agent)
    async with lifespan(app):
        task = await client_of_ann(app).send('delete')
        client, subscribes = client_of_boss(app), method == 'SubscribeToTask'
        with pytest.raises(RpcError, match='approver reads the task with GetTask' if subscribes else 'Task not found'):
            await (_read(client.subscribe(task['id'])) if subscribes else client.call(method, {'id': task['id']}))
        if current_dialect().has_lists:
            assert (await client_of_boss(app).call('ListTasks'))['tasks'] == []
        assert state_of(await client_of_ann(app).get_task(task['id'])) == 'INPUT_REQUIRED'


async def test_owner_answers_questions_and_approver_decides_approvals() -> None:
    tools = ApprovalAgent()
    app = app_with_approvers(tools.agent)
    async with lifespan(app):
        task = await client_of_ann(app).send('mixed')
        view = await client_of_boss(app).get_task(task['id'])
        assert pending_call_ids(view) == ['c1', 'c2']
        code, _ = await refused(
            client_of_boss(app), answer_message(task, {'id': 'q1', 'decision': 'result', 'result': 'XL'})
        )
        assert code == -32000
        after = await client_of_boss(app).send(answer_message(task, approve()))
        assert pending_call_ids(after) == ['c2']
        task = await client_of_ann(app).send(
            answer_message(
                task,
                {'id': 'x1', 'decision': 'result', 'result': 'page'},
                {'id': 'q1', 'decision': 'result', 'result': 'XL'},
            )
        )
        assert (state_of(task), pending_call_ids(task)) == ('INPUT_REQUIRED', ['c2'])
        await client_of_boss(app).send(text_to('no', task))
        done = await wait_until_ended(client_of_ann(app), task['id'])
    assert tools.deleted == [('a', True)]
    assert texts(done) == ['mixed + page + deleted a + XL + The tool call was denied.']


@pytest.mark.parametrize('items', ['c1', [], ['c1'], [{'id': 7}], [{'id': 'c9'}]])
async def test_answers_naming_no_pending_call_are_refused(items: Any) -> None:
    app = app_with_approvers(ApprovalAgent().agent)
    async with lifespan(app):
        task = await client_of_ann(app).send('mixed')
        for client in (client_of_ann(app), client_of_boss(app)):
            code, _ = await refused(client, message(parts=[{'data': {'callAnswers': items}}], taskId=task['id']))
            assert code == -32602


async def test_unclear_plain_text_of_approver_repeats_question() -> None:
    app = app_with_approvers(ApprovalAgent().agent)
    async with lifespan(app):
        task = await client_of_ann(app).send('delete')
        view = await client_of_boss(app).send(text_to('perhaps', task))
        assert view['status']['message']['parts'][0]['text'].startswith('May I call delete')
        assert state_of(view) == 'INPUT_REQUIRED'
        code, _ = await refused(client_of_boss(app), text_to('yes', task))
        assert code == -32602


async def test_approvers_function_selects_approvers_per_task() -> None:
    asked_for: list[tuple[str, WaitingTask]] = []

    async def approvers(caller: Caller, task: WaitingTask) -> bool:
        asked_for.append((caller.id, task))
        return caller.id == 'bob' and any(call.tool == 'delete' for call in task.calls)

    app = app_with_approvers(ApprovalAgent().agent, approvals=Approvals(approvers=approvers))
    async with lifespan(app):
        task = await client_of_ann(app).send('delete')
        missing = await refused(client_of_boss(app), text_to('no', {'id': 'no-such-task'}))
        assert await refused(client_of_boss(app), answer_message(task, approve())) == missing
        assert (
            await refused(
                client_of_caller(app, 'bob', tenant='other', scopes='approve'), answer_message(task, approve())
            )
            == missing
        )
        assert (missing[0], {name for name, _ in asked_for}) == (-32001, {'boss'})
        await client_of_boss(app, 'bob').send(answer_message(task, approve()))
        await wait_until_ended(client_of_ann(app), task['id'])
    [(_, first)] = [call for call in asked_for if call[0] == 'boss']
    assert (first.id, first.owner, [(call.id, call.tool, call.args) for call in first.calls]) == (
        task['id'],
        Caller(id='ann'),
        [('c1', 'delete', {'path': 'a'})],
    )


async def test_owner_with_approver_scope_can_approve() -> None:
    app = app_with_approvers(ApprovalAgent().agent)
    async with lifespan(app):
        owner = client_of_ann(app, scopes='approve')
        task = await owner.send('delete')
        assert texts(await owner.send(answer_message(task, approve()))) == ['delete + deleted a']


async def test_second_decision_is_refused() -> None:
    tools = ApprovalAgent()
    app = app_with_approvers(tools.agent)
    async with lifespan(app):
        task = await client_of_ann(app).send('delete')
        first = answer_message(task, DENY)
        await client_of_boss(app).send(first)
        for sent in (answer_message(task, approve()), text_to('yes', task)):
            code, text = await refused(client_of_boss(app, 'other boss'), sent)
            assert (code, 'No call of the task waits for an approval' in text) == (-32004, True)
        again = await client_of_boss(app).send(first)
        assert (again['id'], again['contextId']) == (task['id'], task['id'])
        assert texts(await wait_until_ended(client_of_ann(app), task['id'])) == ['delete + Too much.']
    assert tools.deleted == []


async def test_concurrent_decisions_of_two_approvers_count_once() -> None:
    tools = ApprovalAgent()
    app = app_with_approvers(tools.agent)
    async with lifespan(app):
        task = await client_of_ann(app).send('delete')
        sent = (
            client_of_boss(app).send(answer_message(task, approve())),
            client_of_boss(app, 'other boss').send(answer_message(task, DENY)),
        )
        approved, denied = await asyncio.gather(*sent, return_exceptions=True)
        done = await wait_until_ended(client_of_ann(app), task['id'])
    [error] = [result for result in (approved, denied) if isinstance(result, RpcError)]
    assert error.code == -32004
    counted = approved is not error
    assert tools.deleted == ([('a', True)] if counted else [])
    assert texts(done) == ['delete + deleted a' if counted else 'delete + Too much.']
    by = [part['metadata']['answeredBy'] for part in done['history'] if 'answeredBy' in part.get('metadata', {})]
    assert by == [{'id': 'boss' if counted else 'other boss'}]


@pytest.mark.parametrize('named', [False, True], ids=['by scope', 'by a function'])
async def test_former_approver_gets_task_not_found(named: bool) -> None:
    tools, chosen = ApprovalAgent(), {'boss'}

    def approvers(caller: Caller, task: WaitingTask) -> bool:
        return caller.id in chosen

    app = app_with_approvers(tools.agent, approvals=Approvals(approvers=approvers if named else 'approve'))
    async with lifespan(app):
        task = await client_of_ann(app).send('delete two')
        decided = answer_message(task, approve('c1'))
        assert pending_call_ids(await client_of_boss(app).send(decided)) == ['c2']
        chosen.clear()
        former = client_of_boss(app, scopes='approve' if named else '')
        before = await client_of_ann(app).get_task(task['id'])
        for sent in (answer_message(task, approve('c2')), text_to('no', task), decided):
            for streamed in (False, True):
                code, text = await refused(former, sent, streamed=streamed)
                assert (code, 'Task not found' in text) == (-32001, True)
        with pytest.raises(RpcError, match='Task not found'):
            await former.get_task(task['id'])
        assert await client_of_ann(app).get_task(task['id']) == before
    assert tools.deleted == []


async def test_webhook_of_an_approver_is_refused() -> None:
    app = app_with_approvers(ApprovalAgent().agent, push=Push(private_hosts=['127.0.0.1']))
    async with lifespan(app), webhook() as hook:
        task = await client_of_ann(app).send('delete')
        with pytest.raises(RpcError) as error:
            await client_of_boss(app).send(
                answer_message(task, approve()), taskPushNotificationConfig={'url': hook.url}
            )
        assert error.value.code == -32602
        assert state_of(await client_of_ann(app).get_task(task['id'])) == 'INPUT_REQUIRED'


async def test_audit_record_names_approver_and_owner(caplog: pytest.LogCaptureFixture) -> None:
    app = app_with_approvers(ApprovalAgent().agent)
    with caplog.at_level(logging.INFO, 'pydantic_ai_a2a.audit'):
        async with lifespan(app):
            task = await client_of_ann(app).send('delete')
            await refused(client_of_ann(app), answer_message(task, approve()))
            await client_of_boss(app).send(answer_message(task, approve()))
            await wait_until_ended(client_of_ann(app), task['id'])
    forbidden, record = audit_records(caplog)
    assert (forbidden['event'], forbidden['task'], forbidden['caller']) == ('forbidden', task['id'], 'ann')
    assert (record['caller'], record['owner'], record['decisions']) == ('boss', 'ann', {'c1': 'approve'})


@pytest.mark.parametrize(
    ('approvers', 'error', 'text'),
    [
        ('approve', TypeError, r'Approvals\.approvers needs auth='),
        ('', ValueError, 'is an empty scope'),
    ],
)
def test_invalid_approvers_option_is_rejected(approvers: str, error: type[Exception], text: str) -> None:
    agent = Agent('test')
    with pytest.raises(error, match=text):
        to_a2a(agent, approvals=Approvals(approvers=approvers))


# --- the rule sees what will run, and who asked for it ---------------------------------------------------------------


class Cashier:
    """An agent that pays in cents, as the prompt says."""

    def __init__(self, hidden: Collection[str] = (), **options: Any) -> None:
        self.paid: list[int] = []
        self.rule_saw: list[WaitingTask] = []

        def pay_as_told(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
            returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
            prompt = user_prompts(messages)[-1]
            if returned:
                return ModelResponse(parts=[TextPart('paid')])
            return ModelResponse(parts=[ToolCallPart('pay', json.loads(prompt), 'c1')])

        agent = Agent(FunctionModel(pay_as_told))
        agent.tool_plain(requires_approval=True)(self.pay)
        rules = Approvals(approvers=self.rule, hide_arguments=hidden, **options.pop('approvals', {}))
        self.app = to_a2a(agent, auth=caller_from_header, approvals=rules, **options)

    def pay(self, cents: int, currency: str = 'EUR') -> str:
        self.paid.append(cents)
        return 'paid'

    def rule(self, caller: Caller, task: WaitingTask) -> bool:
        self.rule_saw.append(task)
        large = any(call.args is None or call.args['cents'] > 10_000 for call in task.calls)
        scope = 'payments:large' if large else 'approve'
        return caller.id != task.caller.id and scope in caller.scopes

    async def asked_to_pay(self, cents: int) -> dict[str, Any]:
        return await client_of_ann(self.app).send(json.dumps({'cents': cents}))


@pytest.mark.parametrize('streamed', [False, True])
async def test_edited_arguments_are_checked_by_approvers_rule(streamed: bool, caplog: pytest.LogCaptureFixture) -> None:
    cashier = Cashier(approvals={'change_arguments': ['pay']})
    async with lifespan(cashier.app):
        task = await cashier.asked_to_pay(5)
        raised = answer_message(task, approve(args={'cents': 1_000_000}))
        with caplog.at_level(logging.WARNING, 'pydantic_ai_a2a.audit'):
            code, text = await refused(client_of_boss(cashier.app), raised, streamed=streamed)
        assert (code, 'The caller may not answer this call' in text) == (-32000, True)
        assert state_of(await client_of_ann(cashier.app).get_task(task['id'])) == 'INPUT_REQUIRED'
        await client_of_boss(cashier.app).send(answer_message(task, approve(args={'cents': 4})))
        await wait_until_ended(client_of_ann(cashier.app), task['id'])
        task = await cashier.asked_to_pay(5)
        director = client_of_boss(cashier.app, 'dora', scopes='approve payments:large')
        await director.send(answer_message(task, approve(args={'cents': 20_000})))
        await wait_until_ended(client_of_ann(cashier.app), task['id'])
    assert cashier.paid == [4, 20_000]
    [forbidden] = audit_records(caplog)
    assert (forbidden['event'], forbidden['caller']) == ('forbidden', 'boss')


async def test_with_approvers_arguments_change_only_for_named_tools() -> None:
    cashier = Cashier()
    async with lifespan(cashier.app):
        task = await cashier.asked_to_pay(5)
        [schema] = [call['answerSchema'] for call in pending_calls(task)]
        assert 'args' not in schema['oneOf'][0]['properties']
        code, text = await refused(client_of_boss(cashier.app), answer_message(task, approve(args={'cents': 4})))
        assert (code, 'may not be changed' in text) == (-32602, True)
    assert cashier.paid == []


async def test_approvers_rule_sees_hidden_arguments() -> None:
    cashier = Cashier(hidden=['pay'])
    async with lifespan(cashier.app):
        task = await cashier.asked_to_pay(20_000)
        [call] = pending_calls(task)
        assert ('args' in call, '20000' in json.dumps(task['status'])) == (False, False)
        assert (await refused(client_of_boss(cashier.app), answer_message(task, approve())))[0] == -32001
    assert [call.args for call in cashier.rule_saw[0].calls] == [{'cents': 20_000, 'currency': 'EUR'}]


@pytest.mark.parametrize(
    ('args', 'shown', 'runs'),
    [
        ('{"cents": 1e400}', 'Infinity', math.inf),
        ('{"cents": -Infinity}', '-Infinity', -math.inf),
        ('{"cents": NaN}', 'NaN', math.nan),
        ({'cents': math.inf}, None, None),  # JSON of stored messages has no such numbers
    ],
    ids=['too large', 'infinite', 'no number', 'no JSON'],
)
async def test_infinity_and_nan_are_shown_and_run_unchanged(args: Any, shown: Any, runs: float | None) -> None:
    told: list[Any] = []
    paid: list[Any] = []

    def rule(caller: Caller, task: WaitingTask) -> bool:
        told.extend(call.args for call in task.calls)
        return caller.id == 'boss'

    def pay(cents: float | None) -> None:
        paid.append({'cents': cents})

    agent = Agent(scripted_model(ToolCallPart('pay', args, 'c1'), 'Paid.'), name='payer')
    agent.tool_plain(requires_approval=True)(pay)
    app = app_with_approvers(agent, approvals=Approvals(approvers=rule))
    async with lifespan(app):
        task = await client_of_ann(app).send('Pay.')
        view = await client_of_boss(app).get_task(task['id'])
        for seen in (task, view):
            assert [call['args'] for call in pending_calls(seen)] == [{'cents': shown}]
        await client_of_boss(app).send(answer_message(view, approve()))
        await wait_until_ended(client_of_ann(app), task['id'])
    assert {repr(call) for call in (*told, *paid)} == {repr({'cents': runs})}
    assert len(paid) == 1


async def test_sender_cannot_approve_as_team_member() -> None:
    cashier = Cashier(access=Access(owner=lambda _: 'team'))
    async with lifespan(cashier.app):
        task = await client_of_ann(cashier.app, scopes='approve').send('{"cents": 5}')
        assert (await refused(client_of_ann(cashier.app, scopes='approve'), answer_message(task, approve())))[
            0
        ] == -32000
        done = await client_of_boss(cashier.app).send(answer_message(task, approve()))
    assert (texts(done), cashier.paid) == (['paid'], [5])
    assert {(task.owner.id, task.caller.id) for task in cashier.rule_saw} == {('team', 'ann')}


async def test_approvers_rule_gets_sender_of_run() -> None:
    seen: list[tuple[str, str]] = []

    def approvers(caller: Caller, task: WaitingTask) -> bool:
        seen.append((caller.id, task.caller.id))
        return caller.id != task.caller.id

    tools = ApprovalAgent()
    app = app_with_approvers(
        tools.agent, approvals=Approvals(approvers=approvers), access=Access(owner=lambda _: 'team')
    )
    async with lifespan(app):
        # Both approvals belong to the run of ann, also after boss has decided about one of them.
        task = await client_of_ann(app).send('delete two')
        await client_of_boss(app).send(answer_message(task, approve('c1')))
        assert (await refused(client_of_ann(app), answer_message(task, approve('c2'))))[0] == -32000
        await client_of_boss(app).send(answer_message(task, approve('c2')))
        # The question of ann's run is answered by boss, who thereby starts the next run.
        task = await client_of_ann(app).send('ask')
        await client_of_boss(app).send(answer_message(task, {'id': 'q1', 'decision': 'result', 'result': 'XL'}))
    assert tools.deleted == [('a', True), ('b', True)]
    assert {sender for _, sender in seen} == {'ann'}


async def test_resume_task_does_not_call_approvers_rule() -> None:
    asked_for: list[WaitingTask] = []
    signed_in = False

    def approvers(caller: Caller, task: WaitingTask) -> bool:
        asked_for.append(task)
        return False

    agent = Agent(TestModel())

    @agent.tool_plain
    def read_mail() -> str:
        if not signed_in:
            raise AuthRequired('Sign in.')
        return 'no mail'

    app = app_with_approvers(agent, approvals=Approvals(approvers=approvers))
    async with lifespan(app):
        task = await client_of_ann(app).send('hi')
        signed_in = True
        await app.resume_task(task['id'])
        assert texts(await wait_until_ended(client_of_ann(app), task['id'])) == ['{"read_mail":"no mail"}']
    assert asked_for == []


async def test_approvers_rule_gets_sender_after_last_approval() -> None:
    senders: list[str] = []

    def approvers(caller: Caller, task: WaitingTask) -> bool:
        senders.append(task.caller.id)
        return caller.id != task.caller.id

    tools = ApprovalAgent()
    app = app_with_approvers(
        tools.agent, approvals=Approvals(approvers=approvers), access=Access(owner=lambda _: 'team')
    )
    async with lifespan(app):
        task = await client_of_ann(app).send('mixed')
        size = {'id': 'q1', 'decision': 'result', 'result': 'XL'}
        await client_of_boss(app).send(answer_message(task, approve('c1'), approve('c2'), size))
        await client_of_boss(app).send(answer_message(task, {'id': 'x1', 'decision': 'result', 'result': 'page'}))
    assert {*senders} == {'ann'}
