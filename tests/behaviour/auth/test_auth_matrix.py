"""Every operation, whoever asks for it: without credentials, with wrong ones, right ones, another's, too few scopes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import pytest
from pydantic_ai import Agent

from pydantic_ai_a2a import Access, Caller, JWTAuth, Push, to_a2a
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS

from ...app_client import Client, lifespan, message, rpc
from ...dialects import BINDINGS, Dialect, current_dialect
from ...server.auth.issuer import AUDIENCE, ISSUER, SECRET, bearer, hs256_token
from ..refusals import error_of_answer
from ..webhook_requests import create_config, list_configs

SCOPES = {name: f'a2a:{name}' for name in OPERATIONS}
EVERY_BINDING = pytest.mark.parametrize('version', BINDINGS, indirect=True)
ENDED = {'SendMessage': -32004, 'SendStreamingMessage': -32004, 'CancelTask': -32002, 'SubscribeToTask': -32004}
"""What a caller learns of its own task, which has ended; the others answer with a result."""


def methods(version: Dialect) -> list[str]:
    return [name for name in OPERATIONS if version.has_lists or name != 'ListTasks']


def token(sub: str = 'ann', *, without: str = '', **changes: Any) -> str:
    scope = ' '.join(scope for name, scope in SCOPES.items() if name != without)
    return hs256_token(sub=sub, scope=scope, **changes)


@asynccontextmanager
async def ended_task_of_ann() -> AsyncGenerator[tuple[Client, dict[str, Any]]]:
    """A client without credentials, and what names a task of ann's that has ended; at the end there is no other."""
    auth = JWTAuth(ISSUER, AUDIENCE, secret=SECRET)
    app = to_a2a(
        Agent('test'), auth=auth, access=Access(scopes=SCOPES, extended_card={'description': 'For you.'}), push=Push()
    )
    async with lifespan(app):
        ann = Client(app, headers=bearer(token()))
        task_id = (await ann.send())['id']
        webhook = {'id': task_id, 'url': 'https://example.com/of-ann'}  # so that all versions find what an id names
        await create_config(ann, task_id, **webhook)
        params = {'id': task_id, 'taskId': task_id, 'message': message(taskId=task_id), 'url': webhook['url']}
        yield Client(app), {**params, 'pushNotificationConfig': webhook, 'pushNotificationConfigId': task_id}
        [unchanged] = await app.list_tasks(caller=Caller(id='ann'))
        assert (unchanged['id'], unchanged['status']['state']) == (task_id, 'completed')
        assert len(await app.list_tasks()) == 1


async def webhooks(client: Client, task_id: str) -> list[str]:
    """Those of ann's task."""
    return [each['id'] for each in await list_configs(Client(client.app, headers=bearer(token())), task_id)]


UNKNOWN: dict[str, tuple[Callable[[], dict[str, str]], str]] = {
    'none': (dict, 'Bearer realm="a2a"'),
    'other kind': (lambda: {'Authorization': 'Basic YW5uOmFubg=='}, 'Bearer realm="a2a"'),
    'wrong': (lambda: bearer(hs256_token('b' * 48)), 'Bearer realm="a2a", error="invalid_token"'),
    'expired': (
        lambda: bearer(token(exp=int(time.time()) - 3600)),
        'Bearer realm="a2a", error="invalid_token", error_description="The token has expired"',
    ),
}
"""Credentials that are nobody's, and the challenge that answers them."""


@EVERY_BINDING
async def test_unknown_credentials_get_401_and_a_challenge(version: Dialect, subtests: pytest.Subtests) -> None:
    async with ended_task_of_ann() as (client, params):
        for method, (case, (credentials, challenge)) in product(methods(version), UNKNOWN.items()):
            with subtests.test(f'{method}: {case}'):
                answer = await client.post(rpc(method, params), credentials())
                assert await webhooks(client, params['id']) == [params['id']]
                error = error_of_answer(answer, status=401, id=None)
                assert (error.code, error.reason) == (-32000, 'UNAUTHENTICATED')
                assert answer.headers['www-authenticate'] == challenge
                assert params['id'].encode() not in answer.body


@EVERY_BINDING
async def test_known_caller_may_call_every_operation(version: Dialect, subtests: pytest.Subtests) -> None:
    for method in methods(version):
        with subtests.test(method):
            async with ended_task_of_ann() as (client, params):
                answer = await client.post(rpc(method, params), bearer(token()))
                assert await webhooks(client, params['id']) == ([] if method.startswith('Delete') else [params['id']])
            code = ENDED.get(method)
            if code is None or (method == 'SubscribeToTask' and not version.refuses_ended):
                assert (answer.status, b'"error"' in answer.body) == (200, False)
            else:
                assert error_of_answer(answer).code == code


@EVERY_BINDING
async def test_another_owner_cannot_read_or_change_task(version: Dialect, subtests: pytest.Subtests) -> None:
    async with ended_task_of_ann() as (client, params):
        for method in methods(version):
            with subtests.test(method):
                answer = await client.post(rpc(method, params), bearer(token('bob')))
                assert await webhooks(client, params['id']) == [params['id']]
                if method == 'ListTasks':
                    page = answer.json['result'] if version.has_envelope else answer.json
                    assert page == {'tasks': [], 'nextPageToken': '', 'pageSize': 50, 'totalSize': 0}
                elif method == 'GetExtendedAgentCard':
                    assert (answer.status, b'For you.' in answer.body) == (200, True)
                else:
                    assert error_of_answer(answer).code == -32001


@EVERY_BINDING
async def test_missing_scope_gets_403_with_scope_name(version: Dialect, subtests: pytest.Subtests) -> None:
    async with ended_task_of_ann() as (client, params):
        for method in methods(version):
            with subtests.test(method):
                needed = SCOPES[method]
                answer = await client.post(rpc(method, params), bearer(token(without=method)))
                assert await webhooks(client, params['id']) == [params['id']]
                error = error_of_answer(answer, status=403)
                assert (error.code, error.message) == (
                    -32000,
                    current_dialect().text(f'The operation needs credentials with the scope: {needed}.'),
                )
                challenge = f'Bearer realm="a2a", error="insufficient_scope", scope="{needed}"'
                assert answer.headers['www-authenticate'] == challenge
                if current_dialect().has_details:
                    assert error.reason == 'PERMISSION_DENIED'
                    assert error.data[0]['metadata']['requiredScopes'] == needed
