"""Finds, checks and keeps the card of one remote agent, and chooses the interface that is called (§8)."""

from __future__ import annotations

import ipaddress
import logging
import re
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import httpx2

from ..errors import CardRefused, RemoteProtocolError, RemoteUnavailable
from ..protocol.lenient_reading import AnswerUnreadable, reading
from ..protocol.received_cards import read_card
from ..types import AgentCard, AgentInterface
from .connections import Connections, Cut, Patience, read_json
from .urls import check_url, origin, shown

if TYPE_CHECKING:
    from .signatures import CardVerifier


logger = logging.getLogger('pydantic_ai_a2a')

WELL_KNOWN = ('.well-known/agent-card.json', '.well-known/agent.json')
"""Paths of a card below the URL of an agent, the newer one first."""
_MAX_CARD = 1_000_000
_REPETITIONS = 5
"""Most repetitions of a request for a card, which is no evidence of an agent: a server may cut all connections."""
_FRESH = 300.0
"""Seconds for which a card without cache headers is kept."""
_LONGEST_FRESH = 24 * 60 * 60.0
"""Seconds for which a card is kept at most, whatever its cache headers say."""
_MAX_AGE = re.compile(r'max-age=(\d{1,9})')
_BINDINGS = ('JSONRPC', 'HTTP+JSON')
_VERSION = re.compile(r'(\d{1,4})\.(\d{1,4})')


@dataclass(frozen=True, slots=True)
class Interface:
    """The interface of a remote agent that is called."""

    url: str
    """The URL; for gRPC `grpcs://host:port`, or `grpc://host:port` without TLS."""
    binding: str
    """`JSONRPC`, `HTTP+JSON` or `GRPC`."""
    version: str
    """`1.0` or `0.3`."""
    tenant: str = ''
    agent: str = ''
    """Name of the agent on its card."""

    @property
    def place(self) -> Place:
        """The agent of the interface, without the query and the credentials of the URL."""
        return Place(shown(self.url), self.tenant)


class Place(NamedTuple):
    """The agent to which a conversation belongs. No other agent gets the ids of its contexts and tasks.

    Each agent chooses the name on its card, so only an agent in this process, which has no origin, is told by its name.
    """

    url: str
    """Origin and path of the interface."""
    tenant: str
    name: str = ''
    """Name of an agent in this process."""


@dataclass(slots=True)
class _Kept:
    card: AgentCard
    wire: object
    """The JSON of the card."""
    url: str
    until: float
    etag: str | None


