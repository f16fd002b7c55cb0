"""HTTP+JSON on the wire (§11): its paths, verbs, queries, media types and errors; what it does is tested for all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from itertools import product
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pydantic_ai_a2a import Access, BearerAuth, mount, to_a2a
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS

from ...agents import GatedAgent
from ...app_client import Answer, Client, Exchange, lifespan, message, rpc, state_of
from ...dialects import PATHS, only_in
from ...serving import serving
from ..refusals import error_of_answer, serving_without_runs

pytestmark = only_in('HTTP+JSON', 'it is about how it says things')

JSON = {'Content_Type': 'application/json'}


async def request_json(app: ASGIApp, verb: str, path: str, body: bytes = b'', **headers: str) -> Answer:
    """An answer to a request as it is given; header names are written with `_` for `-`."""
    named = {name.replace('_', '-'): value for name, value in headers.items()}
    return await Exchange(app, verb, path, named, body).answer()


# --- paths and verbs ------------------------------------------------------------------------------------------------


def test_paths_of_tests_match_operations_table() -> None:
    written = {
        name: {(verb, path.replace('{id}', '{taskId}').replace('{configId}', '{id}')) for verb, path in operation.http}
        for name, operation in OPERATIONS.items()
        if 'Push' in name
    } | {name: set(operation.http) for name, operation in OPERATIONS.items() if 'Push' not in name}
    assert written == {name: {path} for name, path in PATHS.items()} | {
        'SubscribeToTask': {('POST', '/tasks/{id}:subscribe'), ('GET', '/tasks/{id}:subscribe')}
    }


@pytest.mark.parametrize('verb', ['GET', 'POST'])
async def test_subscribe_works_by_get_and_post(verb: str) -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        task = await client.send('wait', returnImmediately=True)
        await gates.reached('wait')
        exchange = Exchange(client.app, verb, f'/tasks/{task["id"]}:subscribe', {}, b'')
        start = await exchange.next()
        first = await exchange.next()
        gates.open('wait')
        rest = b''.join([part async for part in bodies(exchange)])
    assert dict(start['headers'])[b'content-type'] == b'text/event-stream'
    events = [frame.split(b'\n') for frame in (first['body'] + rest).split(b'\n\n')[:-1]]
    said = [json.loads(data.removeprefix(b'data: ')) for _, data in events]
    assert [list(each) for each in said] == [['task'], *([['artifactUpdate']] * (len(said) - 2)), ['statusUpdate']]
    numbers = [int(id.removeprefix(b'id: ')) for id, _ in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(said)))


async def bodies(exchange: Exchange) -> AsyncIterator[bytes]:
    while True:
        part = await exchange.next()
        yield part['body']
        if not part.get('more_body'):
            return


@pytest.mark.parametrize(
    ('verb', 'path', 'allowed'),
    [
        ('GET', '/message:send', 'POST'),
        ('DELETE', '/message:stream', 'POST'),
        ('POST', '/tasks', 'GET'),
        ('HEAD', '/tasks', 'GET'),
        ('DELETE', '/tasks/t', 'GET'),
        ('GET', '/tasks/t:cancel', 'POST'),
        ('PUT', '/tasks/t:subscribe', 'GET, POST'),
        ('PATCH', '/tasks/t/pushNotificationConfigs', 'GET, POST'),
        ('POST', '/tasks/t/pushNotificationConfigs/c', 'DELETE, GET'),
        ('OPTIONS', '/extendedAgentCard', 'GET'),
        ('POST', '/tasks/:cancel', 'GET'),
    ],
)
async def test_wrong_verb_is_405_with_allowed_verbs(verb: str, path: str, allowed: str) -> None:
    async with serving_without_runs() as client:
        answer = await request_json(client.app, verb, path, Content_Type='application/json')
    error = error_of_answer(answer, status=405)
    assert (error.code, answer.headers['allow']) == (-32601, allowed)
    assert error.message.endswith(f'Use {allowed.replace(", ", " or ")}.')
    assert answer.json['error']['status'] == 'UNIMPLEMENTED'


LOOK_ALIKE_PATHS = [
    '/message:',
    '/message:nothing',
    '/tasks//',
    '/tasks//:cancel',
    '/tasks/t/nothing',
    '/tasks/t:cancel/more',
    '/tasks/../health/ready',
    '/tasks/t/pushNotificationConfigs/c/more',
    '/tasks/%2e%2e/%2e%2e/secret',
]


async def test_path_resembling_an_operation_is_404(subtests: pytest.Subtests) -> None:
    async with serving_without_runs() as client:
        for verb, path in product(['GET', 'POST', 'DELETE'], LOOK_ALIKE_PATHS):
            with subtests.test(f'{verb} {path}'):
                answer = await request_json(client.app, verb, path)
                assert error_of_answer(answer, status=404).reason == 'METHOD_NOT_FOUND'


async def test_trailing_slash_and_encoded_colon_are_accepted() -> None:
    async with serving(Agent('test')) as client:
        body = json.dumps({'message': message()}).encode()
        task = (await request_json(client.app, 'POST', '/message:send/', body, **JSON)).json['task']
        for encoded in ('/message%3Asend', '/message%3asend/'):
            again = await request_json(client.app, 'POST', encoded, body, **JSON)
            assert again.json['task']['id'] == task['id']
        got = await request_json(client.app, 'GET', f'/tasks/{task["id"]}/')
        listed = await request_json(client.app, 'GET', '/tasks/')
    assert got.json == task
    assert [each['id'] for each in listed.json['tasks']] == [task['id']]


@pytest.mark.parametrize(
    ('path', 'found'),
    [
        ('/tasks/{}', True),
        ('/tasks/{}%2F', False),
        ('/tasks/%2F{}', False),
        ('/tasks/{}%3Acancel', False),
        ('/tasks/{}%3Fx', False),
        ('/tasks/{}%00', False),
        ('/tasks/{}%ff', False),
        ('/tasks/{}:unknown', False),
    ],
)
async def test_task_id_is_percent_decoded_path_segment(path: str, found: bool) -> None:
    async with serving(Agent('test')) as client:
        task = await client.send()
        encoded = ''.join(f'%{ord(character):02X}' for character in task['id'])
        plain = await request_json(client.app, 'GET', path.format(task['id']))
        answer = await request_json(client.app, 'GET', path.format(encoded))
    assert plain.json.get('id') == answer.json.get('id') == (task['id'] if found else None)
    assert found or error_of_answer(answer).code in (-32001, -32602)


@pytest.mark.parametrize('raw_path', [None, b'/elsewhere', b''])
async def test_requests_are_routed_without_usable_raw_path(raw_path: bytes | None) -> None:
    async def server(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, 'raw_path': raw_path}, receive, send)

    app = to_a2a(Agent('test'))
    async with lifespan(app):
        task = await Client(server).send()
        assert (await Client(server).get_task(task['id']))['id'] == task['id']


@pytest.mark.parametrize('mounted', [mount, Starlette.mount])
async def test_binding_is_served_below_mount_path(mounted: Any) -> None:
    app, parent = to_a2a(Agent('test')), Starlette()
    mounted(parent, '/agents/joker', app)
    async with lifespan(parent):
        client = Client(parent, path='/agents/joker/')
        task = await client.send()
        assert (await client.get_task(task['id']))['id'] == task['id']
        answer = await client.get('/agents/joker/tasks/x/y')
        card = await client.get('/agents/joker/.well-known/agent-card.json')
        outside = await client.get('/tasks')
    assert (error_of_answer(answer).reason, outside.status) == ('METHOD_NOT_FOUND', 404)
    assert card.json['supportedInterfaces'][1] == {
        'url': 'http://testserver/agents/joker/',
        'protocolBinding': 'HTTP+JSON',
        'protocolVersion': '1.0',
    }


async def test_user_routes_are_served_beside_binding() -> None:
    def told(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.url.path)

    own = [Route('/tasks/{id}/notes', told), Route('/message:mine', told), Mount('/', Route('/{rest:path}', told))]
    async with serving(Agent('test'), routes=own) as client:
        paths = ('/tasks/t/notes', '/message:mine', '/v1/tasks', '/anything')
        assert [(await request_json(client.app, 'GET', path)).body.decode() for path in paths] == [*paths]
        assert state_of(await client.send()) == 'COMPLETED'


@pytest.mark.parametrize('path', ['/tasks', '/tasks/{task_id}', '/message:send'])
async def test_binding_is_off_if_user_route_takes_its_path(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test'), routes=[Route(path, PlainTextResponse('mine'))]) as client:
        card = await request_json(client.app, 'GET', '/.well-known/agent-card.json')
        answer = await request_json(client.app, 'GET', '/extendedAgentCard')
    assert {each['protocolBinding'] for each in card.json['supportedInterfaces']} == {'JSONRPC'}
    assert (answer.status, answer.json['error']['code']) == (404, 404)
    assert 'HTTP+JSON' not in str(answer.json)
    assert caplog.messages == [
        f'The HTTP+JSON binding is not served: routes= already uses its path {path}. Change the path of this route.'
    ]


# --- versions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ('query', 'headers'),
    [('', {}), ('', {'A2A-Version': ''}), ('', {'A2A-Version': '1.0.7'}), ('?A2A-Version=1.0', {})],
)
async def test_version_defaults_to_1_0(query: str, headers: Mapping[str, str]) -> None:
    async with serving_without_runs() as client:
        answer = await Exchange(client.app, 'GET', f'/tasks{query}', headers, b'').answer()
    assert (answer.status, answer.json['tasks']) == (200, [])


@pytest.mark.parametrize(
    ('path', 'headers'),
    [
        ('/tasks', {'A2A-Version': '0.3'}),
        ('/tasks', {'A2A-Version': '9.9'}),
        ('/tasks?A2A-Version=0.3', {}),
        ('/v1/tasks', {}),
        ('/v1/tasks/t:cancel', {}),
        ('/v1/message:send', {'A2A-Version': '0.3'}),
        ('/v1/card', {}),
    ],
)
async def test_other_versions_and_0_3_paths_are_refused(path: str, headers: Mapping[str, str]) -> None:
    async with serving_without_runs() as client:
        error = error_of_answer(await Exchange(client.app, 'GET', path, headers, b'').answer(), status=400)
    assert (error.code, error.reason) == (-32009, 'VERSION_NOT_SUPPORTED')
    assert error.data[0]['metadata']['supportedVersions'] == '1.0'
    assert ('The paths of 1.0 have no /v1: write /message:send.' in error.message) == path.startswith('/v1/')


# --- params ---------------------------------------------------------------------------------------------------------


async def test_query_params_are_camel_or_snake_case() -> None:
    async with serving(Agent('test')) as client:
        for text in ('one', 'two'):
            await client.send(message(text, contextId='a context & more'))
        camel = 'contextId=a+context+%26%20more&pageSize=1&historyLength=1&includeArtifacts=true&pageToken=&unknown=1'
        proto = 'context_id=a%20context+%26+more&page_size=1&history_length=1&include_artifacts=true&x=1&x=2'
        states = 'status=TASK_STATE_COMPLETED&statusTimestampAfter=2020-01-01T00:00:00Z&includeArtifacts=false'
        pages = [(await request_json(client.app, 'GET', f'/tasks?{query}')).json for query in (camel, proto, states)]
    assert pages[0] == pages[1]
    assert [(len(page['tasks']), page['pageSize'], page['totalSize']) for page in pages] == [(1, 1, 2)] * 2 + [
        (2, 50, 2)
    ]
    assert [('artifacts' in page['tasks'][0], len(page['tasks'][0]['history'])) for page in pages[1:]] == [
        (True, 1),
        (False, 2),
    ]


@pytest.mark.parametrize(
    ('query', 'fields'),
    [
        ('pageSize=0', ['pageSize']),
        ('pageSize=ten', ['pageSize']),
        ('page_size=1.5&historyLength=-5', ['pageSize', 'historyLength']),
        ('includeArtifacts=yes', ['includeArtifacts']),
        ('includeArtifacts=1', ['includeArtifacts']),
        ('status=WORKING', ['status']),
        ('status=TASK_STATE_WORKING&status=TASK_STATE_COMPLETED', ['status']),
        ('contextId=a&context_id=b', ['contextId']),
        ('contextId=nul%00', ['contextId']),
        ('statusTimestampAfter=yesterday', ['statusTimestampAfter']),
        ('pageToken=nonsense', ['pageToken']),
        ('contextId=%ff', []),
        ('&'.join('a=b' for _ in range(200)), []),
    ],
)
async def test_wrong_query_params_are_named_in_error(query: str, fields: list[str]) -> None:
    async with serving_without_runs() as client:
        error = error_of_answer(await request_json(client.app, 'GET', f'/tasks?{query}'), status=400)
    assert (error.code, error.fields) == (-32602, fields)


@pytest.mark.parametrize(
    'body',
    [b'', b'{}', b'{"id": null}', b'{"id": ""}', b'{"id": "t", "unknown": [1]}', b'{"metadata": {"why": "late"}}'],
)
async def test_body_may_omit_id_of_path(body: bytes) -> None:
    async with serving_without_runs() as client:
        assert error_of_answer(await request_json(client.app, 'POST', '/tasks/t:cancel', body, **JSON)).code == -32001


@pytest.mark.parametrize(
    ('verb', 'path', 'body'),
    [
        ('POST', '/tasks/t:cancel', b'{"id": "other"}'),
        ('POST', '/tasks/t:cancel', b'{"id": ["t"]}'),
        ('POST', '/tasks/t:subscribe', b'{"id": 7}'),
        ('GET', '/tasks/t?id=other', b''),
    ],
)
async def test_id_contradicting_path_is_refused(verb: str, path: str, body: bytes) -> None:
    async with serving_without_runs() as client:
        error = error_of_answer(await request_json(client.app, verb, path, body, **JSON), status=400)
    assert (error.code, error.fields) == (-32602, ['id'])


# --- media types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('declared', ['application/a2a+json', 'application/json; charset=utf-8', 'APPLICATION/JSON'])
async def test_json_is_accepted_and_answered_as_a2a_json(declared: str) -> None:
    async with serving(Agent('test')) as client:
        body = json.dumps({'message': message()}).encode()
        answer = await request_json(client.app, 'POST', '/message:send', body, Content_Type=declared)
    assert (answer.status, answer.headers['content-type']) == (200, 'application/a2a+json')


@pytest.mark.parametrize('path', ['', '?pageSize=1', '/no-such-task', '?pageSize=0'])
async def test_task_reads_forbid_caching(path: str) -> None:
    async with serving_without_runs() as client:
        answer = await request_json(client.app, 'GET', f'/tasks{path}')
    assert answer.headers['cache-control'] == 'no-store'


@pytest.mark.parametrize(
    ('body', 'headers'),
    [
        (b'{}', {'Content_Type': 'text/plain'}),
        (b'', {'Content_Type': 'text/plain'}),
        (b'', {'Content_Type': 'application/x-www-form-urlencoded'}),
        (b'{}', {}),
        (b'', {'Origin': 'https://evil.example'}),
    ],
)
async def test_cancel_without_json_content_type_is_refused(body: bytes, headers: dict[str, str]) -> None:
    async with serving_without_runs() as client:
        answer = await request_json(client.app, 'POST', '/tasks/t:cancel', body, **headers)
    assert error_of_answer(answer, status=415).message.endswith('application/a2a+json or application/json.')


async def test_empty_body_needs_no_content_type() -> None:
    async with serving_without_runs() as client:
        assert error_of_answer(await request_json(client.app, 'POST', '/tasks/t:cancel'), status=404).code == -32001


# --- errors ---------------------------------------------------------------------------------------------------------


async def test_error_is_a_google_rpc_status() -> None:
    async with serving_without_runs() as client:
        answer = await request_json(client.app, 'POST', '/message:send', b'{"message": {"role": "ROLE_AGENT"}}', **JSON)
    written = answer.json
    assert written['error']['details'][0]['metadata'].pop('correlationId') == answer.headers['x-correlation-id']
    assert (answer.status, answer.headers['content-type']) == (400, 'application/a2a+json')
    assert written == snapshot(
        {
            'error': {
                'code': 400,
                'status': 'INVALID_ARGUMENT',
                'message': 'Invalid parameters: message.messageId: Field required; message.role: must be ROLE_USER:'
                ' clients speak as users; message.parts: Field required',
                'details': [
                    {
                        '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
                        'reason': 'INVALID_PARAMS',
                        'domain': 'a2a-protocol.org',
                        'metadata': {},
                    },
                    {
                        '@type': 'type.googleapis.com/google.rpc.BadRequest',
                        'fieldViolations': [
                            {'field': 'message.messageId', 'description': 'Field required'},
                            {'field': 'message.role', 'description': 'must be ROLE_USER: clients speak as users'},
                            {'field': 'message.parts', 'description': 'Field required'},
                        ],
                    },
                ],
            }
        }
    )


@pytest.mark.parametrize(
    ('name', 'http', 'status', 'reason'),
    [
        ('GetTask', 404, 'NOT_FOUND', 'TASK_NOT_FOUND'),
        ('CancelTask', 404, 'NOT_FOUND', 'TASK_NOT_FOUND'),
        ('SubscribeToTask', 404, 'NOT_FOUND', 'TASK_NOT_FOUND'),
        ('GetExtendedAgentCard', 400, 'FAILED_PRECONDITION', 'UNSUPPORTED_OPERATION'),
        *((name, 400, 'FAILED_PRECONDITION', 'PUSH_NOTIFICATION_NOT_SUPPORTED') for name in PATHS if 'Push' in name),
    ],
)
async def test_errors_map_to_http_and_rpc_status(name: str, http: int, status: str, reason: str) -> None:
    async with serving_without_runs() as client:
        answer = await client.post(rpc(name, {'id': 't', 'taskId': 't'}))
    assert (answer.status, answer.json['error']['status'], error_of_answer(answer).reason) == (http, status, reason)


async def test_authentication_precedes_body_and_verb_checks() -> None:
    async with serving_without_runs(auth=BearerAuth({'a-token-of-some-length': 'ann'})) as client:
        for verb, path in (('POST', '/message:send'), ('GET', '/tasks'), ('DELETE', '/tasks')):
            answer = await request_json(client.app, verb, path, b'no JSON')
            assert (error_of_answer(answer, status=401).reason, answer.headers['www-authenticate']) == (
                'UNAUTHENTICATED',
                'Bearer realm="a2a"',
            )


@pytest.mark.parametrize('prefix', ['', '/agents/joker'])
@pytest.mark.parametrize(('verb', 'path'), [('GET', '/tasks'), ('POST', '/message:send'), ('HEAD', '/tasks/t')])
async def test_http_json_refuses_foreign_host_with_421(prefix: str, verb: str, path: str) -> None:
    async with serving_without_runs(access=Access(allowed_hosts=['agent.example.com'])) as client:
        answer = await request_json(client.app, verb, prefix + path)
        if verb == 'HEAD':
            assert (answer.status, answer.body) == (421, b'')
        else:
            assert error_of_answer(answer, status=421).code == -32600
