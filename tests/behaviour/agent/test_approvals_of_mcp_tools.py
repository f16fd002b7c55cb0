"""What an approval may write into the arguments of a tool of an MCP server, also where nobody reaches the server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client.transports import FastMCPTransport
from mcp.server import MCPServer
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.toolsets import AbstractToolset

from ...app_client import RpcError, lifespan
from ...bounds import LIMIT
from ...cases import each_case
from ..approvals.test_edited_arguments import MILLION, Cashier, pay_nested, refused
from ..pending_calls import DEFERRED_ROW, answer_message, approve
from ..promised_behaviours import covering

pytestmark = covering(DEFERRED_ROW)


class PayServer(MCPServer):
    """An MCP server whose tool `pay` has the given schema, and returns its arguments."""

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__('pay')
        self._schema = schema
        self.tool()(self.pay)

    async def pay(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    async def list_tools(self) -> list[Any]:
        [tool] = await super().list_tools()
        return [tool.model_copy(update={'input_schema': self._schema})]

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        return await super().call_tool(name, {'arguments': arguments}, context)


def toolset_of(schema: dict[str, Any]) -> AbstractToolset[object]:
    """The toolset of such a server, whose calls need an approval."""
    return MCPToolset[object](FastMCPTransport(PayServer(schema))).approval_required()


AMOUNT = {'type': 'object', 'properties': {'amountCents': {'type': 'integer', 'default': 5}, 'note': True}}
PREFIXED = {'type': 'object', 'patternProperties': {'^x_': {'type': 'integer'}, '(?=y)': {}}}
EITHER: dict[str, Any] = {
    'type': 'object',
    'anyOf': [{'$ref': '#/definitions/a'}, {'required': ['b'], 'properties': {'b': {}}}],
}


@each_case(
    'schema, proposed, edit, unnamed',
    [
        (AMOUNT, {}, {'amountCents': 7, 'note': {'any': [1]}}, None),
        (AMOUNT, {}, {'amount_cents': 7}, 'amount_cents'),
        (AMOUNT, {'amount_cents': 7}, {'amount_cents': 7, 'amountCents': 4}, None),
        (AMOUNT, {'amount_cents': 7}, {'amount_cents': 8}, 'amount_cents'),
        ({'type': 'object'}, {}, {'any': {'thing': 7}}, None),
        ({'type': 'object', 'properties': {}}, {}, {'any': {'thing': 7}}, None),
        (PREFIXED, {}, {'x_a': 7, 'x_b': 8}, None),
        ({**PREFIXED, 'additionalProperties': False}, {}, {'x_a': 7}, None),
        (PREFIXED, {}, {'x_a': 'seven'}, 'x_a'),
        (PREFIXED, {}, {'a_x_': 7}, 'a_x_'),
        (PREFIXED, {}, {'y': 7}, 'y'),
        (PREFIXED, {}, {'x_' * 200: 7}, 'x_' * 200),
        ({**EITHER, 'definitions': {'a': AMOUNT}}, {}, {'b': 7}, None),
        ({**EITHER, 'definitions': {'a': AMOUNT}}, {}, {'amountCents': 7}, None),
        ({**EITHER, 'definitions': {'a': AMOUNT}}, {}, {'c': 7}, 'c'),
        ({'allOf': [AMOUNT], 'type': 'object', 'properties': {'a': {}}}, {}, {'a': 1, 'amountCents': 7}, None),
        ({'allOf': [AMOUNT], 'type': 'object', 'properties': {'a': {}}}, {}, {'b': 1}, 'b'),
        ({'allOf': [AMOUNT, {'type': 'object'}], 'type': 'object'}, {}, {'b': 1}, 'b'),
        ({**AMOUNT, 'additionalProperties': {'type': 'array', 'items': AMOUNT}}, {}, {'a': [{}, {'b': 1}]}, 'a[1].b'),
    ],
    ids=[f'{n}' for n in range(1, 20)],
)
async def test_edited_arguments_must_be_named_by_mcp_tool_schema(
    schema: dict[str, Any], proposed: Any, edit: Any, unnamed: str | None
) -> None:
    cashier = Cashier(toolset_of(schema), 'amountCents')
    async with lifespan(cashier.app), asyncio.timeout(LIMIT):
        task = await cashier.asked_to(proposed)
        if unnamed is None:
            assert await cashier.paid(cashier.director, task, args=edit) == edit
        else:
            assert await refused(cashier.director, task, edit) == (-32602, [f'args.{unnamed}'])


async def test_approval_rule_sees_defaults_of_combined_schemas() -> None:
    more = {'properties': {'currency': {'default': 'EUR'}, 'odd': False}}
    schema: dict[str, Any] = {'type': 'object', '$ref': '#/$defs/a', 'allOf': [more, True], '$defs': {'a': AMOUNT}}
    cashier = Cashier(toolset_of(schema), 'amountCents')
    async with lifespan(cashier.app), asyncio.timeout(LIMIT):
        task = await cashier.asked_to({'amountCents': 4})
        assert await cashier.paid(cashier.clerk, task) == {'amountCents': 4}
    assert cashier.rule_saw[0] == {'amountCents': 4, 'currency': 'EUR'}


async def test_edit_under_too_many_schema_patterns_is_refused() -> None:
    # A pattern with a counted repetition may take long to compile, so an answer is checked with few of them.
    schema: dict[str, Any] = {'type': 'object', 'patternProperties': {f'^{n}_{{2}}': {} for n in range(1_000)}}
    cashier = Cashier(toolset_of(schema))
    async with lifespan(cashier.app), asyncio.timeout(LIMIT):
        task = await cashier.asked_to({})
        with pytest.raises(RpcError, match='too large or too deeply nested to check'):
            await cashier.director.send(answer_message(task, approve(args={'0__': 1})))


async def test_server_without_mcp_connection_validates_edited_arguments(tmp_path: Path) -> None:
    store = f'sqlite:///{tmp_path}/cashier.db'
    unreachable = MCPToolset[object]('http://127.0.0.1:9/mcp')
    worker, server = Cashier(pay_nested, backend=store), Cashier(unreachable, backend=store)
    server.app.hosting.runs_tasks = False  # as the command `serve --no-worker` says
    async with lifespan(server.app), lifespan(worker.app), asyncio.timeout(LIMIT):
        task = await server.asked_to({'payment': {}})
        edit = {'payment': {'amount_cents': MILLION}}
        assert await refused(server.director, task, edit) == (-32602, ['args.payment.amount_cents'])
        assert await server.paid(server.director, task, args={'payment': {'amountCents': 7}}) == 7
    assert server.rule_saw[-1] == {'payment': {'amountCents': 7}, 'note': ''}
