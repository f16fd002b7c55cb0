"""The extended agent card: who may read it, what it says to whom, and that nobody else is given it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from a2a.compat.v0_3 import types
from a2a.types import AgentCard as OfficialCard
from fasta2a.schema import AgentCard, Skill
from google.protobuf.json_format import ParseDict
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import CombinedToolset, ExternalToolset, FunctionToolset, WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from starlette.requests import Request

from pydantic_ai_a2a import Access, APIKeyAuth, Approvals, Caller, to_a2a, tool_skills

from ...app_client import Answer, Client, Exchange, rpc
from ...dialects import current_dialect, in_no_version
from ...serving import serving
from ..refusals import error_of_answer, serving_without_runs

ANN, BOB = 'the-key-of-ann-1234', 'the-key-of-bob-1234'
AUTH = APIKeyAuth({ANN: Caller(id='ann', tenant='acme', scopes=frozenset({'cards'})), BOB: 'bob'})
CARD = '/.well-known/agent-card.json'
DEPLOY = Skill(
    id='deploy',
    name='Deploy',
    description='Deploys.',
    tags=['ops'],
    input_modes=['text/plain'],
    output_modes=['text/plain'],
)


async def get_extended_card(client: Client, key: str, **headers: str) -> Answer:
    sent = {'X-API-Key': key} | {name.replace('_', '-'): value for name, value in headers.items()}
    return await client.post(rpc('GetExtendedAgentCard'), sent)


def card_from(answer: Answer) -> dict[str, Any]:
    """What an answer says, as the official models of both versions read it, too."""
    assert answer.status == 200
    card = answer.json['result'] if current_dialect().has_envelope else answer.json
    newer = ParseDict(card, OfficialCard(), ignore_unknown_fields=True)
    older = types.AgentCard.model_validate(card)
    assert newer.capabilities.extended_agent_card
    assert older.supports_authenticated_extended_card
    assert [skill.id for skill in newer.skills] == [skill.id for skill in older.skills]
    return card


async def test_extended_card_mapping_adds_skills_and_replaces_fields() -> None:
    more = {'skills': [DEPLOY], 'description': 'Does more.'}
    async with serving(Agent('test', name='agent'), auth=AUTH, access=Access(extended_card=more)) as client:
        public = (await client.get(CARD)).json
        card = card_from(await get_extended_card(client, ANN))
    assert public['capabilities']['extendedAgentCard'] is public['supportsAuthenticatedExtendedCard'] is True
    assert [skill['id'] for skill in public['skills']] == ['agent']
    assert [skill['id'] for skill in card['skills']] == ['agent', 'deploy']
    assert card == {**public, 'skills': card['skills'], 'description': 'Does more.'}


async def test_function_makes_extended_card_per_caller() -> None:
    async def make(caller: Caller, card: AgentCard) -> Mapping[str, Any] | None:
        description = f'{card["description"]} Yours, {caller.tenant}/{caller.id}.'
        card['skills'].clear()  # its own copy
        return {'description': description, 'version': '2'} if caller.id == 'ann' else None

    async with serving(Agent('test', name='agent'), auth=AUTH, access=Access(extended_card=make)) as client:
        cards = [card_from(await get_extended_card(client, ANN)) for _ in range(2)]
        none = error_of_answer(await get_extended_card(client, BOB))
        public = (await client.get(CARD)).json
    assert cards[0] == cards[1]
    assert [cards[0][name] for name in ('description', 'version')] == [
        'An AI agent called agent. Yours, acme/ann.',
        '2',
    ]
    assert cards[0]['skills'] == public['skills'] != []
    assert (none.code, none.reason) == (-32007, 'EXTENDED_AGENT_CARD_NOT_CONFIGURED')


async def test_sync_function_may_return_whole_extended_card() -> None:
    def make(caller: Caller, card: AgentCard) -> AgentCard:
        return {**card, 'name': caller.id, 'skills': [DEPLOY]}

    async with serving(
        Agent('test'), auth=AUTH, access=Access(extended_card=make), url='https://agent.example.com/a'
    ) as client:
        card = card_from(await get_extended_card(client, BOB))
    assert (card['name'], [skill['id'] for skill in card['skills']]) == ('bob', ['deploy'])
    assert {each['url'] for each in card['supportedInterfaces']} == {card['url']} == {'https://agent.example.com/a'}


@pytest.mark.parametrize('headers', [{}, {'X-API-Key': 'wrong'}], ids=['none', 'wrong'])
async def test_extended_card_without_valid_credentials_is_401(headers: dict[str, str]) -> None:
    async with serving(Agent('test'), auth=AUTH, access=Access(extended_card={'description': 'A secret.'})) as client:
        answer = await client.post(rpc('GetExtendedAgentCard'), headers)
    error_of_answer(answer, status=401, id=None)
    assert 'ApiKey' in answer.headers['www-authenticate']
    assert b'secret' not in answer.body


async def test_extended_card_is_refused_without_required_scope() -> None:
    async with serving(
        Agent('test'),
        auth=AUTH,
        access=Access(scopes={'GetExtendedAgentCard': 'cards'}, extended_card={'version': '2'}),
    ) as client:
        lacks = error_of_answer(await get_extended_card(client, BOB), status=403)
        has = card_from(await get_extended_card(client, ANN))
    assert (lacks.reason if current_dialect().has_details else 'PERMISSION_DENIED', has['version']) == (
        'PERMISSION_DENIED',
        '2',
    )


@pytest.mark.parametrize('scopes', [{'GetExtendedAgentCard': 'cards'}, {'*': 'cards'}], ids=['own', 'all'])
async def test_anonymous_caller_gets_401_before_scope_check(scopes: dict[str, str]) -> None:
    def everybody(request: Request) -> Caller:
        return Caller(id=request.headers.get('x-caller', ''))

    async with serving(
        Agent('test'), auth=everybody, access=Access(scopes=scopes, extended_card={'description': 'A secret.'})
    ) as client:
        anonymous = await client.post(rpc('GetExtendedAgentCard'))
        bob = await client.post(rpc('GetExtendedAgentCard'), {'X-Caller': 'bob'})
    assert (anonymous.status, bob.status) == (401, 403)
    assert b'secret' not in anonymous.body + bob.body


@pytest.mark.parametrize('auth', [None, AUTH], ids=['anonymous', 'authenticated'])
async def test_extended_card_is_unavailable_by_default(auth: APIKeyAuth | None) -> None:
    async with serving_without_runs(auth=auth) as client:
        error = error_of_answer(await get_extended_card(client, ANN))
        card = (await client.get(CARD)).json
    older = current_dialect().version == '0.3'
    assert error.reason == ('EXTENDED_AGENT_CARD_NOT_CONFIGURED' if older else 'UNSUPPORTED_OPERATION')
    assert error.message == current_dialect().text('This agent has no extended agent card.')
    assert card['capabilities']['extendedAgentCard'] is card['supportsAuthenticatedExtendedCard'] is False


async def test_extended_card_response_is_private_no_cache() -> None:
    async with serving(Agent('test'), auth=AUTH, access=Access(extended_card={'version': '2'})) as client:
        answer = await get_extended_card(client, ANN)
    assert answer.headers['cache-control'] == 'private, no-cache'
    assert answer.headers['content-type'] == current_dialect().media_type
    assert answer.headers['x-correlation-id'] != ''


@in_no_version('JSON-RPC has POST only')
async def test_extended_card_etag_is_valid_per_caller() -> None:
    async with serving(
        Agent('test'), auth=AUTH, access=Access(extended_card=lambda caller, card: {'version': caller.id})
    ) as client:
        first = await Exchange(client.app, 'GET', '/extendedAgentCard', {'X-API-Key': ANN}, b'').answer()
        known = {'If-None-Match': first.headers['etag']}
        again = await Exchange(client.app, 'GET', '/extendedAgentCard', {'X-API-Key': ANN, **known}, b'').answer()
        other = await Exchange(client.app, 'GET', '/extendedAgentCard', {'X-API-Key': BOB, **known}, b'').answer()
        nobody = await Exchange(client.app, 'GET', '/extendedAgentCard', known, b'').answer()
    assert (again.status, again.body, again.headers['cache-control']) == (304, b'', 'private, no-cache')
    assert (other.status, other.json['version'], nobody.status) == (200, 'bob', 401)


@pytest.mark.parametrize(
    'said', [{'skills': 'none'}, {'version': ''}, {'capabilities': {}}, {'supported_interfaces': []}]
)
async def test_invalid_extended_card_from_function_is_internal_error(
    said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Agent('test'), auth=AUTH, access=Access(extended_card=lambda caller, card: said)) as client:
        error = error_of_answer(await get_extended_card(client, ANN))
    assert (error.code, error.message) == (-32603, current_dialect().text('Internal error.'))
    assert 'Request failed' in caplog.text


@in_no_version('it is refused before anything is served')
@pytest.mark.parametrize(
    ('said', 'message'),
    [
        ({'version': ''}, 'The agent card needs version.'),
        ({'skills': [{'id': 's'}]}, r'skills\[1\] needs name.'),
        (
            {'skills': [{**DEPLOY, 'id': 'test-extended-card'}]},
            "Two skills have the id 'test-extended-card': give one of them another id.",
        ),
        (
            {'capabilities': {'streaming': False}},
            'The extended agent card must have the same capabilities as the public card: remove the field.',
        ),
    ],
)
def test_invalid_extended_card_mapping_is_refused_at_startup(said: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_a2a(Agent('test'), auth=AUTH, access=Access(extended_card=said))


@in_no_version('it is refused before anything is served')
def test_extended_card_needs_auth() -> None:
    with pytest.raises(TypeError, match=r'Access\.extended_card needs auth='):
        to_a2a(Agent('test'), access=Access(extended_card={'version': '2'}))


TOOLS: FunctionToolset[object] = FunctionToolset()


@TOOLS.tool_plain
def forecast() -> str:
    """Tell how the weather will be."""
    return 'sunny'


@TOOLS.tool_plain
def undocumented() -> str:
    return ''


@in_no_version('the card is the same for all')
async def test_tools_become_skills_only_on_request() -> None:
    agent = Agent('test', toolsets=[TOOLS.prefixed('weather'), ExternalToolset([])])
    plain = (await Client(to_a2a(agent)).get(CARD)).json
    told = (await Client(to_a2a(agent, skills=tool_skills(agent))).get(CARD)).json
    some = tool_skills(agent, ['weather_forecast'])
    assert 'forecast' not in json.dumps(plain)
    assert [(skill['id'], skill['description'], skill['tags']) for skill in told['skills']] == [
        ('weather_forecast', 'Tell how the weather will be.', ['tool']),
        ('weather_undocumented', 'Calls the tool weather_undocumented.', ['tool']),
    ]
    assert [skill['id'] for skill in some] == ['weather_forecast']
    with pytest.raises(ValueError, match=r"no function tool 'secret'\. It has weather_forecast, weather_undocumented"):
        tool_skills(agent, ['secret'])


class UppercaseToolset(WrapperToolset[Any]):
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools = await super().get_tools(ctx)
        return {
            name.upper(): replace(tool, tool_def=replace(tool.tool_def, name=name.upper()))
            for name, tool in tools.items()
        }


class PlainWrapper(WrapperToolset[Any]):
    """Keeps the tools."""


async def test_skill_ids_are_tool_names_seen_by_model() -> None:
    def forecast() -> str:
        return ''

    toolsets = [
        FunctionToolset([forecast]).prefixed('eu').prefixed('x'),
        CombinedToolset([FunctionToolset([forecast]).renamed({'news': 'forecast'})]),
        PlainWrapper(FunctionToolset([Tool(forecast, name='logged')])),
        UppercaseToolset(FunctionToolset([forecast])),
    ]
    model = TestModel(call_tools=[])
    agent = Agent(model, toolsets=toolsets)
    await agent.run('hi')
    assert model.last_model_request_parameters is not None
    seen = [tool.name for tool in model.last_model_request_parameters.function_tools]
    assert seen == ['x_eu_forecast', 'news', 'logged', 'FORECAST']
    # A toolset with its own `get_tools` may give any names in a run.
    assert [skill['id'] for skill in tool_skills(agent)] == ['x_eu_forecast', 'news', 'logged']


def test_hide_arguments_takes_tool_names_seen_by_model() -> None:
    def forecast() -> str:
        return ''

    agent = Agent('test', toolsets=[FunctionToolset([forecast]).prefixed('eu')])
    to_a2a(agent, approvals=Approvals(hide_arguments=['eu_forecast']))
    with pytest.raises(
        ValueError, match=r"hide_arguments has 'forecast', but the agent has no such tool\. .*eu_forecast"
    ):
        to_a2a(agent, approvals=Approvals(hide_arguments=['forecast']))
