"""TLS and mTLS: the official client with certificates and tokens."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar

import grpc
import httpx
import pytest
from a2a.client import ClientConfig, create_client
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.types import GetTaskRequest, ListTasksRequest, TaskState
from cryptography.x509 import DNSName, IPAddress, RFC822Name, UniformResourceIdentifier
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import TLS, Authenticator, BearerAuth, Caller, RequestInfo, run, serve_grpc, to_a2a
from pydantic_ai_a2a.errors import CannotListen

from ...app_client import LIMIT, lifespan
from ...e2e.official import collect, event_summary, text_request
from .certificates import LOCAL, Authority, Pair
from .grpc_client import GrpcAgent as Peer
from .grpc_client import send_request as message

AGENT = Agent(TestModel(custom_output_text='The answer.'))
TOKEN = 'the-token-of-ann-1234'


class ByCertificate(Authenticator):
    """Finds the caller by the name in its certificate."""

    schemes: ClassVar[Any] = {'mtls': {'mtls_security_scheme': {}}}

    async def authenticate(self, request: RequestInfo) -> Caller | None:
        return Caller(id=request.tls_names[0]) if request.tls_names else None


@pytest.fixture(scope='module')
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp('certificates'), 'authority')


@pytest.fixture(scope='module')
def server(authority: Authority) -> Pair:
    return authority.sign('server', *LOCAL)


def channel(address: str, authority: Authority, pair: Pair | None = None) -> grpc.aio.Channel:
    """A channel with TLS, and a certificate of the client."""
    own = () if pair is None else (pair.key.read_bytes(), pair.certificate.read_bytes())
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority.file.read_bytes(), *own))


async def test_official_client_works_with_mutual_tls_and_token(authority: Authority, server: Pair) -> None:
    class Wallet(CredentialService):
        async def get_credentials(self, security_scheme_name: str, context: object) -> str | None:
            return TOKEN

    app = to_a2a(AGENT, auth=BearerAuth({TOKEN: 'ann'}))
    tls = TLS(certificate=server.certificate, key=server.key, client_ca=authority.file)
    own = authority.sign('ann', DNSName('ann.example.com'))
    async with (
        lifespan(app),
        serve_grpc(app, port=0, tls=tls) as state,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url='http://127.0.0.1', timeout=LIMIT) as http,
    ):
        assert state['grpc_address'].startswith('127.0.0.1:')
        config = ClientConfig(
            httpx_client=http,
            supported_protocol_bindings=['GRPC'],
            grpc_channel_factory=lambda address: channel(address, authority, own),
        )
        async with await create_client('http://127.0.0.1', config, interceptors=[AuthInterceptor(Wallet())]) as client:
            events = await collect(client.send_message(text_request('hello')))
            task = await client.get_task(GetTaskRequest(id=events[0].task.id))
            listed = await client.list_tasks(ListTasksRequest())
    assert event_summary(events)[-1] == 'COMPLETED'
    assert (TaskState.Name(task.status.state), listed.total_size) == ('TASK_STATE_COMPLETED', 1)


@pytest.mark.parametrize(
    ('names', 'owner'),
    [
        ([], 'CN:plain'),
        ([DNSName('one.example.com'), UniformResourceIdentifier('spiffe://example.com/two')], 'DNS:one.example.com'),
        ([UniformResourceIdentifier('spiffe://example.com/two')], 'URI:spiffe://example.com/two'),
        ([IPAddress(ip_address('192.0.2.7'))], 'IP:192.0.2.7'),
        ([RFC822Name('ann@example.com')], 'email:ann@example.com'),
    ],
    ids=['common name', 'host', 'SPIFFE', 'address', 'mail'],
)
async def test_certificate_names_reach_the_authenticator(
    authority: Authority, server: Pair, names: list[Any], owner: str
) -> None:
    app = to_a2a(AGENT, auth=ByCertificate())
    tls = TLS(certificate=server.certificate, key=str(server.key), client_ca=authority.file)
    async with lifespan(app), serve_grpc(app, port=0, tls=tls) as state:
        async with channel(state['grpc_address'], authority, authority.sign('plain', *names)) as connection:
            await Peer(connection).call('SendMessage', message())
        mine = await app.list_tasks(caller=Caller(id=owner))
    assert len(mine) == 1


PLANNER = 'spiffe://example.com/planner'


class Planner(Authenticator):
    """Lets the planner in, as the page of gRPC does."""

    async def authenticate(self, request: RequestInfo) -> Caller | None:
        return Caller(id='planner') if f'URI:{PLANNER}' in request.tls_names else None


@pytest.mark.parametrize(
    ('common_name', 'names'),
    [
        (PLANNER, []),
        (PLANNER, [DNSName('other.example.com')]),
        ('other', [DNSName(PLANNER)]),
        ('other', [UniformResourceIdentifier(f'{PLANNER}\0.example.org')]),
        ('other', [UniformResourceIdentifier(PLANNER), DNSName('a\0b')]),
    ],
    ids=['common name', 'common name beside a name', 'host', 'NUL', 'NUL in another name'],
)
async def test_certificate_cannot_spoof_uri_of_another_client(
    authority: Authority, server: Pair, common_name: str, names: list[Any]
) -> None:
    app = to_a2a(AGENT, auth=Planner())
    tls = TLS(certificate=server.certificate, key=server.key, client_ca=authority.file)
    async with lifespan(app), serve_grpc(app, port=0, tls=tls) as state:
        own = authority.sign('foreign', *names, common_name=common_name)
        async with channel(state['grpc_address'], authority, own) as connection:
            refused = await Peer(connection).refused('SendMessage', message())
    assert refused.code == 'UNAUTHENTICATED'


async def test_client_without_a_trusted_certificate_cannot_connect(
    authority: Authority, server: Pair, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, 'stranger').sign('ann')
    app = to_a2a(AGENT, auth=ByCertificate())
    tls = TLS(certificate=server.certificate, key=server.key, client_ca=authority.file)
    async with lifespan(app), serve_grpc(app, port=0, tls=tls) as state:
        for own in (None, stranger):
            async with channel(state['grpc_address'], authority, own) as connection:
                refused = await Peer(connection).refused('SendMessage', message())
            assert refused.code == 'UNAVAILABLE'
        async with grpc.aio.insecure_channel(state['grpc_address']) as connection:
            assert (await Peer(connection).refused('SendMessage', message())).code == 'UNAVAILABLE'
    assert await app.list_tasks() == []


async def test_tls_without_client_ca_needs_no_client_certificate(authority: Authority, server: Pair) -> None:
    async with serve_grpc(AGENT, port=0, tls=TLS(certificate=server.certificate, key=server.key)) as state:
        async with channel(state['grpc_address'], authority) as connection:
            task = (await Peer(connection).call('SendMessage', message())).task
        async with channel(state['grpc_address'], authority, authority.sign('ann')) as connection:
            assert (await Peer(connection).call('GetTask', GetTaskRequest(id=task.id))) == task


def test_grpc_client_certificates_are_optional_by_default(authority: Authority, server: Pair, tmp_path: Path) -> None:
    given = tmp_path / 'authority.pem'
    given.write_bytes(authority.file.read_bytes())

    @asynccontextmanager
    async def beside(app: Any) -> AsyncGenerator[None]:
        given.unlink()  # uvicorn has read the file, and gRPC reads it only to verify clients
        yield

    options: dict[str, Any] = {'ssl_certfile': server.certificate, 'ssl_keyfile': server.key, 'ssl_ca_certs': given}
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=rf'Cannot listen on 127\.0\.0\.1 port {port} for gRPC'):
            run(to_a2a(AGENT, lifespan=beside), port=0, grpc_port=port, log_config=None, **options)


async def test_missing_or_invalid_tls_files_are_rejected(server: Pair, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        async with serve_grpc(AGENT, port=0, tls=TLS(certificate=tmp_path / 'no.pem', key=server.key)):
            pass  # pragma: no cover
    with pytest.raises(OSError, match=r'a file of tls= is no certificate or key in PEM form\.'):
        async with serve_grpc(AGENT, port=0, tls=TLS(certificate=server.key, key=server.key)):
            pass  # pragma: no cover
