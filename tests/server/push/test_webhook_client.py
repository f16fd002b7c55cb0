"""One call of a webhook, over real connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest
from cryptography import x509

from pydantic_ai_a2a import Push
from pydantic_ai_a2a.server.push.webhook_client import Undelivered, WebhookClient
from pydantic_ai_a2a.types import PushTarget

from ...app_client import LIMIT
from ...clocks import skip_time
from ...constants import with_constants
from ...reserved_ports import port_of, reserved_port
from ...tcp_server import tcp_server
from ...webhooks import NEVER_ANSWERS, url_at, webhook
from ..grpc.certificates import Authority

pytestmark = pytest.mark.anyio
UNTRUSTED = (
    'its TLS certificate is not accepted: unable to get local issuer certificate. Trust its authority: the environment'
    ' variable SSL_CERT_FILE names a file of authorities'
)
LOOPBACK_ALLOWED = with_constants(Push, private_hosts=['127.0.0.1'], timeout=LIMIT)


async def post(settings: Push, url: str, **fields: str) -> None:
    webhooks = WebhookClient(settings)
    try:
        await webhooks.post(PushTarget(id='c', url=url, **fields), 'delivery', b'{"a":1}', 'application/a2a+json')
    finally:
        await webhooks.close()


async def refused(settings: Push, url: str) -> str:
    with pytest.raises(Undelivered) as error:
        await post(settings, url)
    assert 'secret' not in str(error.value)
    return str(error.value)


class ScriptedResolver:
    """Resolves each name to the next of its lists of addresses."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.asked: list[tuple[str, int]] = []
        self._answers: Iterator[Sequence[str]] = iter(answers)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return next(self._answers)


async def test_webhook_gets_body_id_and_credentials() -> None:
    async with webhook(204) as hook:
        await post(LOOPBACK_ALLOWED, hook.url, token='token', scheme='Basic', credentials='dTpw')
        [sent] = hook.received
    assert (sent.line, sent.body) == ('POST /hook?key=secret HTTP/1.1', b'{"a":1}')
    assert {name: value for name, value in sent.headers.items() if name not in ('content-length', 'host')} == {
        'content-type': 'application/a2a+json',
        'accept-encoding': 'identity',
        'webhook-id': 'delivery',
        'x-a2a-notification-token': 'token',
        'authorization': 'Basic dTpw',
    }
    assert sent.headers['host'] == f'127.0.0.1:{hook.port}'


@pytest.mark.parametrize('fields', [{}, {'scheme': 'Bearer'}, {'credentials': 'x'}])
async def test_webhook_without_credentials_gets_no_auth_headers(fields: dict[str, str]) -> None:
    async with webhook() as hook:
        await post(LOOPBACK_ALLOWED, hook.url, **fields)
        assert not {'authorization', 'x-a2a-notification-token'} & hook.received[0].headers.keys()


@pytest.mark.parametrize('status', [199, 302, 400, 404, 410, 500, 503])
async def test_every_status_but_2xx_is_a_failure(status: int) -> None:
    async with webhook(b'HTTP/1.1 %d Answer\r\nContent-Length: 0\r\n\r\n' % status) as hook:
        said = await refused(LOOPBACK_ALLOWED, hook.url)
    assert said.startswith('no connection') if status < 200 else said == f'HTTP {status}'


async def test_redirect_is_not_followed() -> None:
    async with webhook() as other:
        answer = b'HTTP/1.1 307 Elsewhere\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n' % other.url.encode()
        async with webhook(answer) as hook:
            assert await refused(LOOPBACK_ALLOWED, hook.url) == 'HTTP 307'
        assert other.received == []


async def test_unanswered_webhook_times_out() -> None:
    async with webhook(NEVER_ANSWERS) as hook:
        refusing = asyncio.ensure_future(refused(LOOPBACK_ALLOWED, hook.url))
        await hook.got(1)
        skip_time(LIMIT)
        assert await refusing == 'no answer in time'


async def test_response_body_is_not_awaited() -> None:
    async with webhook(b'HTTP/1.1 200 Fine\r\nContent-Length: 1000000000\r\n\r\nand so on') as hook:
        await post(LOOPBACK_ALLOWED, hook.url)


async def test_closed_port_is_a_connection_failure() -> None:
    with reserved_port() as reserved:
        url = url_at(port_of(reserved))
        assert await refused(LOOPBACK_ALLOWED, url) == 'no connection (ConnectError)'


async def test_environment_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with webhook() as proxy, webhook() as hook:
        for name in ('http_proxy', 'HTTP_PROXY', 'ALL_PROXY'):
            monkeypatch.setenv(name, f'http://127.0.0.1:{proxy.port}')
        await post(LOOPBACK_ALLOWED, hook.url)
        assert (len(proxy.received), len(hook.received)) == (0, 1)


async def test_host_address_is_checked_at_every_call() -> None:
    """Whatever it led to when it was registered: what counts are all addresses that it has at each call."""
    names = ScriptedResolver(['192.0.2.1'], ['127.0.0.1'], ['93.184.216.34', '127.0.0.1'])
    async with webhook() as hook:
        settings = with_constants(Push, resolve=names)
        said = [await refused(settings, f'https://rebound.example.com:{hook.port}/') for _ in range(3)]
        assert (hook.received, said) == ([], ['refused: has an address that is not public'] * 3)
    assert names.asked == [('rebound.example.com', hook.port)] * 3


