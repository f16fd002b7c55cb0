"""TLS of a server that is not accepted, or that the URL does not fit: what the client, `send` and `doctor` say."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from pydantic_ai import Agent

from pydantic_ai_a2a import A2AClient, CardRefused, ClientCredentials, RemoteUnavailable, Server, serve
from pydantic_ai_a2a.tls_problems import tls_problem

from .bounds import LIMIT
from .cases import each_case
from .commands.command import run_command
from .server.grpc.certificates import LOCAL, Authority

Capture = pytest.CaptureFixture[str]
UNTRUSTED = 'Trust its authority: the environment variable SSL_CERT_FILE names a file of authorities.'
INVALID = 'The server needs a certificate that is valid now, and for this host.'


@contextmanager
def served(folder: Path, *names: x509.GeneralName, **options: Any) -> Generator[tuple[Server, Authority]]:
    """Serve an agent over TLS."""
    authority = Authority(folder, 'authority')
    pair = authority.sign('server', *names, **options)
    with serve(Agent('test'), ssl_certfile=pair.certificate, ssl_keyfile=pair.key) as server:
        yield server, authority


async def error_of(url: str) -> str:
    """The error of a client that fetches the card at a URL."""
    async with asyncio.timeout(LIMIT), A2AClient(url, timeout=LIMIT) as client:
        with pytest.raises(RemoteUnavailable) as refused:
            await client.card()
    return str(refused.value)


def at(server: Server, text: str) -> str:
    """The sentence about a server that cannot be reached."""
    return f'{server.url}.well-known/agent-card.json cannot be reached: {text}'


async def test_certificate_of_unknown_authority_is_named(tmp_path: Path) -> None:
    with served(tmp_path, *LOCAL) as (server, _):
        said = await error_of(server.url)
    assert said.startswith(at(server, 'its TLS certificate is not accepted: '))
    assert said.endswith(UNTRUSTED)


@each_case(
    ('names', 'days', 'reason'),
    [
        (LOCAL, -0.5, 'certificate has expired'),
        (LOCAL[:1], 1, "IP address mismatch, certificate is not valid for '127.0.0.1'"),
    ],
)
async def test_reason_against_trusted_certificate_is_named(
    names: Any, days: float, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path, *names, until=timedelta(days=days)) as (server, authority):
        monkeypatch.setenv('SSL_CERT_FILE', str(authority.file))
        assert await error_of(server.url) == at(server, f'its TLS certificate is not accepted: {reason}. {INVALID}')


async def test_server_url_with_certificate_is_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path, *LOCAL) as (server, authority):
        monkeypatch.setenv('SSL_CERT_FILE', str(authority.file))
        async with asyncio.timeout(LIMIT), A2AClient(server.url) as client:
            card = await client.card()
    assert server.url.startswith('https://127.0.0.1:')
    assert [interface['url'] for interface in card.get('supported_interfaces', ())] == [server.url] * 3


async def test_http_to_tls_port_suggests_https(tmp_path: Path) -> None:
    with served(tmp_path, *LOCAL) as (server, _):
        said = await error_of(server.url.replace('https:', 'http:'))
    assert said.endswith('If the port takes only TLS, write https:// in the place of http://.')


async def test_http_without_tls_reads_no_authorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('SSL_CERT_FILE', str(tmp_path / 'missing.pem'))
    with serve(Agent('test', name='joker')) as server:
        async with asyncio.timeout(LIMIT), A2AClient(server.url) as client:
            assert (await client.card())['name'] == 'joker'


class OfIssuer(httpx2.Auth):
    """Asks an issuer for a token before each request."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        response = yield httpx2.Request('GET', self._issuer)
        assert response.status_code == 200
        yield request


async def test_auth_of_http_agent_calls_https_issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path, *LOCAL) as (issuer, authority), serve(Agent('test', name='joker')) as server:
        monkeypatch.setenv('SSL_CERT_FILE', str(authority.file))
        auth = OfIssuer(f'{issuer.url}.well-known/agent-card.json')
        async with asyncio.timeout(LIMIT), A2AClient(server.url, auth=auth) as client:
            assert (await client.card())['name'] == 'joker'


async def test_certificate_of_proxy_is_checked_for_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path, *LOCAL) as (server, authority):
        monkeypatch.setenv('http_proxy', server.url)
        assert 'its TLS certificate is not accepted: ' in await error_of('http://agent.example')
        monkeypatch.setenv('SSL_CERT_FILE', str(authority.file))
        async with asyncio.timeout(LIMIT), A2AClient('http://agent.example') as client:
            with pytest.raises(CardRefused, match='HTTP 421'):
                await client.card()


async def test_certificate_of_issuer_is_named(tmp_path: Path) -> None:
    with served(tmp_path, *LOCAL) as (server, _):
        credentials = ClientCredentials(server.url, 'id', 'secret')
        with pytest.raises(RemoteUnavailable, match='cannot be reached: its TLS certificate is not accepted: '):
            async with asyncio.timeout(LIMIT):
                await credentials.token()


def test_doctor_names_certificate_without_asking_for_card(tmp_path: Path, capsys: Capture) -> None:
    with served(tmp_path, *LOCAL) as (server, _):
        examined = run_command(capsys, 'doctor', server.url)
    lines = [line.strip() for line in examined.out.splitlines()]
    assert (examined.code, lines[0]) == (1, 'fault       card: No agent answers at the URL.')
    assert 'its TLS certificate is not accepted: ' in ' '.join(lines)
    assert 'Serve the card' not in examined.out


def test_other_tls_errors_are_named_by_their_reason() -> None:
    error = ssl.SSLError(1, 'alert')
    error.reason = 'TLSV1_ALERT_PROTOCOL_VERSION'
    assert tls_problem(error) == 'its TLS is not accepted (TLSV1_ALERT_PROTOCOL_VERSION).'
    assert tls_problem(ValueError()) == ''


def test_cyclic_causes_of_connection_errors_end() -> None:
    first, second = OSError('first'), OSError('second')
    first.__cause__, second.__cause__ = second, first
    assert tls_problem(first) == ''
