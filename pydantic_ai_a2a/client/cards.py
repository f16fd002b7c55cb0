"""Finds, checks and keeps the card of one remote agent (§8).

A card that is known already outlives an outage: if it cannot be fetched again, it is used for up to a day after the
last answer. But an agent that asks for credentials, or whose new card has no valid signature, has no card then.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import httpx2

from ..errors import CardRefused, RemoteProtocolError, RemoteUnavailable, retry_seconds
from ..types.a2a_objects import AgentCard
from ..wire.protocol.lenient_reading import AnswerUnreadable, reading
from ..wire.protocol.received_cards import read_card
from .foreign_json import read_json
from .http_connections import Cut, HostUnusable, HttpConnections
from .interfaces import BINDINGS
from .remote_urls import check_agent_url, shown_url
from .request_retries import Patience

if TYPE_CHECKING:
    from .card_verifier import CardVerifier

logger = logging.getLogger('pydantic_ai_a2a')

WELL_KNOWN = ('.well-known/agent-card.json', '.well-known/agent.json')
"""Paths of a card below the URL of an agent, the newer one first."""
_MAX_CARD = 1_000_000
_REPETITIONS = 5
"""Most repetitions of a request whose connection is cut, which is no evidence of an agent: a server may cut all."""
_FRESH = 300.0
"""Seconds for which a card without cache headers is kept."""
_LONGEST_FRESH = 24 * 60 * 60.0
"""Seconds for which a card is kept at most, whatever its cache headers say."""
_STALE = 60.0
"""Seconds between two attempts to fetch a known card again, after the first attempt has failed."""
_MAX_AGE = re.compile(r'max-age=(\d{1,9})')


class NoCard(CardRefused):
    """The URL has no card at the moment."""


@dataclass(slots=True)
class _KeptCard:
    card: AgentCard
    wire: object
    """The JSON of the card."""
    url: str
    until: float
    """When the card is fetched again (monotonic seconds)."""
    usable_until: float
    """Until when the card is used although it cannot be fetched again."""
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
        self._is_stale = False
        """True if the kept card could not be fetched again."""
        self._extended: AgentCard | None = None

    def extend(self, card: AgentCard) -> None:
        """Replace the kept card with the extended card, until the version of the public card changes (§3.1.11)."""
        self._extended = card

    async def get(self, *, patient: bool = True) -> tuple[AgentCard, str]:
        """Return the card and its URL. A card that was checked is kept as long as its cache headers say.

        Args:
            patient: True to wait up to `timeout` seconds for an agent that cannot be reached, such as while it starts.

        Raises:
            CardRefused: There is no card, the card is not valid, or no trusted key has signed the card.
            RemoteUnavailable: The agent cannot be reached, or the key set of its card.
        """
        kept = self._kept
        if kept is None:
            kept = await self._first(patient=patient)
        elif time.monotonic() >= kept.until:
            kept = await self._again(kept)
        self._kept = kept
        return self._extended or kept.card, kept.url

    async def _first(self, *, patient: bool) -> _KeptCard:
        refusals: list[CardRefused] = []
        for url in self._urls:
            try:
                return await self._fetch(url, patient=patient)
            except CardRefused as error:
                refusals.append(error)
        raise refusals[0]

    async def _fetch(self, url: str, *, patient: bool) -> _KeptCard:
        """Return the card at a URL. A request whose connection is cut is repeated also without patience."""
        patience, cuts = Patience(self._connections.timeout), 0
        while True:
            try:
                answer = await self._request(url)
            except HostUnusable:
                raise
            except RemoteUnavailable as error:
                is_cut = isinstance(error, Cut)
                cuts += is_cut
                if cuts > _REPETITIONS:
                    raise Cut(f'{error}{_maybe_tls(url)}') from error
                if not (patient or is_cut):
                    raise
                await patience.wait(error)
            else:
                return await self._checked(url, *answer)

    async def _again(self, kept: _KeptCard) -> _KeptCard:
        """Return the card as it is now, or the kept card."""
        try:
            fetched = await self._checked(kept.url, *await self._request(kept.url, kept), kept)
        except (NoCard, RemoteUnavailable) as error:
            now = time.monotonic()
            if now >= kept.usable_until:
                raise
            card = await self._unchanged(kept)
            if not self._is_stale:
                logger.warning('An agent card cannot be fetched again, and the known one is used: %s', error)
            self._is_stale = True
            pause = (isinstance(error, RemoteUnavailable) and error.retry_after) or 0.0
            return replace(kept, card=card, until=min(now + max(_STALE, pause), kept.usable_until))
        self._is_stale = False
        if kept.card.get('version') != fetched.card.get('version'):
            self._extended = None
        return fetched

    async def _request(self, url: str, kept: _KeptCard | None = None) -> tuple[object, httpx2.Headers]:
        """Return the JSON of the card at a URL, None for the kept card, and the headers of the answer."""
        headers = {'accept': 'application/json'}
        if kept is not None and kept.etag is not None:
            headers['if-none-match'] = kept.etag
        try:
            async with self._connections.open('GET', url, headers, public=True) as response:
                status, answered = response.status_code, response.headers
                if status == 304 and kept is not None:
                    return None, answered
                if status in (429, 502, 503, 504):
                    text = f'{shown_url(url)} has answered with HTTP {status}. Try again later.'
                    raise RemoteUnavailable(text, retry_after=retry_seconds(answered))
                if status != 200:
                    kind = CardRefused if status in (401, 403) else NoCard
                    raise kind(f'{shown_url(url)} has no agent card: {_described(status, url, answered)}')
                body = await self._connections.read(response, _MAX_CARD)
        except RemoteProtocolError as error:
            raise NoCard(str(error)) from error
        try:
            return read_json(body), answered
        except ValueError:
            media_type = answered.get('content-type', 'no media type').partition(';')[0][:100]
            text = f'{shown_url(url)} is not JSON but {media_type}. Is this the URL of an A2A agent?'
            raise NoCard(text) from None

    async def _checked(
        self, url: str, wire: object, answered: httpx2.Headers, kept: _KeptCard | None = None
    ) -> _KeptCard:
        now, until = time.monotonic(), fresh_until(answered)
        if wire is None and kept is not None:
            card = await self._unchanged(kept)
            return replace(kept, card=card, until=until, usable_until=now + _LONGEST_FRESH)
        card = await self.read(wire, shown_url(url))
        return _KeptCard(card, wire, url, until, now + _LONGEST_FRESH, answered.get('etag'))

    async def _unchanged(self, kept: _KeptCard) -> AgentCard:
        """Return the kept card, which is verified again: trusted keys may have changed since."""
        return kept.card if self._verifier is None else await self.read(kept.wire, shown_url(kept.url))

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
    if path.removesuffix('/').endswith('.json'):
        return [f'{path.removesuffix("/")}{question_mark}{query}', *([target] if path.endswith('/') else [])]
    # A card may have any URL. The refusal is about the first place.
    return [*(f'{path.removesuffix("/")}/{name}{question_mark}{query}' for name in WELL_KNOWN), target]


def _joined(base: str, url: str) -> str:
    """Return a URL that may be relative to another one."""
    try:
        return str(httpx2.URL(base).join(url))
    except httpx2.InvalidURL:
        return url


def _described(status: int, url: str, answered: httpx2.Headers) -> str:
    if 300 <= status < 400:
        place = f', {shown_url(_joined(url, answered["location"]))[:200]}' if 'location' in answered else ''
        return f'HTTP {status} redirects, and redirects are not followed. Use the URL to which it leads{place}.'
    if status in (401, 403):
        return (
            f'HTTP {status}. The agent asks for credentials: give `headers` or `auth`, on the command line '
            '`--header` or `--token-env`.'
        )
    if status == 404 and '/docs/' in url:
        return 'HTTP 404. If this is the URL of the playground, leave out /docs.'
    # So answer web servers to plain HTTP at a port of TLS.
    return f'HTTP {status}.{_maybe_tls(url) if status == 400 else ""}'


def _maybe_tls(url: str) -> str:
    return ' If the port takes only TLS, write https:// in the place of http://.' if url.startswith('http:') else ''


def fresh_until(headers: httpx2.Headers) -> float:
    """Return the monotonic time until which an answer is fresh, at most a day from now."""
    control = headers.get('cache-control', '').lower()
    match = _MAX_AGE.search(control)
    age = 0.0 if 'no-cache' in control or 'no-store' in control else float(match[1]) if match else _FRESH
    return time.monotonic() + min(age, _LONGEST_FRESH)