async def test_webhook_call_uses_the_checked_address() -> None:
    names = ScriptedResolver(['127.0.0.1'])
    async with webhook() as hook:
        settings = with_constants(Push, resolve=names, private_hosts=['hooks.internal'])
        await post(settings, f'http://hooks.internal:{hook.port}/')
        assert hook.received[0].headers['host'] == f'hooks.internal:{hook.port}'
    assert names.asked == [('hooks.internal', hook.port)]


async def test_host_without_addresses_is_refused() -> None:
    assert (
        await refused(with_constants(Push, resolve=ScriptedResolver([])), 'https://example.com/')
        == 'refused: the host has no address'
    )


async def test_system_resolver_is_the_default() -> None:
    async with webhook() as hook:
        await post(Push(private_hosts=['localhost']), f'http://localhost:{hook.port}/')
        assert hook.received[0].headers['host'] == f'localhost:{hook.port}'
    assert await refused(Push(), 'https://no-such-host.invalid/') == 'no address (gaierror)'


async def test_slow_dns_lookup_does_not_occupy_default_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()

    def getaddrinfo(*_: object, **__: object) -> NoReturn:
        asked.set()
        answers.wait(LIMIT)
        raise socket.gaierror

    monkeypatch.setattr(socket, 'getaddrinfo', getaddrinfo)
    with ThreadPoolExecutor(1) as others:
        asyncio.get_running_loop().set_default_executor(others)
        said = asyncio.ensure_future(refused(Push(), 'https://slow.example.com/'))
        assert await asyncio.to_thread(asked.wait, LIMIT)
        answers.set()
        assert await said == 'no address (gaierror)'


async def test_abandoned_dns_lookup_does_not_block_deliveries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answers = threading.Event(), threading.Event()
    system = socket.getaddrinfo

    def getaddrinfo(host: str, *rest: Any, **options: Any) -> Any:
        if host == 'slow.example.com':
            asked.set()
            answers.wait(LIMIT)
        return system('127.0.0.1', *rest, **options)

    monkeypatch.setattr(socket, 'getaddrinfo', getaddrinfo)
    webhooks = WebhookClient(with_constants(Push, private_hosts=['fast.example.com'], at_once=1))
    async with webhook() as hook:
        slow, fast = 'https://slow.example.com/', f'http://fast.example.com:{hook.port}/'
        ended = asyncio.ensure_future(webhooks.post(PushTarget(id='c', url=slow), 'slow', b'{}', 'application/json'))
        assert await asyncio.to_thread(asked.wait, LIMIT)
        ended.cancel()
        await webhooks.post(PushTarget(id='c', url=fast), 'fast', b'{}', 'application/json')
        assert [each.id for each in hook.received] == ['fast']
    answers.set()
    await webhooks.close()


async def test_each_notification_has_its_own_connection() -> None:
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        while head := await reader.read(65_536):
            if head.endswith(b'{}'):
                writer.write(b'HTTP/1.1 200 Fine\r\nContent-Length: 0\r\n\r\n')
        writer.close()

    webhooks = WebhookClient(LOOPBACK_ALLOWED)
    async with tcp_server(serve) as port:
        for delivery in ('one', 'two'):
            await webhooks.post(PushTarget(id='c', url=url_at(port)), delivery, b'{}', 'application/json')
        await webhooks.close()
    assert len(connections) == 2


@pytest.mark.parametrize('error', [ValueError('secret'), LookupError('secret'), TimeoutError('secret')])
async def test_resolver_exception_is_a_delivery_failure(error: Exception) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise error

    assert (
        await refused(with_constants(Push, resolve=resolve), 'https://example.com/')
        == f'no address ({type(error).__name__})'
    )


async def test_invalid_resolved_address_is_not_called() -> None:
    settings = with_constants(Push, resolve=ScriptedResolver(['no address:']), private_hosts=['hooks.internal'])
    assert await refused(settings, 'http://hooks.internal/') == 'no connection (InvalidURL)'


async def test_untrusted_certificate_for_host_name_is_refused(tmp_path: Path) -> None:
    wanted: list[str | None] = []
    context = Authority(tmp_path, 'authority').sign('hook', x509.DNSName('hooks.internal')).context()

    def note(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        wanted.append(name)

    context.sni_callback = note
    settings = with_constants(Push, resolve=ScriptedResolver(['127.0.0.1']), private_hosts=['hooks.internal'])
    async with webhook(context=context) as hook:
        said = await refused(settings, f'https://hooks.internal:{hook.port}/')
        assert (said, hook.received) == (UNTRUSTED, [])
    assert wanted == ['hooks.internal']


async def test_webhook_ip_address_is_not_sent_as_sni(tmp_path: Path) -> None:
    named: list[str | None] = []
    context = Authority(tmp_path, 'authority').sign('hook', x509.DNSName('hooks.internal')).context()

    def note(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        named.append(name)

    context.sni_callback = note
    async with webhook(context=context) as hook:
        for host in ('127.0.0.1', '127.1'):
            said = await refused(with_constants(Push, private_hosts=[host]), f'https://{host}:{hook.port}/')
            assert said == UNTRUSTED
    assert named == [None, None]
