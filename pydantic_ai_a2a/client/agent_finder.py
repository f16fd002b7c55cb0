"""Finds a remote agent: its card, and the interface that is called."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, MutableMapping
from contextvars import Context
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

import httpx2
from pydantic_ai import StructuredDict
from pydantic_ai.agent import AbstractAgent
from starlette.applications import Starlette
from starlette.types import ASGIApp

from ..app.app import A2AApp
from ..app.build import to_a2a
from ..card import CardSchemas
from ..conversion.schemas import UnusableSchema, check_schema, inlined_schema
from ..errors import CardRefused, needs_extra
from ..protocol.lenient_reading import AnswerUnreadable
from ..protocol.own_extensions import LIVE_TEXT_URI
from ..protocol.received_cards import read_card
from ..types import AgentCard
from .cards import Place, RemoteCards, choose, extensions_of
from .client_credentials import ClientCredentials
from .connections import Auth, Connections
from .transport import Transport
from .trust import TrustedKeys
from .urls import check_url, shown

if TYPE_CHECKING:
    from .signatures import CardVerifier


Target: TypeAlias = str | AgentCard | AbstractAgent[Any, Any] | ASGIApp
"""A remote agent: the URL of the agent or of its card, its card or the JSON of its card, or an app or agent in this
process."""

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
        connections: Connections,
        *,
        auth: Auth | None,
        binding: str | None,
        version: str | None,
        trusted_origins: Collection[str],
        card_keys: TrustedKeys | None,
        card_url: str | None,
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
            check_url(trusted, ('http', 'https', 'grpc', 'grpcs'))
        self._verifier = None if card_keys is None else _verifier(card_keys)
        url = target if isinstance(target, str) else _INSIDE
        self._cards = RemoteCards(connections, url, self._verifier, card_url)
        self._chosen: tuple[AgentCard, Transport] | None = None

    async def card(self) -> tuple[AgentCard, str | None]:
        """Return the card, and its URL if the card was fetched."""
        return (self._card, None) if self._card is not None else await self._cards.get()

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
                signed=self._verifier is not None,
            )
            if isinstance(self._auth, ClientCredentials):
                self._auth.check(card, 'The agent card' if url is None else shown(url))
            if isinstance(self._app, A2AApp) and interface.binding != 'GRPC':
                interface = replace(interface, url=_INSIDE)
            self._chosen = card, Transport(self._connections, interface, live=LIVE_TEXT_URI in extensions_of(card))
        return self._chosen

    async def place(self) -> tuple[AgentCard, Place]:
        """Return the card, which nobody may change, and the agent of conversations. Errors: see `choose`."""
        card, transport = await self.interface()
        return card, transport.place if self._app is None else transport.place._replace(name=card['name'][:200])


def app_of(target: Target) -> ASGIApp | None:
    """Return the app of a target in this process; None for an agent over a network."""
    if isinstance(target, AbstractAgent):
        return to_a2a(cast('AbstractAgent[Any, Any]', target))
    return None if isinstance(target, (str, Mapping)) else target


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
        from .signatures import CardVerifier  # noqa: PLC0415 - of an extra, and cryptography takes long to import
    except ImportError as error:
        raise ImportError(needs_extra('card_keys', 'jwt')) from error
    return CardVerifier(trusted)


# --- the JSON Schemas on the card of a remote agent, as far as they can be used (§4.6) --------------------------------
# Cards are foreign text.

logger = logging.getLogger('pydantic_ai_a2a')


def input_schema(card: AgentCard, skill_id: str | None = None) -> dict[str, Any] | None:
    """Return the JSON Schema of the data for an agent, or for one of its skills; None for any message.

    Raises:
        CardRefused: The schema is no schema of an object, or cannot be used.
    """
    schema = CardSchemas.of(card).of_skill(skill_id)
    return None if schema is None else _checked(card, lambda: check_schema(schema, 'inputSchema'))


def output_schema(card: AgentCard) -> dict[str, Any] | None:
    """Return the JSON Schema of the data of an answer; None for an answer without data, or with data of any form.

    Raises:
        CardRefused: The schema cannot be used.
    """
    schema = CardSchemas.of(card).output
    return None if schema is None else _checked(card, lambda: check_schema(schema, 'outputSchema', of_object=False))


def output_type(card: AgentCard) -> type[dict[str, Any]]:
    """Return an output type of Pydantic AI for the answers of an agent.

    Raises:
        CardRefused: The card has no schema of an object, or one that Pydantic AI does not support.
    """
    schema = CardSchemas.of(card).output
    if schema is None:
        raise CardRefused(f'The agent card of {card["name"][:200]} declares no outputSchema.')
    return StructuredDict(_checked(card, lambda: inlined_schema(schema, 'outputSchema')))


def _checked(card: AgentCard, check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return deepcopy(check())
    except UnusableSchema as error:
        name, fault = card['name'][:200], str(error)[:1_000]
        raise CardRefused(f'The agent card of {name} has a JSON Schema that cannot be used: {fault}.') from None


@lru_cache(maxsize=1_000)
def warn(error: str) -> None:
    """Log that a schema is ignored. Each fault is logged once."""
    logger.warning('%s The schema is ignored.', error)


# --- HTTP to an ASGI app in this process, with answers that stream ----------------------------------------------------
# Httpx2's own transport collects a whole answer.

_AHEAD = 16
"""Most messages of an answer that wait for the reader."""
STOP_TIME = 5.0
"""Seconds for which a caller who leaves waits for the app."""


class Lifespan:
    """The lifespan of an app, in a task of its own: other tasks may start and stop the app."""

    def __init__(self, app: Starlette, context: Context) -> None:
        self._started, self._stopping = asyncio.Event(), asyncio.Event()
        self._running = asyncio.create_task(self._run(app), context=context)

    @classmethod
    async def start(cls, app: Starlette, context: Context) -> Self:
        """Start an app. An error of the app's start is raised."""
        lifespan = cls(app, context)
        started = asyncio.create_task(lifespan._started.wait())
        try:
            await asyncio.wait((lifespan._running, started), return_when=asyncio.FIRST_COMPLETED)
            if lifespan._running.done():
                await lifespan._running
        except BaseException:
            lifespan._running.cancel()
            raise
        finally:
            started.cancel()
        return lifespan

    async def stop(self) -> None:
        """Stop the app."""
        self._stopping.set()
        await self._running

    async def _run(self, app: Starlette) -> None:
        async with app.router.lifespan_context(app):
            self._started.set()
            await self._stopping.wait()


