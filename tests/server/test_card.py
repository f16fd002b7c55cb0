"""The agent card: what it says of the agent and its security, and what it refuses."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from fasta2a.schema import (
    AgentExtension,
    AgentProvider,
    ApiKeySecurityScheme,
    AuthorizationCodeOAuthFlow,
    HttpSecurityScheme,
    MutualTlsSecurityScheme,
    OAuth2SecurityScheme,
    OAuthFlows,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    Skill,
)
from inline_snapshot import snapshot

from pydantic_ai_a2a.server.card.card_facts import CardFacts
from pydantic_ai_a2a.server.card.card_settings import CardSettings
from pydantic_ai_a2a.server.card.template import CardTemplate

AGENT_FACTS = CardFacts(
    name='Weather_Agent 2',
    description='Knows the weather.',
    input_modes=['text/plain', 'image/png'],
    output_modes=['application/json'],
)
URL = 'https://example.com/agent/'
BEARER = SecurityScheme(http_auth_security_scheme=HttpSecurityScheme(scheme='Bearer', bearer_format='JWT'))
SKILL = Skill(
    id='s', name='S', description='Does s.', tags=['s'], input_modes=['text/plain'], output_modes=['text/plain']
)


def rendered_card(facts: CardFacts = AGENT_FACTS, **settings: Any) -> dict[str, Any]:
    return json.loads(CardTemplate(facts, CardSettings(**settings)).render(URL))


def test_card_settings_override_the_agent() -> None:
    settings = CardSettings(
        name='Meteo',
        description='Forecasts.',
        version='2.1.0',
        provider=AgentProvider(organization='Example', url='https://example.com'),
        skills=[
            SKILL,
            cast('Skill', {'id': 't', 'name': 'T', 'description': 'Does t.', 'tags': ['t'], 'examples': ['t?']}),
        ],
        extensions=[AgentExtension(uri='https://example.com/ext', description='More', required=False, params={'a': 1})],
        security_schemes={'bearer': BEARER},
        security_requirements=[SecurityRequirement(schemes={'bearer': []})],
    )
    assert json.loads(CardTemplate(AGENT_FACTS, settings).render(URL)) == snapshot(
        {
            'name': 'Meteo',
            'description': 'Forecasts.',
            'supportedInterfaces': [
                {'url': 'https://example.com/agent/', 'protocolBinding': 'JSONRPC', 'protocolVersion': '1.0'},
                {'url': 'https://example.com/agent/', 'protocolBinding': 'HTTP+JSON', 'protocolVersion': '1.0'},
                {'url': 'https://example.com/agent/', 'protocolBinding': 'JSONRPC', 'protocolVersion': '0.3'},
            ],
            'version': '2.1.0',
            'capabilities': {
                'streaming': True,
                'pushNotifications': False,
                'extendedAgentCard': False,
                'extensions': [
                    {'uri': 'https://example.com/ext', 'description': 'More', 'required': False, 'params': {'a': 1}}
                ],
            },
            'defaultInputModes': ['text/plain', 'image/png'],
            'defaultOutputModes': ['application/json'],
            'skills': [
                {
                    'id': 's',
                    'name': 'S',
                    'description': 'Does s.',
                    'tags': ['s'],
                    'inputModes': ['text/plain'],
                    'outputModes': ['text/plain'],
                },
                {
                    'id': 't',
                    'name': 'T',
                    'description': 'Does t.',
                    'tags': ['t'],
                    'examples': ['t?'],
                    'inputModes': ['text/plain', 'image/png'],
                    'outputModes': ['application/json'],
                },
            ],
            'provider': {'organization': 'Example', 'url': 'https://example.com'},
            'securitySchemes': {
                'bearer': {
                    'httpAuthSecurityScheme': {'scheme': 'Bearer', 'bearerFormat': 'JWT'},
                    'type': 'http',
                    'scheme': 'Bearer',
                    'bearerFormat': 'JWT',
                }
            },
            'securityRequirements': [{'schemes': {'bearer': {'list': []}}}],
            'security': [{'bearer': []}],
            'url': 'https://example.com/agent/',
            'preferredTransport': 'JSONRPC',
            'protocolVersion': '0.3.0',
            'supportsAuthenticatedExtendedCard': False,
        }
    )


def test_card_of_nameless_agent_has_neutral_defaults() -> None:
    built = rendered_card(
        CardFacts(name=None, description=None, input_modes=['text/plain'], output_modes=['text/plain'])
    )
    assert (built['name'], built['description'], built['skills']) == snapshot(
        (
            'agent',
            'An AI agent called agent.',
            [
                {
                    'id': 'agent',
                    'name': 'agent',
                    'description': 'An AI agent called agent.',
                    'tags': ['agent'],
                    'inputModes': ['text/plain'],
                    'outputModes': ['text/plain'],
                }
            ],
        )
    )


@pytest.mark.parametrize(
    ('name', 'slug'),
    [('Weather Agent', 'weather-agent'), ('my_agent.v2', 'my-agent-v2'), ('天気', '天気'), ('!?', 'agent')],
)
def test_default_skill_id_is_slugged_agent_name(name: str, slug: str) -> None:
    assert [skill['id'] for skill in rendered_card(name=name)['skills']] == [slug]


def test_last_32_rendered_cards_are_cached() -> None:
    template = CardTemplate(AGENT_FACTS, CardSettings())
    rendered = [template.render(f'https://{n}.example/') for n in range(100)]
    assert [n for n in range(99, -1, -1) if template.render(f'https://{n}.example/') is rendered[n]] == [
        *range(99, 67, -1)
    ]


INVALID_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({'version': ''}, 'The agent card needs version.'),
    ({'skills': [{**SKILL, 'id': ''}]}, r'skills\[0\] needs id.'),
    ({'skills': [SKILL, {'id': 'x'}]}, r'skills\[1\] needs name.'),
    ({'skills': [{**SKILL, 'description': ''}]}, r'skills\[0\] needs description.'),
    ({'skills': [{**SKILL, 'tags': []}]}, r'skills\[0\] needs tags.'),
    ({'skills': [{**SKILL, 'input_modes': []}]}, r'skills\[0\] needs input_modes.'),
    ({'skills': [SKILL, SKILL]}, "Two skills have the id 's': give one of them another id."),
    ({'provider': {'organization': 'Example'}}, 'provider needs url.'),
    ({'extensions': [{'description': 'x'}]}, r'extensions\[0\] needs uri.'),
    ({'skills': [{**SKILL, 'examples': 'one'}]}, r'skills\.0\.examples\n  Input should be a valid list'),
]


@pytest.mark.parametrize(('settings', 'message'), INVALID_SETTINGS)
def test_invalid_card_settings_are_refused_at_build(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rendered_card(**settings)


@pytest.mark.parametrize('modes', ['input_modes', 'output_modes'])
def test_card_without_input_or_output_modes_is_refused(modes: str) -> None:
    facts: dict[str, Any] = {
        'name': None,
        'description': None,
        'input_modes': ['a/b'],
        'output_modes': ['a/b'],
        modes: [],
    }
    with pytest.raises(ValueError, match=f'The agent card needs default_{modes}'):
        rendered_card(CardFacts(**facts))


# --- security

FLOW = AuthorizationCodeOAuthFlow(authorization_url='https://a.example/login', token_url='https://a.example/token')


def test_security_scheme_has_1_0_and_0_3_fields() -> None:
    schemes = {
        'bearer': SecurityScheme(
            http_auth_security_scheme=HttpSecurityScheme(scheme='Bearer', bearer_format='JWT', description='Log in')
        ),
        'key': SecurityScheme(api_key_security_scheme=ApiKeySecurityScheme(name='X-Key', location='header')),
        'oauth': SecurityScheme(
            oauth2_security_scheme=OAuth2SecurityScheme(
                flows=OAuthFlows(authorization_code={**FLOW, 'scopes': {'read': 'Read'}, 'pkce_required': True}),
                oauth2_metadata_url='https://a.example/metadata',
            )
        ),
        'oidc': SecurityScheme(
            open_id_connect_security_scheme=OpenIdConnectSecurityScheme(open_id_connect_url='https://a.example/oidc')
        ),
        'mtls': SecurityScheme(mtls_security_scheme=MutualTlsSecurityScheme()),
    }
    assert rendered_card(security_schemes=schemes)['securitySchemes'] == snapshot(
        {
            'bearer': {
                'httpAuthSecurityScheme': {'scheme': 'Bearer', 'bearerFormat': 'JWT', 'description': 'Log in'},
                'type': 'http',
                'scheme': 'Bearer',
                'bearerFormat': 'JWT',
                'description': 'Log in',
            },
            'key': {
                'apiKeySecurityScheme': {'name': 'X-Key', 'location': 'header'},
                'type': 'apiKey',
                'name': 'X-Key',
                'in': 'header',
            },
            'oauth': {
                'oauth2SecurityScheme': {
                    'flows': {
                        'authorizationCode': {
                            'scopes': {'read': 'Read'},
                            'authorizationUrl': 'https://a.example/login',
                            'tokenUrl': 'https://a.example/token',
                            'pkceRequired': True,
                        }
                    },
                    'oauth2MetadataUrl': 'https://a.example/metadata',
                },
                'type': 'oauth2',
                'flows': {
                    'authorizationCode': {
                        'scopes': {'read': 'Read'},
                        'authorizationUrl': 'https://a.example/login',
                        'tokenUrl': 'https://a.example/token',
                        'pkceRequired': True,
                    }
                },
                'oauth2MetadataUrl': 'https://a.example/metadata',
            },
            'oidc': {
                'openIdConnectSecurityScheme': {'openIdConnectUrl': 'https://a.example/oidc'},
                'type': 'openIdConnect',
                'openIdConnectUrl': 'https://a.example/oidc',
            },
            'mtls': {'mtlsSecurityScheme': {}, 'type': 'mutualTLS'},
        }
    )


def test_oauth_flow_without_scopes_gets_empty_scopes() -> None:
    built = rendered_card(security_schemes={'o': {'oauth2_security_scheme': {'flows': {'authorization_code': FLOW}}}})
    oauth = built['securitySchemes']['o']
    assert (
        oauth['flows']
        == oauth['oauth2SecurityScheme']['flows']
        == snapshot(
            {
                'authorizationCode': {
                    'scopes': {},
                    'authorizationUrl': 'https://a.example/login',
                    'tokenUrl': 'https://a.example/token',
                }
            }
        )
    )


def test_card_without_security_has_no_security_fields() -> None:
    assert [key for key in rendered_card() if key.startswith('security')] == []


REFUSED_SCHEMES: list[tuple[dict[str, Any], str]] = [
    ({'type': 'http', 'scheme': 'Bearer'}, r"security_schemes\['x'\] must have exactly one kind, not none."),
    (
        {'mtls_security_scheme': {}, 'http_auth_security_scheme': {'scheme': 'Basic'}},
        'must have exactly one kind, not http_auth_security_scheme, mtls_security_scheme.',
    ),
    ({'http_auth_security_scheme': {}}, r'security_schemes\.x\.http_auth_security_scheme\.scheme\n  Field required'),
    (
        {'api_key_security_scheme': {'name': 'k', 'location': 'body'}},
        r"security_schemes\['x'\] location must be one of header, query, cookie, not 'body'.",
    ),
    ({'oauth2_security_scheme': {}}, r"security_schemes\['x'\] flows must have exactly one kind, not none."),
    (
        {'oauth2_security_scheme': {'flows': {'authorization_code': FLOW, 'password': {'token_url': 't'}}}},
        'flows must have exactly one kind, not authorization_code, password.',
    ),
]


@pytest.mark.parametrize(('scheme', 'message'), REFUSED_SCHEMES)
def test_invalid_security_scheme_is_refused(scheme: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rendered_card(security_schemes={'x': scheme})


def test_requirement_of_unknown_security_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="The security scheme 'a' is required"):
        rendered_card(security_requirements=[{'schemes': {'b': [], 'a': []}}])


def test_unknown_security_scheme_of_skill_is_refused() -> None:
    skill = Skill({**SKILL, 'security_requirements': [{'schemes': {'a': []}}]})
    with pytest.raises(ValueError, match="The security scheme 'a' is required"):
        rendered_card(skills=[skill])
