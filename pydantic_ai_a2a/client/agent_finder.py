"""Finds a remote agent: its card, and the interface that is called."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from fasta2a.schema import AgentCard
from pydantic_ai.agent import AbstractAgent
from starlette.types import ASGIApp

from ..app.app import A2AApp
from ..app.build import to_a2a
from ..signing.algorithms import EXTRA
from .cards import RemoteCards, choose
from .client_credentials import ClientCredentials
from .connections import Auth, Connections
from .transport import Transport
from .trust import TrustedKeys
from .urls import shown

if TYPE_CHECKING:
    from .card_signatures import CardVerifier

__all__ = ('AgentFinder', 'Target', 'app_of')

Target: TypeAlias = str | AgentCard | AbstractAgent[Any, Any] | ASGIApp
"""A remote agent: the URL of the agent or of its card, its card, or an app or agent in this process."""

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

    Raises:
        TypeError: The target is a card, and there are `card_keys`.
        ValueError: A key cannot be used.
        ImportError: There are `card_keys`, and the extra `jwt` is not installed.
    """

    def __init__(
        self,
        target: Target,
        app: ASGIApp | None,
        connections: Connections,
        *,
        auth: Auth | None,
        binding: str | None,
        version: str | None,
        trusted_origins: Collection[str],
        card_keys: TrustedKeys | None,
    ) -> None:
        self._card = cast('AgentCard', target) if isinstance(target, Mapping) else None
        if self._card is not None and card_keys is not None:
            raise TypeError(
                'card_keys needs a target that is a URL or an app: a card that was read before has no signed form.'
            )
        self._app = app
        self._connections = connections
        self._auth = auth
        self._binding = binding
        self._version = version
        self._trusted = tuple(trusted_origins)
        self._verifier = None if card_keys is None else _verifier(card_keys)
        self._cards = RemoteCards(connections, target if isinstance(target, str) else _INSIDE, self._verifier)
        self._chosen: tuple[AgentCard, Transport] | None = None

    @property
    def verifies(self) -> bool:
        """True if the signatures of cards are verified."""
        return self._verifier is not None

    async def card(self) -> tuple[AgentCard, str | None]:
        """Return the card, and its URL if the card was fetched."""
        return (self._card, None) if self._card is not None else await self._cards.get()

    async def verified(self, wire: object, url: str) -> AgentCard:
        """Return a card that was fetched as JSON from a URL, after the verification of its signatures."""
        return await self._cards.read(wire, url)

    async def interface(self) -> tuple[AgentCard, Transport]:
        """Return the card, and the interface that is called by it."""
        card, url = await self.card()
        if self._chosen is None or self._chosen[0] is not card:
            interface = choose(
                card,
                None if self._app is not None else url,
                binding=self._binding,
                version=self._version,
                trusted_origins=self._trusted,
                signed=self.verifies,
            )
            if isinstance(self._auth, ClientCredentials):
                self._auth.check(card, 'The agent card' if url is None else shown(url))
            if isinstance(self._app, A2AApp):
                interface = replace(interface, url=_INSIDE)
            self._chosen = card, Transport(self._connections, interface)
        return self._chosen


def app_of(target: Target) -> ASGIApp | None:
    """Return the app of a target in this process; None for an agent over a network.

    Raises:
        TypeError: The target is no agent.
    """
    if isinstance(target, (str, Mapping)):
        return None
    if isinstance(target, AbstractAgent):
        return to_a2a(cast('AbstractAgent[Any, Any]', target))
    if callable(target):
        return target
    raise TypeError(f'A2AClient takes a URL, an agent card, an ASGI app or a Pydantic AI agent, not {target!r}.')


def _verifier(trusted: TrustedKeys) -> CardVerifier:
    try:
        from .card_signatures import CardVerifier  # noqa: PLC0415 - of an extra, and cryptography takes long to import
    except ImportError as error:
        raise ImportError(f'card_keys needs more packages: {EXTRA}') from error
    return CardVerifier(trusted)