class RemoteCards:
    """The card of one agent.

    Args:
        connections: The connections to the agent.
        target: URL of the agent or of its card.
        verifier: Verifies the signatures of the card; None accepts cards without signatures.
        card_url: URL of the card, perhaps relative to the target; None to look for the card.

    Raises:
        ValueError: The target or the `card_url` is not a URL of HTTP.
    """

    def __init__(
        self,
        connections: Connections,
        target: str,
        verifier: CardVerifier | None = None,
        card_url: str | None = None,
    ) -> None:
        self._connections = connections
        self._verifier = verifier
        self._urls = _card_urls(target) if card_url is None else [_joined(target, card_url)]
        check_url(target)
        check_url(self._urls[0])
        self._kept: _Kept | None = None
        self._extended: AgentCard | None = None

    def extend(self, card: AgentCard) -> None:
        """Replace the kept card with the extended card, until the version of the public card changes (§3.1.11)."""
        self._extended = card

    async def get(self) -> tuple[AgentCard, str]:
        """Return the card and its URL. A card that was checked is kept as long as its cache headers say.

        Raises:
            CardRefused: There is no card, the card is not valid, or no trusted key has signed the card.
            RemoteUnavailable: The agent cannot be reached, or the key set of its card.
        """
        kept = await self._fresh()
        return self._extended or kept.card, kept.url

    async def _fresh(self) -> _Kept:
        kept = self._kept
        if kept is not None and time.monotonic() < kept.until:
            return kept
        refusals: list[CardRefused] = []
        for url in [kept.url] if kept is not None else self._urls:
            try:
                fetched = await self._fetch(url, kept)
            except CardRefused as error:
                refusals.append(error)
            except RemoteProtocolError as error:
                refusals.append(CardRefused(str(error)))
            else:
                if kept is not None and kept.card.get('version') != fetched.card.get('version'):
                    self._extended = None
                self._kept = fetched
                return fetched
        raise refusals[0]

    async def _fetch(self, url: str, kept: _Kept | None) -> _Kept:
        """Return the card at a URL. A request whose connection is cut is repeated."""
        patience = Patience(self._connections.timeout)
        for _ in range(_REPETITIONS):
            try:
                return await self._fetch_once(url, kept)
            except Cut as error:
                await patience.wait(error)
        return await self._fetch_once(url, kept)

    async def _fetch_once(self, url: str, kept: _Kept | None) -> _Kept:
        headers = {'accept': 'application/json'}
        if kept is not None and kept.etag is not None:
            headers['if-none-match'] = kept.etag
        async with self._connections.open('GET', url, headers, public=True) as response:
            status, answered = response.status_code, response.headers
            if status == 304 and kept is not None:
                # Trusted keys may have changed since.
                card = kept.card if self._verifier is None else await self.read(kept.wire, shown(url))
                return _Kept(card, kept.wire, url, fresh_until(answered), kept.etag)
            if status in (429, 502, 503, 504):
                raise RemoteUnavailable(f'{shown(url)} has answered with HTTP {status}. Try again later.')
            if status != 200:
                raise CardRefused(f'{shown(url)} has no agent card: {_described(status)}')
            body = await self._connections.read(response, _MAX_CARD)
        try:
            wire: object = read_json(body)
        except ValueError:
            kind = answered.get('content-type', 'no media type').partition(';')[0][:100]
            raise CardRefused(f'{shown(url)} is not JSON but {kind}. Is this the URL of an A2A agent?') from None
        return _Kept(await self.read(wire, shown(url)), wire, url, fresh_until(answered), answered.get('etag'))

    async def read(self, wire: object, place: str) -> AgentCard:
        """Return the card in JSON; if a signature is required, only the signed content of the card.

        Args:
            wire: The JSON of the card.
            place: URL of the card, for errors.

        Raises:
            CardRefused: The JSON is no card, or no trusted key has signed the card.
            RemoteUnavailable: A key set cannot be fetched now.
        """
        content = wire if self._verifier is None else await self._verifier.content(wire, place)
        try:
            with reading(place):
                card = read_card(content)
        except AnswerUnreadable as error:
            raise CardRefused(f'{place} is not an agent card: {error}.') from None
        for entry in card.get('supported_interfaces', ()):
            if entry['protocol_binding'] in _BINDINGS and '://' not in entry['url']:
                entry['url'] = _joined(place, entry['url'])
        return card


def _card_urls(target: str) -> list[str]:
    path, question_mark, query = target.partition('?')
    if path.endswith('.json'):
        return [target]
    # A card may have any URL. The refusal is about the first place.
    return [*(f'{path.removesuffix("/")}/{name}{question_mark}{query}' for name in WELL_KNOWN), target]


def _joined(base: str, url: str) -> str:
    """Return a URL that may be relative to another one."""
    try:
        return str(httpx2.URL(base).join(url))
    except httpx2.InvalidURL:
        return url


def _described(status: int) -> str:
    if 300 <= status < 400:
        return f'HTTP {status} redirects, and redirects are not followed. Use the URL to which it leads.'
    if status in (401, 403):
        return (
            f'HTTP {status}. The agent asks for credentials: give `headers` or `auth`, on the command line '
            '`--header` or `--token-env`.'
        )
    return f'HTTP {status}.'


def fresh_until(headers: httpx2.Headers) -> float:
    """Return the monotonic time until which an answer is fresh, at most a day from now."""
    control = headers.get('cache-control', '').lower()
    match = _MAX_AGE.search(control)
    age = 0.0 if 'no-cache' in control or 'no-store' in control else float(match[1]) if match else _FRESH
    return time.monotonic() + min(age, _LONGEST_FRESH)


def extensions_of(card: AgentCard) -> set[str]:
    """Return the URIs of the extensions that a card declares."""
    return {extension['uri'] for extension in card['capabilities'].get('extensions', ())}


