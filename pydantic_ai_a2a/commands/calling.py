"""The remote agent of a command: options, the client, and errors."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from functools import wraps
from typing import Any, NamedTuple

from click import ClickException, UsageError, argument, option

from ..client.client import A2AClient
from ..client.connections import Connections
from ..errors import A2AError, RemoteError
from .target import Command

__all__ = ('INTERRUPTED', 'WAITS', 'Remote', 'agent_options', 'json_options')

WAITS = 3
"""Exit code for a waiting task, without a terminal for the answer."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


class Remote(NamedTuple):
    """A remote agent on the command line."""

    url: str
    headers: dict[str, str]
    token: str | None
    timeout: float

    def client(self) -> A2AClient:
        """Return a client of the agent."""
        return A2AClient(self.url, headers=self.headers, auth=self.token, timeout=self.timeout)

    def connections(self) -> Connections:
        """Return connections to the agent.

        Raises:
            UsageError: A header has characters that HTTP does not allow.
        """
        try:
            return Connections(headers=self.headers, auth=self.token, client=None, timeout=self.timeout)
        except ValueError as error:
            raise UsageError(str(error)) from None


def agent_options(command: Command) -> Command:
    """Add the argument and the options for a remote agent. The command gets both as `remote`."""

    @argument('url')
    @option(
        '--header', 'headers', multiple=True, metavar='"NAME: VALUE"', help='Header of each request. Can be repeated.'
    )
    @option('--token-env', metavar='NAME', help='Environment variable with a bearer token.')
    @option(
        '--timeout', default=30.0, show_default=True, metavar='SECONDS', help='Longest wait for a connection or data.'
    )
    @option('--debug', is_flag=True, help='Show the traceback of an error.')
    @wraps(command)
    def with_agent(
        *, url: str, headers: Sequence[str], token_env: str | None, timeout: float, debug: bool, **options: Any
    ) -> int:
        if timeout <= 0:
            raise UsageError('--timeout takes a number of seconds above zero.')
        remote = Remote(url, dict(map(_header, headers)), _token(token_env), timeout)
        remote.connections()  # refuses bad headers before the command does anything
        try:
            return command(remote=remote, **options)
        except (A2AError, RemoteError) as error:
            if debug:
                traceback.print_exception(error, file=sys.stderr)
            raise ClickException(_sentence(error)) from error

    return with_agent


def json_options(command: Command) -> Command:
    """Add `--json` and `--jsonl`. The command gets `form`: `text`, `json` or `jsonl`."""

    @option('--json', 'as_json', is_flag=True, help='Write the task as JSON, at its end.')
    @option('--jsonl', 'as_lines', is_flag=True, help='Write each event as a line of JSON.')
    @wraps(command)
    def with_form(*, as_json: bool, as_lines: bool, **options: Any) -> int:
        if as_json and as_lines:
            raise UsageError('--json and --jsonl cannot be combined: give one of them.')
        return command(form='json' if as_json else 'jsonl' if as_lines else 'text', **options)

    return with_form


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
    return f'The agent has refused the request: {error.message}{correlation_id}{credentials}'
