from __future__ import annotations

from typing import Any

import pytest
from fasta2a.schema import (
    ApiKeySecurityScheme,
    AuthorizationCodeOAuthFlow,
    HttpSecurityScheme,
    MutualTlsSecurityScheme,
    OAuth2SecurityScheme,
    OAuthFlows,
    OpenIdConnectSecurityScheme,
    SecurityScheme,
    Skill,
)
from inline_snapshot import snapshot
from pydantic_core import from_json

from pydantic_ai_a2a.card import CardFacts, CardSettings, CardTemplate

FACTS = CardFacts(name='A', description='Does a.', input_modes=['text/plain'], output_modes=['text/plain'])
SKILL = Skill(
    id='s', name='S', description='Does s.', tags=['s'], input_modes=['text/plain'], output_modes=['text/plain']
)
FLOW = AuthorizationCodeOAuthFlow(authorization_url='https://a.example/login', token_url='https://a.example/token')


def card(**settings: Any) -> dict[str, Any]:
    return from_json(CardTemplate(FACTS, CardSettings(**settings)).render('https://a.example/'))


def test_a_scheme_has_the_shapes_of_both_versions_in_one_object() -> None:
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
    assert card(security_schemes=schemes)['securitySchemes'] == snapshot(
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


def test_a_flow_without_scopes_has_none() -> None:
    built = card(security_schemes={'o': {'oauth2_security_scheme': {'flows': {'authorization_code': FLOW}}}})
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


def test_requirements_have_the_shapes_of_both_versions_under_keys_of_their_own() -> None:
    built = card(
        security_schemes={
            'key': {'api_key_security_scheme': {'name': 'k', 'location': 'query'}},
            'mtls': {'mtls_security_scheme': {}},
            'oauth': {'oauth2_security_scheme': {'flows': {'authorization_code': FLOW}}},
        },
        security_requirements=[{'schemes': {'oauth': ['read', 'write'], 'mtls': []}}, {'schemes': {'key': []}}],
        skills=[{**SKILL, 'security_requirements': [{'schemes': {'oauth': ['admin']}}]}],
    )
    [skill] = built['skills']
    assert [(each['securityRequirements'], each['security']) for each in (built, skill)] == snapshot(
        [
            (
                [
                    {'schemes': {'oauth': {'list': ['read', 'write']}, 'mtls': {'list': []}}},
                    {'schemes': {'key': {'list': []}}},
                ],
                [{'oauth': ['read', 'write'], 'mtls': []}, {'key': []}],
            ),
            ([{'schemes': {'oauth': {'list': ['admin']}}}], [{'oauth': ['admin']}]),
        ]
    )


def test_a_card_without_security_says_nothing_of_it() -> None:
    assert [key for key in card() if key.startswith('security')] == []


REFUSED: list[tuple[dict[str, Any], str]] = [
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


@pytest.mark.parametrize(('scheme', 'message'), REFUSED)
def test_a_scheme_that_some_client_cannot_read_is_refused(scheme: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        card(security_schemes={'x': scheme})


def test_a_requirement_of_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="The security scheme 'a' is required"):
        card(security_requirements=[{'schemes': {'b': [], 'a': []}}])