def choose(
    card: AgentCard,
    card_url: str | None,
    *,
    binding: str | None = None,
    version: str | None = None,
    trusted_origins: Collection[str],
    signed: bool = False,
) -> Interface:
    """Return the first interface of the card that this client speaks; one of gRPC only if there is no other.

    Args:
        card: The card.
        card_url: URL of the card; None for a card that the user has given, and that may name any URL.
        binding: The one binding to use. Default: any.
        version: The one version to use, also if the card does not name it. Default: any.
        trusted_origins: Origins besides the card's that an interface may have.
        signed: True if the card is signed, so that its URLs are called as they are.

    Raises:
        CardRefused: There is no such interface, or it has another origin than the card.
    """
    entries = [entry for entry in card.get('supported_interfaces', ()) if binding in (None, entry['protocol_binding'])]
    interfaces = [interface for entry in entries if (interface := spoken(entry, card_url))]
    wanted = [interface for interface in interfaces if version in (None, interface.version)]
    if not wanted and version is not None:
        forced: list[AgentInterface] = [{**entry, 'protocol_version': version} for entry in entries]
        wanted = [interface for entry in forced if (interface := spoken(entry, card_url))]
    place = 'The agent card' if card_url is None else shown(card_url)
    if not wanted:
        offered = sorted(
            {
                f'{_text(entry, "protocol_binding")} {_text(entry, "protocol_version")}'
                for entry in card.get('supported_interfaces', ())
            }
        )
        raise CardRefused(f'{place} names no interface that can be called. It names: {", ".join(offered) or "none"}.')
    chosen = min(wanted, key=lambda interface: interface.binding == 'GRPC')
    chosen = replace(chosen, agent=card.get('name', '')[:200])
    if card_url is None:
        return chosen
    return _within(chosen, card_url, {origin(url) for url in trusted_origins} - {''}, signed=signed)


def _text(entry: AgentInterface, name: str) -> str:
    return str(entry.get(name, ''))[:40]


def spoken(entry: AgentInterface, card_url: str | None) -> Interface | None:
    """Return an interface of a card; None for a version or a binding that this client does not speak."""
    version = _VERSION.match(entry.get('protocol_version', ''))
    numbers = None if version is None else (int(version[1]), int(version[2]))
    numbers = (0, 3) if numbers == (0, 2) else numbers  # servers of 0.2 answer the methods of 0.3
    binding = entry['protocol_binding']
    if numbers == (1, 0) and binding == 'GRPC':
        return Interface(_grpc_url(entry['url'], card_url), binding, '1.0', entry.get('tenant', ''))
    if numbers not in ((1, 0), (0, 3)) or binding not in _BINDINGS or (numbers == (0, 3) and binding != 'JSONRPC'):
        return None
    return Interface(entry['url'], binding, '1.0' if numbers == (1, 0) else '0.3', entry.get('tenant', ''))


def _grpc_url(url: str, card_url: str | None) -> str:
    """Return the URL of an interface of gRPC, which cards write in several ways, such as `host:port`.

    Without a scheme, the connection has TLS unless the card was fetched without TLS from the same machine, or a card of
    the user names this machine.
    """
    scheme, _, place = url.removeprefix('dns:///').rpartition('://')
    host, card = httpx2.URL(origin(f'https://{place}') or 'http:').host, httpx2.URL(card_url or 'http:')
    is_plain = card.scheme == 'http' and (is_local(host) or host == card.host)
    return origin(f'{scheme.replace("http", "grpc") or ("grpc" if is_plain else "grpcs")}://{place}') or url


def _within(interface: Interface, card_url: str, trusted: Collection[str], *, signed: bool) -> Interface:
    """Return the interface; at the card's origin if the card names the same port of the same machine by another name.

    The same holds for an unsigned card of another machine that names a loopback address. An interface of gRPC may have
    any port of the card's machine, with TLS if the card was fetched with TLS.

    Raises:
        CardRefused: The interface has another origin.
    """
    own, other = origin(card_url), origin(interface.url)
    if interface.binding == 'GRPC':
        scheme = 'grpcs' if 's://' in own + other else 'grpc'
        own = origin(str(httpx2.URL(card_url).copy_with(scheme=scheme, port=httpx2.URL(other or 'grpc:').port)))
    if other == own or other in trusted:
        return interface
    own_url, other_url = httpx2.URL(own or 'http:'), httpx2.URL(other or 'http:')
    here = is_local(own_url.host)
    same_port = (own_url.scheme, own_url.port) == (other_url.scheme, other_url.port)
    if is_local(other_url.host) and (same_port if here else not signed):
        if not here:
            logger.warning(
                'The agent card at %s names the address %s, which only its own machine can reach. Its own origin %s is '
                'called instead.',
                shown(card_url),
                other_url.host,
                own,
            )
        url = httpx2.URL(interface.url).copy_with(scheme=own_url.scheme, host=own_url.host, port=own_url.port)
        return replace(interface, url=str(url))
    raise CardRefused(
        f'{shown(card_url)} names an interface at another origin, {other or shown(interface.url)}. If you trust this '
        'origin with your requests and credentials, add it to `trusted_origins`, on the command line to '
        '`--trusted-origin`.'
    )


def is_local(host: str) -> bool:
    """Return True for a name or an address that means the machine itself."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == 'localhost' or host.endswith('.localhost')
    return address.is_loopback or address.is_unspecified
