"""The one card that clients of A2A 1.0 and 0.3 and FastA2A's client read, each with its own parser."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types as v0_3
from a2a.compat.v0_3.conversions import to_core_agent_card
from a2a.helpers import new_text_message
from a2a.types import AgentCard, Role, SendMessageRequest
from fasta2a.client import A2AClient
from fasta2a.schema import SecurityRequirement, SecurityScheme, Skill, agent_card_ta
from google.protobuf.json_format import MessageToDict, ParseDict
from inline_snapshot import snapshot
from pydantic import ValidationError
from pydantic_ai import Agent
from starlette.applications import Starlette

from pydantic_ai_a2a import Results, mount, to_a2a
from pydantic_ai_a2a.wire.extensions.own_extensions import LIVE_TEXT, REPLAY
from pydantic_ai_a2a.wire.extensions.pending_calls_extension import PENDING_CALLS

from ...app_client import Client, RpcError, lifespan
from ...dialects import in_no_version, use_dialect
from ..promised_behaviours import covers
from .test_card import CARD, fetch

pytestmark = in_no_version('there is one card for all versions')

SCHEMES: dict[str, SecurityScheme] = {
    'bearer': {'http_auth_security_scheme': {'scheme': 'Bearer', 'bearer_format': 'JWT'}},
    'device': {
        'oauth2_security_scheme': {
            'flows': {
                'device_code': {'device_authorization_url': 'https://a.example/d', 'token_url': 'https://a.example/t'}
            }
        }
    },
    'key': {'api_key_security_scheme': {'name': 'X-Key', 'location': 'header', 'description': 'Ask us'}},
    'mtls': {'mtls_security_scheme': {}},
    'oauth': {
        'oauth2_security_scheme': {
            'flows': {'client_credentials': {'token_url': 'https://a.example/t', 'scopes': {'read': 'Read'}}}
        }
    },
    'oidc': {'open_id_connect_security_scheme': {'open_id_connect_url': 'https://a.example/oidc'}},
}
REQUIREMENTS: list[SecurityRequirement] = [{'schemes': {'oauth': ['read'], 'mtls': []}}, {'schemes': {'key': []}}]
SKILL = Skill(
    id='s',
    name='S',
    description='Does s.',
    tags=['s'],
    input_modes=['text/plain'],
    output_modes=['text/plain'],
    security_requirements=[{'schemes': {'bearer': []}}],
)


async def secured() -> Any:
    """The card of an agent with all that a card may say of security."""
    agent = Agent('test', name='Safe', description='Keeps things.')
    app = to_a2a(
        agent,
        skills=[SKILL],
        security_schemes=SCHEMES,
        security_requirements=REQUIREMENTS,
        default_input_modes=['text/plain'],
        results=Results(run_metadata=False),
    )
    return (await fetch(app)).json


@covers('card', 'official `a2a-sdk` 1.x client')
async def test_official_1_0_sdk_parses_card() -> None:
    json = await secured()
    plain = ParseDict(json, AgentCard(), ignore_unknown_fields=True)
    card = parse_agent_card(json)  # which prefers the fields of 0.3
    assert card == plain
    assert MessageToDict(card) == snapshot(
        {
            'name': 'Safe',
            'description': 'Keeps things.',
            'supportedInterfaces': [
                {'url': 'http://testserver/', 'protocolBinding': 'JSONRPC', 'protocolVersion': '1.0'},
                {'url': 'http://testserver/', 'protocolBinding': 'HTTP+JSON', 'protocolVersion': '1.0'},
                {'url': 'http://testserver/', 'protocolBinding': 'JSONRPC', 'protocolVersion': '0.3'},
            ],
            'version': '1.0.0',
            'capabilities': {
                'streaming': True,
                'pushNotifications': False,
                'extensions': [LIVE_TEXT, PENDING_CALLS, REPLAY],
                'extendedAgentCard': False,
            },
            'securitySchemes': {
                'oauth': {
                    'oauth2SecurityScheme': {
                        'flows': {'clientCredentials': {'tokenUrl': 'https://a.example/t', 'scopes': {'read': 'Read'}}}
                    }
                },
                'mtls': {'mtlsSecurityScheme': {}},
                'bearer': {'httpAuthSecurityScheme': {'scheme': 'Bearer', 'bearerFormat': 'JWT'}},
                'key': {'apiKeySecurityScheme': {'description': 'Ask us', 'location': 'header', 'name': 'X-Key'}},
                'oidc': {'openIdConnectSecurityScheme': {'openIdConnectUrl': 'https://a.example/oidc'}},
                'device': {
                    'oauth2SecurityScheme': {
                        'flows': {
                            'deviceCode': {
                                'deviceAuthorizationUrl': 'https://a.example/d',
                                'tokenUrl': 'https://a.example/t',
                            }
                        }
                    }
                },
            },
            'securityRequirements': [{'schemes': {'oauth': {'list': ['read']}, 'mtls': {}}}, {'schemes': {'key': {}}}],
            'defaultInputModes': ['text/plain'],
            'defaultOutputModes': ['text/plain'],
            'skills': [
                {
                    'id': 's',
                    'name': 'S',
                    'description': 'Does s.',
                    'tags': ['s'],
                    'inputModes': ['text/plain'],
                    'outputModes': ['text/plain'],
                    'securityRequirements': [{'schemes': {'bearer': {}}}],
                }
            ],
        }
    )


@covers('card', 'official `a2a-sdk` 1.x client')
async def test_official_1_0_client_chooses_version_1_0() -> None:
    app = to_a2a(Agent('test'))
    asked: list[tuple[str, str | None]] = []

    async def note(request: httpx.Request) -> None:
        asked.append((str(request.url), request.headers.get('A2A-Version')))

    async with (
        lifespan(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), event_hooks={'request': [note]}) as http,
    ):
        factory = ClientFactory(ClientConfig(httpx_client=http, streaming=False))
        client = await factory.create_from_url('http://testserver')
        said = SendMessageRequest(message=new_text_message('hello', role=Role.ROLE_USER))
        [answer] = [each async for each in client.send_message(said)]
    assert answer.task.artifacts[0].parts[0].text == 'success (no tool calls)'
    assert asked[1:] == [('http://testserver/', '1.0')]


@covers('card')
async def test_official_0_3_sdk_parses_card() -> None:
    card = v0_3.AgentCard.model_validate(await secured())
    assert card.model_dump(mode='json', by_alias=True, exclude_none=True) == snapshot(
        {
            'capabilities': {
                'extensions': [LIVE_TEXT, PENDING_CALLS, REPLAY],
                'pushNotifications': False,
                'streaming': True,
            },
            'defaultInputModes': ['text/plain'],
            'defaultOutputModes': ['text/plain'],
            'description': 'Keeps things.',
            'name': 'Safe',
            'preferredTransport': 'JSONRPC',
            'protocolVersion': '0.3.0',
            'security': [{'oauth': ['read'], 'mtls': []}, {'key': []}],
            'securitySchemes': {
                'bearer': {'bearerFormat': 'JWT', 'scheme': 'Bearer', 'type': 'http'},
                'device': {'flows': {}, 'type': 'oauth2'},
                'key': {'description': 'Ask us', 'in': 'header', 'name': 'X-Key', 'type': 'apiKey'},
                'mtls': {'type': 'mutualTLS'},
                'oauth': {
                    'flows': {'clientCredentials': {'scopes': {'read': 'Read'}, 'tokenUrl': 'https://a.example/t'}},
                    'type': 'oauth2',
                },
                'oidc': {'openIdConnectUrl': 'https://a.example/oidc', 'type': 'openIdConnect'},
            },
            'skills': [
                {
                    'description': 'Does s.',
                    'id': 's',
                    'inputModes': ['text/plain'],
                    'name': 'S',
                    'outputModes': ['text/plain'],
                    'security': [{'bearer': []}],
                    'tags': ['s'],
                }
            ],
            'supportsAuthenticatedExtendedCard': False,
            'url': 'http://testserver/',
            'version': '1.0.0',
        }
    )


@covers('card')
async def test_card_has_same_content_in_both_versions() -> None:
    json = await secured()
    of_0_3 = MessageToDict(to_core_agent_card(v0_3.AgentCard.model_validate(json)))
    of_1_0 = MessageToDict(parse_agent_card(json))
    # what 0.3 has no words for
    del of_1_0['supportedInterfaces']
    assert of_0_3.pop('supportedInterfaces') == snapshot(
        [{'url': 'http://testserver/', 'protocolBinding': 'JSONRPC', 'protocolVersion': '0.3.0'}]
    )
    flows = of_1_0['securitySchemes']['device']['oauth2SecurityScheme'].pop('flows')
    assert of_0_3['securitySchemes']['device']['oauth2SecurityScheme'].pop('flows') == {}
    assert list(flows) == ['deviceCode']
    assert of_0_3 == of_1_0


@covers('card', 'card behind a proxy or mount')
async def test_fasta2a_client_uses_url_of_card() -> None:
    parent = Starlette()
    mount(parent, '/agents/weather', to_a2a(Agent('test'), security_schemes=SCHEMES))
    card = agent_card_ta.validate_python((await fetch(parent, f'/agents/weather{CARD}')).json)
    async with httpx.AsyncClient() as http:
        client = A2AClient(card, http_client=http)
        assert client.http_client.base_url == 'http://testserver/agents/weather/'


@covers('card')
async def test_fasta2a_cannot_parse_1_0_security_requirements() -> None:
    with pytest.raises(
        ValidationError, match=r'securityRequirements\.0\.schemes\.oauth\n  Input should be a valid list'
    ):
        agent_card_ta.validate_python(await secured())


@covers('card')
async def test_card_declares_versions_served_by_each_binding() -> None:
    app = to_a2a(Agent('test'))
    card = (await fetch(app)).json
    served: list[tuple[str, str]] = []
    for name, binding in (('1.0', 'JSONRPC'), ('HTTP+JSON', 'HTTP+JSON')):
        with use_dialect(name), pytest.raises(RpcError) as refused:
            await Client(app).call('GetTask', {'id': 'x'}, A2A_Version='9.9')
        versions = refused.value.data[0]['metadata']['supportedVersions'].split(', ')
        served += [(binding, version) for version in versions]
    declared = [(each['protocolBinding'], each['protocolVersion']) for each in card['supportedInterfaces']]
    assert sorted(declared) == sorted(served)
    # of 0.3 there is nothing but what `url` and `preferredTransport` say
    assert 'additionalInterfaces' not in card
