"""The JSON Schemas of what an agent takes and returns, on its card."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types
from fasta2a.schema import AgentCard
from google.protobuf.json_format import MessageToDict
from inline_snapshot import snapshot
from pydantic import BaseModel, Field
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import BinaryImage

from pydantic_ai_a2a import (
    A2AClient,
    Access,
    APIKeyAuth,
    Artifacts,
    Caller,
    CardRefused,
    InputRequired,
    Messages,
    tool_skills,
)
from pydantic_ai_a2a.client.targets import Target
from pydantic_ai_a2a.wire.protocol.received_cards import read_card

from ...client.canned_agent import CARD as CANNED
from ...dialects import in_no_version
from ...serving import serving
from ..promised_behaviours import covers

pytestmark = in_no_version('there is one card for all versions')

CARD = '/.well-known/agent-card.json'
EXTENDED = '/extendedAgentCard'
URI = 'https://pypi.org/project/pydantic-ai-a2a/#json-schemas-v1'


class Trip(BaseModel):
    city: str
    days: int = Field(default=1, ge=1, le=14)


class Plan(BaseModel):
    lines: list[str]


class Node(BaseModel):
    children: list[Node] = []


class Unknown:
    """A class without a schema."""


def nested_list_type(depth: int) -> Any:
    kind: Any = int
    for _ in range(depth):
        kind = list[kind]
    return kind


def schema_extension(card: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in card['capabilities'].get('extensions', ()) if item['uri'] == URI]


async def schema_params(agent: Agent[Any, Any], **options: Any) -> dict[str, Any]:
    """The parameters of the extension on the card of an agent."""
    async with serving(agent, **options) as client:
        found = schema_extension((await client.get(CARD)).json)
    return found[0]['params'] if found else {}


def support_agent() -> Agent[Any, Any]:
    agent = Agent('test')

    @agent.tool_plain
    def order_state(number: int) -> str:
        """Tell where an order is."""
        return f'Order {number} is on its way.'

    @agent.tool_plain
    def refund(number: int) -> str:
        """Refund an order."""
        return f'Order {number} is refunded.'

    @agent.tool_plain
    def hours() -> str:
        """Tell the opening hours."""
        return 'always'

    return agent


NUMBER = {
    'inputSchema': {
        'additionalProperties': False,
        'properties': {'number': {'type': 'integer'}},
        'required': ['number'],
        'type': 'object',
    }
}


@covers('card')
async def test_card_declares_input_and_output_schemas() -> None:
    async with serving(Agent('test', output_type=Plan), messages=Messages(input_type=Trip)) as client:
        card = (await client.get(CARD)).json
    assert schema_extension(card) == [
        {
            'uri': URI,
            'description': snapshot('JSON Schemas of the data that begins a task, and of the data of an answer.'),
            'params': {'inputSchema': Trip.model_json_schema(), 'outputSchema': Plan.model_json_schema()},
        }
    ]
    assert all('inputSchema' not in skill for skill in card['skills'])


@covers('card')
@pytest.mark.parametrize('agent', [Agent('test', output_type=Plan), Agent('test', output_type=nested_list_type(31))])
async def test_official_clients_read_schemas_on_card(agent: Agent[Any, Any]) -> None:
    async with serving(agent, messages=Messages(input_type=Trip)) as client:
        card = (await client.get(CARD)).json
    [wanted] = schema_extension(card)
    newer = MessageToDict(parse_agent_card({**card}))
    assert schema_extension(newer) == [wanted]
    older = types.AgentCard.model_validate(card)
    assert older.capabilities.extensions is not None
    assert [item.params for item in older.capabilities.extensions if item.uri == URI] == [wanted['params']]


OUTPUTS: dict[str, tuple[Any, Any]] = {
    'text': (str, None),
    'a state and calls': ([str, InputRequired, DeferredToolRequests], None),
    'data or text': ([Plan, str, InputRequired], Plan.model_json_schema()),
    'a list': (list[int], {'type': 'array', 'items': {'type': 'integer'}}),
    'a recursive model': (Node, Node.model_json_schema()),
    'a file': (BinaryImage, None),
    'artifacts': (Artifacts, None),
    'data or artifacts': ([Plan, Artifacts], None),
    'no schema': (Unknown, None),
}


@covers('card')
@pytest.mark.filterwarnings('ignore:Could not generate return schema')
@pytest.mark.parametrize(('output_type', 'schema'), OUTPUTS.values(), ids=OUTPUTS)
async def test_output_schema_covers_data_types_only(output_type: Any, schema: Any) -> None:
    async def unknown() -> Unknown:
        return Unknown()

    agent = Agent('test', output_type=unknown if output_type is Unknown else output_type)
    assert (await schema_params(agent)).get('outputSchema') == schema


@covers('card')
async def test_output_schema_of_several_types_is_any_of() -> None:
    assert (await schema_params(Agent('test', output_type=[Plan, Trip]))) == {
        'outputSchema': {
            'anyOf': [{'$ref': '#/$defs/Plan'}, {'$ref': '#/$defs/Trip'}],
            '$defs': {'Plan': Plan.model_json_schema(), 'Trip': Trip.model_json_schema()},
        }
    }


@covers('card')
async def test_oversized_or_deep_schema_is_omitted_with_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Wordy(BaseModel):
        text: str = Field(description='x' * 40_000)

    assert (
        await schema_params(Agent('test', output_type=Wordy), messages=Messages(input_type=nested_list_type(40))) == {}
    )
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        f'The JSON Schema of {source} is not on the agent card: it has more than 32000 bytes, or is nested more than 32'
        ' deep.'
        for source in ('Messages.input_type', 'output_type')
    ]


@covers('card')
async def test_tool_skills_have_argument_schemas() -> None:
    agent = support_agent()
    assert await schema_params(agent, skills=tool_skills(agent)) == {
        'skills': {'order_state': NUMBER, 'refund': NUMBER}
    }
    # A message always has the data of the declared type.
    typed = await schema_params(agent, skills=tool_skills(agent), messages=Messages(input_type=Trip))
    assert typed == {'inputSchema': Trip.model_json_schema()}


@covers('card')
async def test_extended_card_has_schemas_of_its_skills() -> None:
    agent = support_agent()
    key = {'X-API-Key': 'the-key-of-ann-1234'}
    options: dict[str, Any] = {
        'auth': APIKeyAuth({'the-key-of-ann-1234': 'ann'}),
        'skills': tool_skills(agent, ['order_state']),
    }

    def of(fields: dict[str, Any]) -> Any:
        def card_of(_caller: Caller, _card: AgentCard) -> dict[str, Any]:
            return fields

        return card_of

    more: list[tuple[Any, dict[str, Any]]] = [
        ({'skills': tool_skills(agent, ['refund'])}, {'order_state': NUMBER, 'refund': NUMBER}),
        (of({'skills': tool_skills(agent, ['refund'])}), {'refund': NUMBER}),
        (of({'skills': tool_skills(agent, ['hours'])}), {}),
        (of({'description': 'More.'}), {'order_state': NUMBER}),
    ]
    for extended, skills in more:
        async with serving(agent, access=Access(extended_card=extended), **options) as client:
            public, own = (await client.get(CARD)).json, (await client.get(EXTENDED, key)).json
        assert schema_extension(public)[0]['params'] == {'skills': {'order_state': NUMBER}}
        assert [item['params'] for item in schema_extension(own)] == ([{'skills': skills}] if skills else [])


# The client.


async def test_client_reads_schemas_and_builds_output_type() -> None:
    async with serving(Agent('test', output_type=Plan), messages=Messages(input_type=Trip)) as client:
        async with A2AClient(client.app) as remote:
            assert await remote.input_schema() == Trip.model_json_schema()
            assert await remote.input_schema('test') == Trip.model_json_schema()
            assert await remote.output_schema() == Plan.model_json_schema()
            made = await remote.output_type()
        ended = await Agent('test', output_type=made).run('x')
    assert ended.output == {'lines': ['a']}


async def test_client_finds_no_schemas_on_text_agent() -> None:
    async with A2AClient(Agent('test', name='plain')) as remote:
        assert (await remote.input_schema(), await remote.output_schema()) == (None, None)
        with pytest.raises(CardRefused, match=r'The agent card of plain declares no outputSchema\.'):
            await remote.output_type()


CIRCLE = {
    '$ref': '#/$defs/Node',
    '$defs': {'Node': {'type': 'object', 'properties': {'next': {'$ref': '#/$defs/Node'}}}},
}
HOSTILE: dict[str, tuple[Any, str]] = {
    'too large': ({'type': 'object', 'description': 'x' * 33_000}, ': must not have more than 32000 bytes of JSON'),
    'another document': ({'type': 'object', '$ref': 'https://evil.example'}, '.$ref: must be'),
    'no schema': (7, ': must be a JSON Schema'),
    'no keyword': ({'type': 'object', 'required': 'all'}, '.required: Input should be a valid list'),
}


def card_with_schema(schema: Any, **more: Any) -> Target:
    extension = {'uri': URI, 'params': {'inputSchema': schema, 'outputSchema': schema, **more}}
    return read_card({**CANNED, 'capabilities': {'extensions': [extension]}})


@pytest.mark.parametrize(('schema', 'fault'), HOSTILE.values(), ids=HOSTILE)
async def test_client_refuses_hostile_card_schema(schema: Any, fault: str) -> None:
    client = A2AClient(card_with_schema(schema))
    for read in (client.input_schema, client.output_schema, client.output_type):
        with pytest.raises(CardRefused) as refused:
            await read()
        assert str(refused.value).startswith('The agent card of canned has a JSON Schema that cannot be used: ')
        assert fault in str(refused.value)


async def test_recursive_schema_is_read_but_builds_no_type() -> None:
    client = A2AClient(card_with_schema(CIRCLE))
    assert await client.input_schema() == {'type': 'object', **CIRCLE}
    with pytest.raises(CardRefused, match='recursion is not supported'):
        await client.output_type()


async def test_client_ignores_malformed_skill_schemas() -> None:
    schema = {'type': 'object'}
    client = A2AClient(
        card_with_schema(schema, skills={'a': 1, 'b': {}, 'c': {'inputSchema': {'type': 'object', 'title': 'c'}}})
    )
    assert [await client.input_schema(name) for name in 'abc'] == [schema, schema, {'type': 'object', 'title': 'c'}]
    assert await A2AClient(card_with_schema(schema, skills=[1])).input_schema('a') == schema
