from __future__ import annotations

import json
import re
from typing import Any, cast

import pytest
from fasta2a.schema import (
    AgentExtension,
    AgentProvider,
    HttpSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    Skill,
)
from inline_snapshot import snapshot

from pydantic_ai_a2a.card import CardFacts, CardSettings, CardTemplate, etag

FACTS = CardFacts(
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


def card(facts: CardFacts = FACTS, **settings: Any) -> dict[str, Any]:
    return json.loads(CardTemplate(facts, CardSettings(**settings)).render(URL))


def test_a_card_says_what_the_agent_says() -> None:
    assert card() == snapshot(
        {
            'name': 'Weather_Agent 2',
            'description': 'Knows the weather.',
            'supportedInterfaces': [
                {'url': 'https://example.com/agent/', 'protocolBinding': 'JSONRPC', 'protocolVersion': '1.0'},
                {'url': 'https://example.com/agent/', 'protocolBinding': 'HTTP+JSON', 'protocolVersion': '1.0'},
                {'url': 'https://example.com/agent/', 'protocolBinding': 'JSONRPC', 'protocolVersion': '0.3'},
            ],
            'version': '1.0.0',
            'capabilities': {'streaming': True, 'pushNotifications': False, 'extendedAgentCard': False},
            'defaultInputModes': ['text/plain', 'image/png'],
            'defaultOutputModes': ['application/json'],
            'skills': [
                {
                    'id': 'weather-agent-2',
                    'name': 'Weather_Agent 2',
                    'description': 'Knows the weather.',
                    'tags': ['agent'],
                    'inputModes': ['text/plain', 'image/png'],
                    'outputModes': ['application/json'],
                }
            ],
            'url': 'https://example.com/agent/',
            'preferredTransport': 'JSONRPC',
            'protocolVersion': '0.3.0',
            'supportsAuthenticatedExtendedCard': False,
        }
    )


def test_what_the_user_sets_goes_before_what_the_agent_says() -> None:
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
    assert json.loads(CardTemplate(FACTS, settings).render(URL)) == snapshot(
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


def test_an_agent_without_name_and_description_has_a_neutral_card() -> None:
    built = card(CardFacts(name=None, description=None, input_modes=['text/plain'], output_modes=['text/plain']))
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
def test_the_derived_skill_is_named_after_the_agent(name: str, slug: str) -> None:
    assert [skill['id'] for skill in card(name=name)['skills']] == [slug]


def test_only_the_url_differs_between_requests() -> None:
    template = CardTemplate(FACTS, CardSettings())
    first, second = template.render('https://a.example/'), template.render('https://b.example/')
    assert first.replace(b'a.example', b'b.example') == second
    assert template.render('https://a.example/') is first


def test_few_rendered_cards_are_kept() -> None:
    template = CardTemplate(FACTS, CardSettings())
    rendered = [template.render(f'https://{n}.example/') for n in range(100)]
    assert [n for n in range(99, -1, -1) if template.render(f'https://{n}.example/') is rendered[n]] == [
        *range(99, 67, -1)
    ]


def test_the_entity_tag_is_strong_and_of_the_content() -> None:
    template = CardTemplate(FACTS, CardSettings())
    first, again, other = (etag(template.render(url)) for url in ('https://a/', 'https://a/', 'https://b/'))
    assert first == again != other
    assert re.fullmatch(r'"[0-9a-f]{64}"', first)


REFUSED: list[tuple[dict[str, Any], str]] = [
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


@pytest.mark.parametrize(('settings', 'message'), REFUSED)
def test_a_card_that_is_none_is_refused_when_it_is_built(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        card(**settings)


@pytest.mark.parametrize('modes', ['input_modes', 'output_modes'])
def test_an_agent_without_modes_is_refused(modes: str) -> None:
    facts: dict[str, Any] = {
        'name': None,
        'description': None,
        'input_modes': ['a/b'],
        'output_modes': ['a/b'],
        modes: [],
    }
    with pytest.raises(ValueError, match=f'The agent card needs default_{modes}'):
        card(CardFacts(**facts))
