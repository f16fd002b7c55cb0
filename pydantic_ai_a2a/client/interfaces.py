"""The interfaces on the card of a remote agent, and the choice of the one that is called (§8.3)."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import dataclass, replace

import httpx2

from ..errors import CardRefused
from ..public_hosts import is_local
from ..types.a2a_objects import AgentCard, AgentInterface
from .remote_urls import origin, shown_url

logger = logging.getLogger('pydantic_ai_a2a')

BINDINGS = ('JSONRPC', 'HTTP+JSON')
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
    place = 'The agent card' if card_url is None else shown_url(card_url)
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
    if numbers not in ((1, 0), (0, 3)) or binding not in BINDINGS or (numbers == (0, 3) and binding != 'JSONRPC'):
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
                shown_url(card_url),
                other_url.host,
                own,
            )
        url = httpx2.URL(interface.url).copy_with(scheme=own_url.scheme, host=own_url.host, port=own_url.port)
        return replace(interface, url=str(url))
    has_tls = (own_url.scheme, other_url.scheme) == ('http', 'https') and own_url.host == other_url.host
    raise CardRefused(
        f'{shown_url(card_url)} names an interface at another origin, {other or shown_url(interface.url)}. '
        + ('Write https:// in the place of http:// for the card, too. Or if' if has_tls else 'If')
        + ' you trust this origin with your requests and credentials, add it to `trusted_origins`, on the command line '
        'to `--trusted-origin`.'
    )
