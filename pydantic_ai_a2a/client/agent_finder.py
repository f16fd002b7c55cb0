"""Finds a remote agent: its card, and the interface that is called."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from starlette.types import ASGIApp

from ..errors import needs_extra
from ..types.a2a_objects import AgentCard
from ..wire.extensions.own_extensions import LIVE_TEXT_URI
from ..wire.protocol.lenient_reading import AnswerUnreadable
from ..wire.protocol.received_cards import read_card
from .app_lifespan import OwnApp
from .cards import RemoteCards
from .client_credentials import ClientCredentials
from .conversation_place import Place
from .http_connections import Auth, HttpConnections
from .interfaces import choose, extensions_of
from .remote_urls import check_agent_url, shown_url
from .transport import Transport
from .trusted_keys import TrustedKeys

if TYPE_CHECKING:
    from .card_verifier import CardVerifier
    from .targets import Target

_INSIDE = 'http://localhost/'
"""URL of an app in this process."""


class AgentFinder:
    """Finds the card of one remote agent, and the interface that the card names for a client.

    Args:
        target: The agent.
        app: The app of the target; None for an agent over a network.
        connections: Connections of the client.
        auth: Authentication of the client.
        binding: The binding that the client wants; None for the first of the card.
        version: The protocol version that the client wants; None for the first of the card.
        trusted_origins: Origins besides the card's that may get requests.
        card_keys: Keys of which one must have signed the card; None: signatures are not verified.
        card_url: URL of the card; None to look for the card.

    Raises:
        TypeError: The target is a card, and there are `card_keys` or a `card_url`.
        ValueError: A key or a URL cannot be used, or the target is JSON that is no card.
        ImportError: There are `card_keys`, and the extra `jwt` is not installed.
    """

    def __init__(
        self,
        target: Target,
        app: ASGIApp | None,
        connections: HttpConnections,
        *,
        auth: Auth | None,
        binding: str | None = None,
        version: str | None = None,
        trusted_origins: Collection[str],
        card_keys: TrustedKeys | None = None,
        card_url: str | None = None,
    ) -> None:
        self._card = _given(cast('Mapping[str, Any]', target)) if isinstance(target, Mapping) else None
        for name, option in (('card_keys', card_keys), ('card_url', card_url)):
            if self._card is not None and option is not None:
                raise TypeError(f'{name} needs a target that is a URL or an app, and the target is a card already.')
        self._app = app
        self._connections = connections
        self._auth = auth
        self._binding = binding
        self._version = version
        self._trusted = tuple(trusted_origins)
        for trusted in self._trusted:
            check_agent_url(trusted, ('http', 'https', 'grpc', 'grpcs'))
        self._verifier = None if card_keys is None else _verifier(card_keys)
        url = target if isinstance(target, str) else _INSIDE
        self._cards = RemoteCards(connections, url, self._verifier, card_url)
        self._chosen: tuple[AgentCard, Transport] | None = None

    async def card(self, *, patient: bool = True) -> tuple[AgentCard, str | None]:
        """Return the card, and its URL if the card was fetched. See `RemoteCards.get`."""
        return (self._card, None) if self._card is not None else await self._cards.get(patient=patient)

    async def extended(self, wire: object, url: str) -> AgentCard:
        """Return the extended card in JSON from a URL, and use it in the place of the card.

        Raises:
            CardRefused: The JSON is no card, or no trusted key has signed the card.
            RemoteUnavailable: A key set cannot be fetched now.
        """
        card = await self._cards.read(wire, url)
        if self._card is not None:
            self._card = card
        self._cards.extend(card)
        return card

    async def interface(self, *, patient: bool = True) -> tuple[AgentCard, Transport]:
        """Return the card, and the interface that is called by it. See `RemoteCards.get`."""
        card, url = await self.card(patient=patient)
        if self._chosen is None or self._chosen[0] is not card:
            interface = choose(
                card,
                None if self._app is not None else url,
                binding=self._binding,
                version=self._version,
                trusted_origins=self._trusted,
                signed=self._verifier is not None,
            )
            if isinstance(self._auth, ClientCredentials):
                self._auth.check(card, 'The agent card' if url is None else shown_url(url))
            if isinstance(self._app, OwnApp) and interface.binding != 'GRPC':
                interface = replace(interface, url=_INSIDE)
            self._chosen = card, Transport(self._connections, interface, live=LIVE_TEXT_URI in extensions_of(card))
        return self._chosen

    async def place(self, *, patient: bool = True) -> tuple[AgentCard, Place]:
        """Return the card, which nobody may change, and the agent of conversations. Errors: see `choose`."""
        card, transport = await self.interface(patient=patient)
        return card, transport.place if self._app is None else transport.place._replace(name=card['name'][:200])


def _given(card: Mapping[str, Any]) -> AgentCard:
    """Return a card that the user has given: FastA2A's `AgentCard`, or the JSON of a card."""
    if 'supported_interfaces' in card:
        return cast('AgentCard', card)
    try:
        return read_card({**card})
    except AnswerUnreadable as error:
        raise ValueError(f'The target is not an agent card: {error}.') from None


def _verifier(trusted: TrustedKeys) -> CardVerifier:
    try:
        from .card_verifier import CardVerifier  # noqa: PLC0415 - of an extra, and cryptography takes long to import
    except ImportError as error:
        raise ImportError(needs_extra('card_keys', 'jwt')) from error
    return CardVerifier(trusted)
