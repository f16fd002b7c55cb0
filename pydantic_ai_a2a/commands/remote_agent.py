"""A remote agent on the command line: its argument and options, its card and its interface.

The commands `card`, `tasks`, `cancel` and `doctor` load no Pydantic AI, so that they start quickly. `send`, `chat` and
`watch` load it for answers to questions, and for files.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click
from click import ClickException, UsageError

from ..client.cards import RemoteCards
from ..client.http_connections import HttpConnections
from ..client.interfaces import choose
from ..client.remote_urls import check_agent_url, origin
from ..errors import A2AError, RemoteError
from .async_commands import Command
from .terminal import echo, safe

if TYPE_CHECKING:
    from ..client.transport import Transport

INDENT = 12
"""Characters before the text of a line of `card` and `doctor`."""


class Remote(NamedTuple):
    """A remote agent on the command line."""

    url: str
    headers: dict[str, str]
    token: str | None
    timeout: float
    trusted_origins: Sequence[str]

    def connections(self) -> HttpConnections:
        """Return connections to the agent.

        Raises:
            UsageError: The URL is not one of HTTP, or a header has characters that HTTP does not allow.
        """
        try:
            check_agent_url(self.url)
            return HttpConnections(headers=self.headers, auth=self.token, timeout=self.timeout)
        except ValueError as error:
            raise UsageError(str(error)) from None

    @asynccontextmanager
    async def cards(self) -> AsyncGenerator[tuple[HttpConnections, RemoteCards]]:
        """Yield connections to the agent, and the card of the agent."""
        connections = self.connections()
        try:
            yield connections, RemoteCards(connections, self.url)
        finally:
            await connections.close()

    @asynccontextmanager
    async def interface(self) -> AsyncGenerator[Transport]:
        """Yield the interface that the card names."""
        from ..client.transport import Transport  # noqa: PLC0415 - the command `card` calls no interface

        async with self.cards() as (connections, cards):
            card, url = await cards.get(patient=False)
            chosen = choose(card, url, trusted_origins=self.trusted_origins)
            yield Transport(connections, chosen)


def agent_options(command: Command) -> Command:
    """Add the argument and the options for a remote agent. The command gets both as `remote`."""

    @click.argument('url')
    @click.option(
        '--header', 'headers', multiple=True, metavar='"NAME: VALUE"', help='Header of each request. Can be repeated.'
    )
    @click.option('--token-env', metavar='NAME', help='Environment variable with a bearer token.')
    @click.option(
        '--timeout', default=30.0, show_default=True, metavar='SECONDS', help='Longest wait for a connection or data.'
    )
    @click.option(
        '--trusted-origin',
        'trusted_origins',
        multiple=True,
        metavar='ORIGIN',
        help="Origin besides the card's that may get requests and credentials. Can be repeated.",
    )
    @click.option('--debug', is_flag=True, help='Show the traceback of an error.')
    @wraps(command)
    def with_agent(
        *,
        url: str,
        headers: Sequence[str],
        token_env: str | None,
        timeout: float,
        trusted_origins: Sequence[str],
        debug: bool,
        **options: Any,
    ) -> int:
        if not timeout > 0:  # also for NaN
            raise UsageError('--timeout takes a number of seconds above zero.')
        if not all(map(origin, trusted_origins)):
            raise UsageError('--trusted-origin takes an origin such as https://api.example.com.')
        if not origin(url) and any(origin(word) for word in _words(options.values())):
            raise UsageError('The URL of the agent comes first.')
        remote = Remote(url, dict(map(_header, headers)), _token(token_env), timeout, trusted_origins)
        remote.connections()  # refuses a bad URL and bad headers before the command does anything
        try:
            return command(remote=remote, **options)
        except (A2AError, RemoteError) as error:
            if debug:
                echo(''.join(traceback.format_exception(error)), err=True)
            raise ClickException(safe(_sentence(error))) from error

    return with_agent


def _words(values: Iterable[object]) -> Iterator[str]:
    """Yield the strings among values of arguments and options."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from _words(cast('tuple[object, ...]', value))


def _header(header: str) -> tuple[str, str]:
    name, colon, value = header.partition(':')
    if not colon or not name.strip():
        raise UsageError('--header takes a name and a value with a colon between them, such as "X-API-Key: 123".')
    return name.strip(), value.strip()


def _token(name: str | None) -> str | None:
    if name is None:
        return None
    if not (token := os.environ.get(name)):
        raise UsageError(f'The environment variable {name} of --token-env is not set.')
    return token


def _sentence(error: A2AError | RemoteError) -> str:
    if not isinstance(error, A2AError):
        return str(error)
    credentials = ' Give credentials with --token-env or --header.' if error.http_status in (401, 403) else ''
    correlation_id = f' (correlation id {error.correlation_id})' if error.correlation_id else ''
    options = ' Use --approve, --deny or --data.' if '"messageSchema"' in error.message else ''
    return f'The agent has refused the request: {error.message}{correlation_id}{credentials}{options}'
