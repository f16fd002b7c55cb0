"""Finds, checks and keeps the card of one remote agent (§8)."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2

from ..errors import CardRefused, RemoteProtocolError, RemoteUnavailable
from ..types.a2a_objects import AgentCard
from ..wire.protocol.lenient_reading import AnswerUnreadable, reading
from ..wire.protocol.received_cards import read_card
from .foreign_json import read_json
from .http_connections import Cut, HttpConnections
from .interfaces import BINDINGS
from .remote_urls import check_agent_url, shown_url
from .request_retries import Patience

if TYPE_CHECKING:
    from .card_verifier import CardVerifier

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


@dataclass(slots=True)
class _KeptCard:
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
        connections: HttpConnections,
        target: str,
        verifier: CardVerifier | None = None,
        card_url: str | None = None,
    ) -> None:
        self._connections = connections
        self._verifier = verifier
        self._urls = _card_urls(target) if card_url is None else [_joined(target, card_url)]
        check_agent_url(target)
        check_agent_url(self._urls[0])
        self._kept: _KeptCard | None = None
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

    async def _fresh(self) -> _KeptCard:
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

    async def _fetch(self, url: str, kept: _KeptCard | None) -> _KeptCard:
        """Return the card at a URL. A request whose connection is cut is repeated."""
        patience = Patience(self._connections.timeout)
        for _ in range(_REPETITIONS):
            try:
                return await self._fetch_once(url, kept)
            except Cut as error:
                await patience.wait(error)
        return await self._fetch_once(url, kept)

    async def _fetch_once(self, url: str, kept: _KeptCard | None) -> _KeptCard:
        headers = {'accept': 'application/json'}
        if kept is not None and kept.etag is not None:
            headers['if-none-match'] = kept.etag
        async with self._connections.open('GET', url, headers, public=True) as response:
            status, answered = response.status_code, response.headers
            if status == 304 and kept is not None:
                # Trusted keys may have changed since.
                card = kept.card if self._verifier is None else await self.read(kept.wire, shown_url(url))
                return _KeptCard(card, kept.wire, url, fresh_until(answered), kept.etag)
            if status in (429, 502, 503, 504):
                raise RemoteUnavailable(f'{shown_url(url)} has answered with HTTP {status}. Try again later.')
            if status != 200:
                raise CardRefused(f'{shown_url(url)} has no agent card: {_described(status)}')
            body = await self._connections.read(response, _MAX_CARD)
        try:
            wire: object = read_json(body)
        except ValueError:
            kind = answered.get('content-type', 'no media type').partition(';')[0][:100]
            raise CardRefused(f'{shown_url(url)} is not JSON but {kind}. Is this the URL of an A2A agent?') from None
        return _KeptCard(await self.read(wire, shown_url(url)), wire, url, fresh_until(answered), answered.get('etag'))

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
            if entry['protocol_binding'] in BINDINGS and '://' not in entry['url']:
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
