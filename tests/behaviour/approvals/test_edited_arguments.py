"""What an approval may write into the arguments of a call, and that rule, people and tool have one value."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import AbstractToolset

from pydantic_ai_a2a import A2A, Approvals, Caller, WaitingTask, to_a2a

from ...agents import user_prompts
from ...app_client import Client, RpcError, lifespan, state_of, texts
from ...bounds import LIMIT
from ...cases import each_case
from ...serving import wait_until_ended
from ..callers import caller_from_header, client_of_caller
from ..pending_calls import DEFERRED_ROW, answer_message, approve, pending_calls
from ..promised_behaviours import covering
from ..refusals import error_of_call

pytestmark = covering(DEFERRED_ROW)

MILLION = 1_000_000


class Payment(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    amount_cents: int = 5


class OpenPayment(Payment):
    model_config = ConfigDict(extra='allow')


class Choices(BaseModel):
    cents: int = Field(5, validation_alias=AliasChoices('cents', 'amount'))


class Parcel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    weight: int = 1
    inner_parcels: list[Parcel] = []


def pay_model(payment: Payment) -> int:
    return payment.amount_cents


def pay_open(payment: OpenPayment) -> int:
    return payment.amount_cents


def pay_choices(payment: Choices) -> int:
    return payment.cents


def pay_nested(payment: Payment, note: str = '') -> int:
    return payment.amount_cents


def pay_list(payments: list[Payment]) -> int:
    return sum(payment.amount_cents for payment in payments)


def pay_pair(pair: tuple[int, Payment]) -> int:
    return pair[1].amount_cents


def pay_one_of(payment: Payment | Choices | None = None, note: str = '') -> int:
    return payment.cents if isinstance(payment, Choices) else payment.amount_cents if payment else 0


def pay_either(payment: Payment | dict[str, Any], note: str | None = None) -> int:
    return payment.amount_cents if isinstance(payment, Payment) else sum(payment.values())


def pay_tree(parcel: Parcel) -> int:
    return parcel.weight + sum(map(pay_tree, parcel.inner_parcels))


def pay_named(by_name: dict[Annotated[str, StringConstraints(pattern='^x_')], Payment]) -> int:
    return sum(payment.amount_cents for payment in by_name.values())


def pay_by_name(by_name: dict[str, Payment]) -> int:
    return sum(payment.amount_cents for payment in by_name.values())


def pay_with_options(cents: int, **options: Any) -> int:
    return cents + sum(options.values())


def pay_everything(**options: Any) -> dict[str, Any]:
    return options


def pay_cents(cents: Annotated[int, BeforeValidator(lambda cents: int(cents) * 100)]) -> int:
    """Pay, with a validator that would multiply again in each further validation."""
    return cents


class Cashier:
    """An agent that calls its tool `pay` with the arguments in the prompt, and answers with what the tool returned.

    Args:
        pay: The tool, or the toolset with it.
        field: Name of the amount in the arguments.
        options: Of the app.
    """

    def __init__(self, pay: Callable[..., Any] | AbstractToolset[object], field: str = 'cents', **options: Any) -> None:
        self.rule_saw: list[dict[str, Any] | None] = []
        self._field = field
        model, options_of_agent = FunctionModel(self._model), dict[str, Any]()
        if isinstance(pay, AbstractToolset):
            options_of_agent['toolsets'] = [pay]
        else:
            options_of_agent['tools'] = [Tool(pay, name='pay', requires_approval=True)]
        agent: Agent[object, Any] = Agent(model, name='cashier', **options_of_agent)
        self.agent = agent
        self.app = to_a2a(
            agent,
            auth=caller_from_header,
            approvals=Approvals(approvers=self._rule, change_arguments=['pay']),
            **options,
        )
        self.ann = client_of_caller(self.app, 'ann')
        self.clerk = client_of_caller(self.app, 'clerk', scopes='approve')
        self.director = client_of_caller(self.app, 'director', scopes='approve payments:large')

    def _model(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if returned:
            return ModelResponse(parts=[TextPart(returned[0].model_response_str())])
        return ModelResponse(parts=[ToolCallPart('pay', json.loads(user_prompts(messages)[-1]), 'c1')])

    def _rule(self, caller: Caller, task: WaitingTask) -> bool:
        """The rule of the docs: large and unknown amounts need a director."""
        self.rule_saw += [call.args for call in task.calls]
        large = any(call.args is None or call.args.get(self._field, 0) > 10_000 for call in task.calls)
        return ('payments:large' if large else 'approve') in caller.scopes

    async def asked_to(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return await self.ann.send(json.dumps(args))

    async def paid(self, client: Client, task: dict[str, Any], **fields: Any) -> Any:
        """Approve the call, and return what the tool has returned."""
        await client.send(answer_message(task, approve(**fields)))
        done = await wait_until_ended(self.ann, task['id'])
        return json.loads(''.join(texts(done)))


async def refused(client: Client, task: dict[str, Any], args: Any) -> tuple[int, list[str]]:
    """Return the error of an approval with arguments, which leaves the task as it is."""
    with pytest.raises(RpcError) as error:
        await client.send(answer_message(task, approve(args=args)))
    return error.value.code, [path.removeprefix('message.parts[0].data.callAnswers[0].') for path in error.value.fields]


UNNAMED: list[tuple[Callable[..., Any], Any, Any, str]] = [
    (pay_model, {}, {'amount_cents': MILLION}, 'amount_cents'),
    (pay_model, {'amountCents': 4}, {'amountCents': 4, 'amount_cents': MILLION}, 'amount_cents'),
    (pay_choices, {'cents': 4}, {'amount': MILLION}, 'amount'),
    (pay_nested, {'payment': {}}, {'payment': {'amount_cents': MILLION}}, 'payment.amount_cents'),
    (pay_list, {'payments': [{}]}, {'payments': [{'amount_cents': MILLION}]}, 'payments[0].amount_cents'),
    (pay_list, {'payments': []}, {'payments': [{'amount_cents': MILLION}]}, 'payments[0].amount_cents'),
    (pay_pair, {'pair': [1, {}]}, {'pair': [1, {'amount_cents': MILLION}]}, 'pair[1].amount_cents'),
    (pay_one_of, {}, {'payment': {'amount_cents': MILLION}}, 'payment.amount_cents'),
    (pay_one_of, {}, {'payment': {'cents': 'x', 'amountCents': 5}}, 'payment.cents'),
    (pay_one_of, {}, {'payment': {'cents': 4, 'amountCents': MILLION}}, 'payment.cents'),
    (pay_tree, {'innerParcels': [{}]}, {'innerParcels': [{'inner_parcels': []}]}, 'innerParcels[0].inner_parcels'),
    (pay_named, {'by_name': {}}, {'by_name': {'y': {}}}, 'by_name.y'),
    (pay_named, {'by_name': {}}, {'by_name': {'x_a': {'amount_cents': MILLION}}}, 'by_name.x_a.amount_cents'),
    (pay_by_name, {'by_name': {}}, {'by_name': {'a': {'amount_cents': MILLION}}}, 'by_name.a.amount_cents'),
]


@each_case('pay, proposed, edit, unnamed', UNNAMED, ids=[f'{pay.__name__} {edit}' for pay, _, edit, _ in UNNAMED])
async def test_edit_with_member_outside_schema_is_refused(
    pay: Callable[..., Any], proposed: Any, edit: Any, unnamed: str
) -> None:
    cashier = Cashier(pay, 'amountCents')
    async with lifespan(cashier.app), asyncio.timeout(LIMIT):
        task = await cashier.asked_to(proposed)
        for client in (cashier.clerk, cashier.director):
            assert await refused(client, task, edit) == (-32602, [f'args.{unnamed}'])
        assert state_of(await cashier.ann.get_task(task['id'])) == 'INPUT_REQUIRED'


NAMED: list[tuple[Callable[..., Any], Any, Any, Any]] = [
    (pay_model, {}, {'amountCents': 7}, 7),
    (pay_nested, {'payment': {}}, {'payment': {'amountCents': 7}, 'note': 'x'}, 7),
    (pay_pair, {'pair': [1, {}]}, {'pair': [2, {'amountCents': 7}]}, 7),
    (pay_one_of, {}, {'payment': {'cents': 7}}, 7),
    (pay_one_of, {'payment': {'cents': 7}}, {'payment': None}, 0),
    (pay_tree, {}, {'weight': 2, 'innerParcels': [{'weight': 3, 'innerParcels': [{}]}]}, 6),
    (pay_named, {'by_name': {}}, {'by_name': {'x_a': {'amountCents': 7}}}, 7),
    (pay_by_name, {'by_name': {}}, {'by_name': {'a': {'amountCents': 7}}}, 7),
    (pay_with_options, {'cents': 4}, {'cents': 5, 'tip': 2}, 7),
    (pay_everything, {'a': {'b': 1}}, {'a': {'b': 1, 'c': [{'d': None}]}}, {'a': {'b': 1, 'c': [{'d': None}]}}),
    (pay_cents, {'cents': 4}, {'cents': 7}, 700),
]


@each_case('pay, proposed, edit, value', NAMED, ids=[f'{pay.__name__} {edit}' for pay, _, edit, _ in NAMED])
async def test_edit_with_members_allowed_by_schema_is_applied(
    pay: Callable[..., Any], proposed: Any, edit: Any, value: Any
) -> None:
    cashier = Cashier(pay)
    async with lifespan(cashier.app), asyncio.timeout(LIMIT):
        task = await cashier.asked_to(proposed)
        assert await cashier.paid(cashier.clerk, task, args=edit) == value


async def test_edit_can_keep_but_not_change_undeclared_member() -> None:
    cashier = Cashier(pay_nested)
    proposed = {'payment': {'amount_cents': MILLION, 'tags': [True, {'a': 1}]}, 'note': 'x'}
    async with lifespan(cashier.app), asyncio.timeout(LIMIT):
        task = await cashier.asked_to(proposed)
        [call] = pending_calls(task)
        assert call['args'] == proposed
        for edit, where in (
            ({'payment': {'amount_cents': MILLION + 1}}, 'payment.amount_cents'),
            ({'payment': {'tags': [1, {'a': 1}]}}, 'payment.tags'),
            ({'payment': {'tags': [True, {'a': 1}, 2]}}, 'payment.tags'),
            ({'payment': {'tags': [True, {'a': 1, 'b': 1}]}}, 'payment.tags'),
        ):
            assert await refused(cashier.director, task, edit) == (-32602, [f'args.{where}'])
        edited = {**proposed, 'note': 'y'}
        assert (await refused(cashier.clerk, task, edited))[0] == -32001
        assert await cashier.paid(cashier.director, task, args=edited) == MILLION
    assert [*filter(None, cashier.rule_saw)] == []


async def test_edit_can_remove_an_undeclared_member() -> None:
    cashier = Cashier(pay_model, 'amountCents')
    async with lifespan(cashier.app), asyncio.timeout(LIMIT):
        task = await cashier.asked_to({'amount_cents': MILLION})
        assert await cashier.paid(cashier.director, task, args={}) == 5
    assert (cashier.rule_saw[0], cashier.rule_saw[-1]) == (None, {'amountCents': 5})


WRITTEN: list[tuple[Callable[..., Any], Any, Any]] = [
    (pay_model, {}, {'amountCents': 5}),
    (pay_model, {'amountCents': 4}, {'amountCents': 4}),
    (pay_model, {'amount_cents': MILLION}, None),
    (pay_model, {'amountCents': 4, 'amount_cents': MILLION}, None),
    (pay_choices, {'amount': MILLION}, None),
    (pay_nested, {'payment': {'amount_cents': MILLION}}, None),
    (pay_list, {'payments': [{}, {'amount_cents': MILLION}]}, None),
    (pay_one_of, {'payment': {'cents': 4, 'amountCents': MILLION}}, None),
    (pay_either, {'payment': {'amount_cents': MILLION}}, None),
    (pay_either, {'payment': {'amountCents': 4}}, {'payment': {'amountCents': 4}, 'note': None}),
    (pay_tree, {'innerParcels': []}, {'weight': 1, 'innerParcels': []}),
    (pay_tree, {'inner_parcels': [{}]}, None),
    (pay_open, {'amountCents': 4, 'reason': 'x'}, {'amountCents': 4, 'reason': 'x'}),
    (pay_open, {'amount_cents': MILLION}, None),
    (pay_open, {}, {'amountCents': 5}),
    (pay_with_options, {'cents': 4, 'tip': 1}, {'cents': 4, 'tip': 1}),
    (pay_cents, {'cents': '4'}, None),
    (pay_cents, {'cents': 4}, {'cents': 4}),
]


@each_case('pay, written, seen', WRITTEN, ids=[f'{pay.__name__} {written}' for pay, written, _ in WRITTEN])
async def test_approvers_rule_sees_validated_arguments_or_none(
    pay: Callable[..., Any], written: Any, seen: Any
) -> None:
    cashier = Cashier(pay, 'amountCents')
    async with lifespan(cashier.app), asyncio.timeout(LIMIT):
        task = await cashier.asked_to(written)
        [call] = pending_calls(task)
        assert (call['args'], call['text']) == (
            written,
            f'May I call pay {json.dumps(written, separators=(",", ":"))}?',
        )
        if seen is None:
            assert (await error_of_call(cashier.clerk.send(answer_message(task, approve())))).code == -32001
        value = await cashier.paid(cashier.director, task)
        tool = {'amountCents': value} if 'amountCents' in (seen or {}) else {}
    assert cashier.rule_saw == [seen] * len(cashier.rule_saw)
    assert (seen or {}).items() >= tool.items()


async def test_approvers_rule_sees_none_for_undeclared_members() -> None:
    cashier = Cashier(pay_open, 'amountCents')
    async with lifespan(cashier.app), asyncio.timeout(LIMIT):
        task = await cashier.asked_to({})
        assert (await refused(cashier.clerk, task, {'amount_cents': MILLION}))[0] == -32000
        assert cashier.rule_saw[-1] is None
        assert await cashier.paid(cashier.director, task, args={'amount_cents': MILLION}) == MILLION


# --- servers in between --------------------------------------------------------------------------------------------


async def test_intermediate_server_checks_edited_arguments_of_remote_call() -> None:
    remote = to_a2a(Agent(FunctionModel(remote_model), name='remote', tools=[REMOTE_PAY]))
    agent = Agent(FunctionModel(asks_remote), name='middle', capabilities=[A2A(remote)])
    seen: list[Any] = []

    def rule(caller: Caller, task: WaitingTask) -> bool:
        seen.extend(call.args for call in task.calls)
        return 'approve' in caller.scopes

    approvals = Approvals(approvers=rule, change_arguments=['pay'])
    app = to_a2a(agent, auth=caller_from_header, approvals=approvals)
    async with lifespan(remote), lifespan(app), asyncio.timeout(LIMIT):
        ann, boss = client_of_caller(app, 'ann'), client_of_caller(app, 'boss', scopes='approve')
        task = await ann.send('{"amount_cents": 3}')
        [call] = pending_calls(task)
        edit = answer_message(task, approve(call['id'], args={'amount_cents': MILLION}))
        with pytest.raises(RpcError) as error:
            await boss.send(edit)
        assert error.value.code == -32602
        await boss.send(answer_message(task, approve(call['id'], args={'amountCents': 7})))
        assert texts(await wait_until_ended(ann, task['id'])) == ['7']
    assert (seen[0], seen[-1]) == (None, {'amountCents': 7})


REMOTE_PAY = Tool(pay_model, name='pay', requires_approval=True)


def remote_model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if returned:
        return ModelResponse(parts=[TextPart(returned[0].model_response_str())])
    return ModelResponse(parts=[ToolCallPart('pay', json.loads(user_prompts(messages)[-1]), 'c1')])


def asks_remote(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if returned:
        return ModelResponse(parts=[TextPart(returned[0].model_response_str())])
    [tool] = info.function_tools
    return ModelResponse(parts=[ToolCallPart(tool.name, {'message': user_prompts(messages)[-1]}, 'outer')])
