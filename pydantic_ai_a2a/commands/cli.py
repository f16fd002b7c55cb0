"""The command line `pydantic-ai-a2a`: its commands, and the exit codes of their errors.

A command exits with 0 after success, with 1 after a failure, and with 2 if the command line is wrong. After SIGTERM, a
server ends by the signal, as under uvicorn.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from secrets import token_urlsafe
from typing import NoReturn

import click
from click import ClickException, Context, Group

from ..app.serve_grpc import CannotListen
from ..auth import keys
from ..errors import A2AError, BackendUnusable, StoreUnavailable
from .client import cancel, card, chat, doctor, send, tasks, watch
from .running import serve, worker
from .stores import dead_deliveries, dead_letters, erase, export, migrate
from .terminal import SafeLog, echo, safe


class _CommandLine(Group):
    """The commands. Each returns its exit code."""

    def invoke(self, ctx: Context) -> NoReturn:
        try:
            ctx.exit(super().invoke(ctx))
        except StoreUnavailable as error:
            raise ClickException(safe(f'{error} ({error.detail})')) from error
        except (A2AError, BackendUnusable, CannotListen) as error:
            raise ClickException(safe(str(error))) from error


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command in the arguments, by default the arguments of this process.

    Raises:
        SystemExit: Always: the command has ended, or uvicorn could not serve the app.
    """
    serving = [serve, worker, migrate, export, erase, hash_key, dead_letters, dead_deliveries]
    calling = [card, send, chat, tasks, watch, cancel, doctor]
    names = {'help_option_names': ['-h', '--help']}
    # The last resort writes the warnings of commands that configure no logging.
    (logging.lastResort or logging.NullHandler()).setFormatter(SafeLog())
    commands = _CommandLine(
        help='Serve Pydantic AI agents over A2A, and call A2A agents.',
        commands=[*serving, *calling],
        context_settings=names,
    )
    click.version_option(package_name='pydantic-ai-a2a')(commands).main(arguments, prog_name='pydantic-ai-a2a')


# --- the command `hash-key` -------------------------------------------------------------------------------------------
# Makes a key for a caller, and the key's hash for the configuration of the server.

_BYTES = 32


@click.command('hash-key')
@click.option('--stdin', is_flag=True, help='Hash the key from standard input instead of making a key.')
def hash_key(stdin: bool) -> int:
    """Make a key or token for a caller, and its hash.

    BearerAuth and APIKeyAuth take the hash in the place of the key.
    """
    if stdin:
        echo(_hashed(sys.stdin.readline().strip()))
    else:
        key = token_urlsafe(_BYTES)
        echo(f'key:  {key}\nhash: {_hashed(key)}')
    return 0


def _hashed(key: str) -> str:
    try:
        return keys.hash_key(key)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