class StreamingTransport(httpx2.AsyncBaseTransport):
    """Sends requests to an ASGI app, and reads each piece of an answer as soon as the app sends the piece.

    Args:
        app: The app.
        context: Returns the context variables of a request. Default: none.
    """

    def __init__(self, app: ASGIApp, context: Callable[[], Context] = Context) -> None:
        self._app = app
        self._context = context

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; return when the answer has begun."""
        timeouts: Mapping[str, float | None] = request.extensions.get('timeout', {})
        answer = _Answer(self._app, request, await request.aread(), timeouts.get('read'), self._context())
        try:
            start = await answer.next()
        except BaseException:
            await answer.aclose()
            raise
        return httpx2.Response(start['status'], headers=start['headers'], stream=answer, request=request)


class _Answer(httpx2.AsyncByteStream):
    def __init__(
        self, app: ASGIApp, request: httpx2.Request, body: bytes, timeout: float | None, context: Context
    ) -> None:
        self._body: bytes | None = body
        self._name = f'{request.method} {request.url.path}'
        self._timeout = timeout
        """Longest silence of the app, in seconds; None for no limit."""
        self._messages = asyncio.Queue[MutableMapping[str, Any] | None]()
        self._room = asyncio.Semaphore(_AHEAD)
        self._serving = asyncio.create_task(self._serve(app, _scope(request)), context=context)

    async def next(self) -> MutableMapping[str, Any]:
        try:
            async with asyncio.timeout(self._timeout):
                message = await self._messages.get()
        except TimeoutError as error:
            raise httpx2.ReadTimeout('The app is silent.') from error
        if message is None:
            await self._serving  # the app's own error, if it has one
            raise httpx2.RemoteProtocolError('The app has ended without an answer.')
        self._room.release()
        return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self.next()
            more = message.get('more_body', False)
            yield message.get('body', b'')

    async def aclose(self) -> None:
        self._serving.cancel()
        await asyncio.wait((self._serving,), timeout=STOP_TIME)
        if not self._serving.done():
            logger.warning('An app in this process goes on with %s although its caller has left.', self._name)
        elif not self._serving.cancelled():
            self._serving.exception()  # the caller has left, and asyncio would log the error of the app

    async def _serve(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._messages.put_nowait(None)

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        await self._room.acquire()
        self._messages.put_nowait(message)

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {'type': 'http.request', 'body': body, 'more_body': False}
        return await asyncio.Future()  # `aclose` cancels the app


def _scope(request: httpx2.Request) -> dict[str, Any]:
    url = request.url
    return {
        'type': 'http',
        'asgi': {'version': '3.0'},
        'http_version': '1.1',
        'method': request.method,
        'headers': [(name.lower(), value) for name, value in request.headers.raw],
        'scheme': url.scheme,
        'path': url.path,
        'raw_path': url.raw_path.partition(b'?')[0],
        'query_string': url.query,
        'server': (url.host, url.port),
        'client': ('127.0.0.1', 0),
        'root_path': '',
    }
