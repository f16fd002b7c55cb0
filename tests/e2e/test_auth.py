"""The official client with its own authentication, against a real server."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager

import httpx
import jwt
import pytest
from a2a.client import Client, ClientCallContext, ClientConfig, create_client
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.errors import A2AClientError
from a2a.client.interceptors import ClientCallInterceptor
from a2a.types import GetTaskRequest, ListTasksRequest

from .auth_apps import AUDIENCE, ISSUER, KEY, SECRET, TOKEN
from .official import collect, event_summary, state_of, task_of, text_request
from .server import LIMIT, Process, uvicorn


@pytest.fixture(scope='module')
def server() -> Generator[Process]:
    with uvicorn('tests.e2e.auth_apps:app') as running:
        yield running


class FixedCredential(CredentialService):
    """One credential, for the scheme of one name."""

    def __init__(self, scheme: str, credential: str) -> None:
        self._scheme, self._credential = scheme, credential

    async def get_credentials(self, security_scheme_name: str, context: ClientCallContext | None) -> str | None:
        return self._credential if security_scheme_name == self._scheme else None


@asynccontextmanager
async def authenticated_client(
    url: str, scheme: str, credential: str, *, streaming: bool = False
) -> AsyncGenerator[Client]:
    """The official client, which sends a credential as the card says."""
    interceptors: list[ClientCallInterceptor] = [AuthInterceptor(FixedCredential(scheme, credential))]
    async with httpx.AsyncClient(timeout=LIMIT) as http:
        yield await create_client(url, ClientConfig(httpx_client=http, streaming=streaming), interceptors=interceptors)


def token(scope: str) -> str:
    """Make a token of carol. Tests call this when they send the token, because the token expires."""
    claims = {'iss': ISSUER, 'aud': AUDIENCE, 'sub': 'carol', 'scope': scope, 'exp': int(time.time() + LIMIT)}
    return jwt.encode(claims, SECRET, 'HS256')


@pytest.mark.parametrize(
    ('scheme', 'credential'), [('bearer', lambda: TOKEN), ('jwt', lambda: token('send'))], ids=['bearer', 'jwt']
)
async def test_official_client_authenticates_as_the_card_says(
    server: Process, scheme: str, credential: Callable[[], str]
) -> None:
    async with authenticated_client(server.url, scheme, credential()) as client:
        task = await task_of(client.send_message(text_request('hello')))
        assert state_of(task) == 'TASK_STATE_COMPLETED'
        assert await client.get_task(GetTaskRequest(id=task.id)) == task


async def test_official_client_authenticates_streams(server: Process) -> None:
    async with authenticated_client(server.url, 'bearer', TOKEN, streaming=True) as client:
        events = await collect(client.send_message(text_request('hello')))
    assert event_summary(events)[-1] == 'COMPLETED'


async def test_api_key_owner_sees_only_own_tasks(server: Process) -> None:
    async with (
        authenticated_client(server.url, 'bearer', TOKEN) as ann,
        authenticated_client(server.url, 'apiKey', KEY) as bob,
    ):
        await task_of(ann.send_message(text_request('hello')))
        assert (await bob.list_tasks(ListTasksRequest())).total_size == 0


@pytest.mark.parametrize(
    ('scheme', 'credential', 'status'),
    [
        ('none', lambda: '', 401),
        ('bearer', lambda: 'a-token-of-nobody', 401),
        ('jwt', lambda: token('send')[:-4], 401),
        ('jwt', lambda: token('read'), 403),
        ('apiKey', lambda: KEY, 403),
    ],
    ids=['none', 'unknown', 'cut', 'scope', 'key'],
)
@pytest.mark.parametrize('streaming', [False, True], ids=['plain', 'stream'])
async def test_bad_credential_gets_http_401_or_403(
    server: Process, scheme: str, credential: Callable[[], str], status: int, streaming: bool
) -> None:
    async with authenticated_client(server.url, scheme, credential(), streaming=streaming) as client:
        with pytest.raises(A2AClientError, match=f'HTTP Error {status}'):
            await collect(client.send_message(text_request('hello')))


async def test_api_key_in_query_is_not_logged() -> None:
    body = {'jsonrpc': '2.0', 'id': 1, 'method': 'ListTasks'}
    with uvicorn('tests.e2e.auth_apps:in_query') as server:
        async with httpx.AsyncClient(timeout=LIMIT) as http:
            for key, status in ((KEY, 200), ('a-key-of-nobody-1', 401)):
                answer = await http.post(f'{server.url}?key={key}&A2A-Version=1.0', json=body)
                assert answer.status_code == status
                server.wait_for(rf'"POST /\?key=redacted&A2A-Version=1.0 HTTP/1.1" {status}')
        assert KEY not in server.output
        assert 'nobody' not in server.output
        assert '"reasons":{"apiKey":"unknown"}' in server.output
