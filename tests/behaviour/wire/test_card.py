"""The agent card as clients fetch it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai.profiles import ModelProfile
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from pydantic_ai_a2a import to_a2a

from ...app_client import Answer, Client, Exchange
from ...dialects import in_no_version
from ..promised_behaviours import covers

pytestmark = in_no_version('there is one card for all versions')

CARD = '/.well-known/agent-card.json'


class Weather(BaseModel):
    sunny: bool


async def fetch(app: ASGIApp, path: str = CARD, **headers: str) -> Answer:
    return await Client(app).get(path, {name.replace('_', '-'): value for name, value in headers.items()})


def url_of(answer: Answer) -> str:
    assert answer.status == 200
    [url] = {answer.json['url'], *(interface['url'] for interface in answer.json['supportedInterfaces'])}
    return url


@covers('card')
async def test_card_is_derived_from_agent_and_model() -> None:
    model = TestModel(profile=ModelProfile(supports_image_input=True, supports_document_input=False))
    agent = Agent(model, name='Weather Agent', description='Knows the weather.', output_type=[Weather, str])
    answer = await fetch(to_a2a(agent))
    assert answer.headers['content-type'] == 'application/json'
    assert answer.json == snapshot(
        {
            'name': 'Weather Agent',
            'description': 'Knows the weather.',
            'supportedInterfaces': [
                {'url': 'http://testserver/', 'protocolBinding': 'JSONRPC', 'protocolVersion': '1.0'},
                {'url': 'http://testserver/', 'protocolBinding': 'HTTP+JSON', 'protocolVersion': '1.0'},
                {'url': 'http://testserver/', 'protocolBinding': 'JSONRPC', 'protocolVersion': '0.3'},
            ],
            'version': '1.0.0',
            'capabilities': {
                'streaming': True,
                'pushNotifications': False,
                'extensions': [
                    {
                        'uri': 'https://pypi.org/project/pydantic-ai-a2a/#run-metadata-v1',
                        'description': (
                            'Tasks of requests that activate the extension have the run id, the model and the'
                            ' usage in their metadata.'
                        ),
                    },
                    {
                        'uri': 'https://pypi.org/project/pydantic-ai-a2a/#live-text-v1',
                        'description': (
                            'Activate the extension, in A2A-Extensions, for streams with the text of the answer while'
                            ' the model writes it: other streams may have the text in one update, at its end. An update'
                            ' without append begins the text, updates with append continue it, and the last one is'
                            ' empty.'
                        ),
                    },
                    {
                        'uri': 'https://pypi.org/project/pydantic-ai-a2a/#pending-calls-v1',
                        'description': (
                            'A task that waits for its client lists the answers it needs in a data part, with their'
                            ' JSON Schema.'
                        ),
                    },
                    {
                        'uri': 'https://pypi.org/project/pydantic-ai-a2a/#message-replay-v1',
                        'description': (
                            'A message that is sent again with the same messageId, of at least 16 characters, and the'
                            ' same content is answered with its first task.'
                        ),
                    },
                    {
                        'uri': 'https://pypi.org/project/pydantic-ai-a2a/#json-schemas-v1',
                        'description': 'JSON Schemas of the data that begins a task, and of the data of an answer.',
                        'params': {
                            'outputSchema': {
                                'properties': {'sunny': {'title': 'Sunny', 'type': 'boolean'}},
                                'required': ['sunny'],
                                'title': 'Weather',
                                'type': 'object',
                            }
                        },
                    },
                ],
                'extendedAgentCard': False,
            },
            'defaultInputModes': [
                'text/plain',
                'application/json',
                'image/jpeg',
                'image/png',
                'image/gif',
                'image/webp',
                'audio/wav',
                'audio/mpeg',
                'video/mp4',
            ],
            'defaultOutputModes': ['text/plain', 'application/json'],
            'skills': [
                {
                    'id': 'weather-agent',
                    'name': 'Weather Agent',
                    'description': 'Knows the weather.',
                    'tags': ['agent'],
                    'inputModes': [
                        'text/plain',
                        'application/json',
                        'image/jpeg',
                        'image/png',
                        'image/gif',
                        'image/webp',
                        'audio/wav',
                        'audio/mpeg',
                        'video/mp4',
                    ],
                    'outputModes': ['text/plain', 'application/json'],
                }
            ],
            'url': 'http://testserver/',
            'preferredTransport': 'JSONRPC',
            'protocolVersion': '0.3.0',
            'supportsAuthenticatedExtendedCard': False,
        }
    )


@covers('card')
async def test_unnamed_agent_has_card_with_default_skill() -> None:
    card = (await fetch(to_a2a(Agent('test')))).json
    assert (card['name'], card['description']) == ('test_card', 'An AI agent called test_card.')
    assert [(skill['id'], skill['name'], skill['description']) for skill in card['skills']] == [
        ('test-card', 'test_card', 'An AI agent called test_card.')
    ]


@covers('card')
@pytest.mark.parametrize(
    ('source', 'module', 'name'),
    [
        ("poet = Agent('test'); app = to_a2a(poet)", {'__name__': 'shop.main'}, 'poet'),
        ("agent = Agent('test'); app = agent.to_a2a()", {'__name__': 'shop.main'}, 'shop'),
        ("app = to_a2a(Agent('test'))", {'__name__': 'joker'}, 'joker'),
        ("agent = Agent('test'); app = to_a2a(agent)", {'__name__': '__main__', '__file__': '/a/joker.py'}, 'joker'),
        ("agent = Agent('test'); app = to_a2a(agent)", {'__name__': '__main__'}, 'agent'),
        ("poet = Agent('test', name='Ovid'); app = to_a2a(poet)", {'__name__': 'joker'}, 'Ovid'),
        ("poet = Agent('test', name='Ovid'); app = to_a2a(poet, name='Naso')", {'__name__': 'joker'}, 'Naso'),
    ],
)
async def test_unnamed_agent_is_named_after_variable_or_module(source: str, module: dict[str, Any], name: str) -> None:
    exec(source, module := {'Agent': Agent, 'to_a2a': to_a2a, **module})
    assert (await fetch(module['app'])).json['name'] == name


@covers('card')
async def test_output_modes_follow_output_type() -> None:
    of_agent = (await fetch(to_a2a(Agent('test', output_type=Weather)))).json
    of_runs = (await fetch(to_a2a(Agent('test'), output_type=Weather))).json
    assert of_agent['defaultOutputModes'] == of_runs['defaultOutputModes'] == ['application/json']


@covers('card')
async def test_input_modes_follow_model_profile() -> None:
    blind = TestModel(
        profile=ModelProfile(
            supports_image_input=False,
            supports_document_input=False,
            supports_audio_file_input=False,
            supports_video_input=False,
        )
    )
    everything = (await fetch(to_a2a(Agent('test')))).json['defaultInputModes']
    assert (await fetch(to_a2a(Agent(blind)))).json['defaultInputModes'] == ['text/plain', 'application/json']
    assert (await fetch(to_a2a(Agent('test'), model=blind))).json['defaultInputModes'] == [
        'text/plain',
        'application/json',
    ]
    assert {'image/png', 'application/pdf', 'audio/wav', 'video/mp4'} <= set(everything)


@covers('card')
async def test_card_reveals_no_instructions_prompts_or_tools() -> None:
    agent = Agent('test', name='A', system_prompt='the first secret', instructions='the second secret')

    @agent.instructions
    def more() -> str:
        return 'the third secret'

    @agent.tool_plain
    def secret_tool() -> str:
        """The fourth secret."""
        return ''

    app = to_a2a(agent, instructions='the fifth secret')
    assert b'secret' not in (await fetch(app)).body.lower()


@covers('card')
async def test_card_needs_no_provider_api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('OPENAI_API_KEY', raising=False)
    agent = Agent('openai:gpt-5.2', name='A', defer_model_check=True)
    assert (await fetch(to_a2a(agent))).json['name'] == 'A'
    assert (await fetch(to_a2a(Agent(None, name='B'), model='openai:gpt-5.2'))).json['name'] == 'B'


@covers('card')
async def test_unchanged_card_is_304_for_known_etag() -> None:
    app = to_a2a(Agent('test'))
    first = await fetch(app)
    tag = first.headers['etag']
    assert tag.startswith('"')
    assert first.headers['cache-control'] == 'public, max-age=3600'
    for known in (tag, f'W/{tag}', f'"other", {tag}', '*'):
        again = await fetch(app, If_None_Match=known)
        assert (again.status, again.body, again.headers) == (
            304,
            b'',
            {name: first.headers[name] for name in ('etag', 'cache-control', 'vary')},
        )
    assert (await fetch(app, If_None_Match='"other"')).body == first.body


@covers('card')
async def test_changed_card_has_new_etag() -> None:
    tags = {(await fetch(to_a2a(Agent('test'), version=version))).headers['etag'] for version in ('1', '2', '1')}
    assert len(tags) == 2


@covers('card')
async def test_head_of_card_has_headers_of_get() -> None:
    app = to_a2a(Agent('test'))
    whole, head = await fetch(app), await Client(app).get(CARD, method='HEAD')
    assert (head.status, head.body, head.headers) == (200, b'', whole.headers)
    assert int(head.headers['content-length']) == len(whole.body)


@covers('card')
async def test_post_to_card_path_is_405() -> None:
    app = to_a2a(Agent('test'))
    assert (await Client(app).get(CARD, method='POST')).status == 405


# Its URL.


NO_HOST = [(b'accept', b'*/*')]
REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    'host': ({'headers': [(b'host', b'agents.example:8443')]}, 'http://agents.example:8443/'),
    'scheme': ({'scheme': 'https'}, 'https://testserver/'),
    'no host': ({'headers': NO_HOST, 'server': ['10.0.0.1', 8001]}, 'http://10.0.0.1:8001/'),
    'no host, another port': ({'headers': NO_HOST, 'server': ['10.0.0.1', 8002]}, 'http://10.0.0.1:8002/'),
    'root path of proxy': ({'path': f'/proxy{CARD}', 'root_path': '/proxy'}, 'http://testserver/proxy/'),
}


@covers('card behind a proxy or mount')
async def test_card_url_follows_request(subtests: pytest.Subtests) -> None:
    app = to_a2a(Agent('test'))
    for case, (scope, url) in REQUESTS.items():
        with subtests.test(case):
            exchange = Exchange(app, 'GET', CARD, {}, b'')
            exchange.scope |= scope
            answer = await exchange.answer()
            assert url_of(answer) == url
            assert answer.headers['vary'] == 'Host'


@covers('card behind a proxy or mount')
async def test_card_url_can_be_set() -> None:
    app = to_a2a(Agent('test'), url='https://public.example/agent')
    assert url_of(await fetch(app)) == 'https://public.example/agent'


@covers('card behind a proxy or mount')
async def test_forwarded_headers_need_a_trusted_proxy() -> None:
    app = to_a2a(Agent('test'))
    behind: Callable[[ASGIApp, str], ASGIApp] = cast('Any', ProxyHeadersMiddleware)  # types of its own
    forwarded = {'X_Forwarded_Proto': 'https', 'X_Forwarded_Host': 'evil.example', 'X_Forwarded_Prefix': '/evil'}
    assert url_of(await fetch(app, **forwarded)) == 'http://testserver/'
    assert url_of(await fetch(behind(app, 'elsewhere'), **forwarded)) == 'http://testserver/'
    assert url_of(await fetch(behind(app, 'testclient'), **forwarded)) == 'https://testserver/'
