"""`versions=`: which protocol versions the card declares and the server serves."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from a2a.compat.v0_3 import types
from a2a.types import AgentCard as OfficialCard
from google.protobuf.json_format import ParseDict
from pydantic_ai import Agent

from pydantic_ai_a2a import Access, APIKeyAuth, to_a2a

from ...app_client import message, rpc, state_of
from ...dialects import DIALECTS, current_dialect, in_no_version, only_in
from ...serving import serving
from ..refusals import error_of_answer, serving_without_runs

KEY = 'the-key-of-ann-1234'
AUTH = APIKeyAuth({KEY: 'ann'})
OLDER_FIELDS = {'url', 'preferredTransport', 'protocolVersion', 'supportsAuthenticatedExtendedCard', 'security'}
NEWER_FIELDS = {'supportedInterfaces', 'securityRequirements'}


async def cards(*versions: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The public card, and the extended one."""
    chosen: Any = versions
    access = Access(versions=chosen, extended_card={'description': 'More.'})
    async with serving(Agent('test'), auth=AUTH, access=access) as client:
        public = (await client.get('/.well-known/agent-card.json')).json
        body = rpc('GetExtendedAgentCard', {}, DIALECTS[versions[0]])
        answer = await client.post(body, {'X-API-Key': KEY, 'A2A-Version': versions[0]})
    return public, answer.json['result']


@in_no_version('it is about the card')
async def test_card_for_1_0_alone_omits_0_3_fields() -> None:
    both, _ = await cards('1.0', '0.3')
    for card in await cards('1.0'):
        read = ParseDict(card, OfficialCard())  # which refuses what it does not know
        assert [(each.protocol_binding, each.protocol_version) for each in read.supported_interfaces] == [
            ('JSONRPC', '1.0'),
            ('HTTP+JSON', '1.0'),
        ]
        assert both.keys() - card.keys() == OLDER_FIELDS
        assert card['securitySchemes'] == {
            name: {kind: fields for kind, fields in scheme.items() if kind.endswith('SecurityScheme')}
            for name, scheme in both['securitySchemes'].items()
        }


@in_no_version('it is about the card')
async def test_card_for_0_3_alone_omits_1_0_fields() -> None:
    both, _ = await cards('1.0', '0.3')
    for card in await cards('0.3'):
        read = types.AgentCard.model_validate(card)
        assert (read.url, read.preferred_transport, read.protocol_version) == (
            'http://testserver/',
            'JSONRPC',
            '0.3.0',
        )
        assert (read.security, read.supports_authenticated_extended_card) == ([{'apiKey': []}], True)
        assert both.keys() - card.keys() == NEWER_FIELDS
        assert 'extendedAgentCard' not in card['capabilities']
        assert read.model_dump(mode='json', by_alias=True, exclude_none=True) == card


async def test_disabled_version_is_refused_in_every_operation(subtests: pytest.Subtests) -> None:
    methods = ['SendMessage', 'SendStreamingMessage', 'GetTask', 'SubscribeToTask']
    other: Any = '0.3' if current_dialect().version == '1.0' else '1.0'
    async with serving_without_runs(access=Access(versions=[other])) as client:
        for method, named in product(methods, [True, False]):
            with subtests.test(method, named=named):
                client.headers = {'A2A-Version': current_dialect().version} if named else {}
                answer = await client.post(rpc(method, {'message': message(), 'id': 't'}))
                if current_dialect().has_envelope:
                    error = answer.json['error']
                    assert (answer.status, answer.json['id'], error['code']) == (200, 'r-1', -32009)
                    assert f"A2A version '{current_dialect().version}' is not supported" in error['message']
                else:
                    error = error_of_answer(answer, status=400)
                    assert error.data[0]['metadata']['supportedVersions'] == '0.3'


async def test_enabled_version_is_served() -> None:
    mine: Any = current_dialect().version
    async with serving(Agent('test'), access=Access(versions=[mine])) as client:
        task = await client.send()
        async with client.send_streaming() as stream:
            events = await stream.rest()
        client.headers = {}
        assert (await client.get_task(task['id']))['id'] == task['id']
    assert (state_of(task), len(events) > 1) == ('COMPLETED', True)


@only_in('HTTP+JSON', 'it is about its paths')
async def test_http_json_paths_name_the_enabled_version() -> None:
    async with serving_without_runs(access=Access(versions=['0.3'])) as client:
        for path in ('/tasks', '/message:send', '/v1/message:send', '/v1/card'):
            error = error_of_answer(await client.get(path, method='POST' if 'send' in path else 'GET'), status=400)
            assert (error.code, error.message.partition('; ')[2]) == (-32009, 'use 0.3 over JSON-RPC.')
        described = (await client.get('/')).json
    assert described.keys() == {
        'name',
        'description',
        'version',
        'url',
        'preferredTransport',
        'protocolVersion',
        'agentCard',
    }


@in_no_version('it is about an argument')
def test_unknown_version_setting_is_refused_at_startup() -> None:
    with pytest.raises(ValueError, match=r"versions\[0\] takes '1\.0' or '0\.3', not the string '2\.0'"):
        to_a2a(Agent('test'), access=Access(versions=['2.0']))  # pyright: ignore[reportArgumentType]
