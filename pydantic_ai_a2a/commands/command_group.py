"""The commands by name, and the exit codes of their errors.

A command exits with 0 after success, with 1 after a failure, and with 2 if the command line is wrong. After SIGTERM, a
server ends by the signal, as under uvicorn.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click
from click import ClickException, Command, Context, Group

from ..errors import A2AError, BackendUnusable, CannotListen, StoreUnavailable
from ..server.app.garbage_collection import frozen_imports
from .exit_codes import CTRL_C
from .terminal import drop_rest, echo, prepare_output, safe, say

_COMMANDS = {
    'serve': ('serve', 'Serve an app or an agent over HTTP and gRPC.'),
    'worker': ('worker', 'Run the tasks of an app that other processes serve.'),
    'migrate': ('migrate', 'Upgrade the schema of a store.'),
    'export': ('export', 'Write the tasks and conversations of an owner.'),
    'erase': ('erase', 'Erase the tasks and conversations of an owner.'),
    'dead-letters': ('dead_letters', 'List or retry failed tasks (dead letters).'),
    'dead-deliveries': ('dead_deliveries', 'List or retry failed push notifications.'),
    'queue': ('queue', 'Show or pause the queue of a store, and cancel tasks.'),
    'hash-key': ('hash_key', 'Make a key or token for a caller, and its hash.'),
    'card': ('card', 'Show the card of an agent.'),
    'tasks': ('tasks', 'List your tasks at an agent.'),
    'inbox': ('inbox', 'List what waits for you at an agent, or decide.'),
    'cancel': ('tasks', 'Cancel a task of an agent.'),
    'doctor': ('doctor', 'Examine an agent, and say what to change.'),
    'send': ('send', 'Send a message to an agent, and show the answer.'),
    'chat': ('chat', 'Talk with an agent, one line a message.'),
    'watch': ('watch', 'Show the events of a task until it stops.'),
}
"""The module of each command, which is loaded when the command is chosen, and its first sentence."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a disk, a quota or a file without room."""


def run(arguments: Sequence[str] | None) -> NoReturn:
    """Run the command in the arguments."""
    prepare_output()
    commands = _CommandLine(
        help='Serve Pydantic AI agents over A2A, and call A2A agents.',
        commands=[Command(name, short_help=text) for name, (_, text) in _COMMANDS.items()],
        context_settings={'help_option_names': ['-h', '--help']},
    )
    click.version_option(package_name='pydantic-ai-a2a')(commands)
    try:
        commands.main(arguments, prog_name='pydantic-ai-a2a')
    except OSError as error:
        if error.errno not in _FULL:
            raise
        drop_rest(sys.stdout)
        echo(f'Error: Cannot write: {error.strerror}. The output is not complete.', err=True)
        sys.exit(1)


class _CommandLine(Group):
    """The commands. Each returns its exit code."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        if '://' in args[0] and not ctx.resilient_parsing:
            ctx.fail('The command comes first: pydantic-ai-a2a COMMAND URL.')
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else _load(name), rest

    def invoke(self, ctx: Context) -> NoReturn:
        try:
            ctx.exit(super().invoke(ctx))
        except StoreUnavailable as error:
            raise ClickException(safe(f'{error} ({error.detail})')) from error
        except (A2AError, BackendUnusable, CannotListen) as error:
            raise ClickException(safe(str(error))) from error
        except KeyboardInterrupt:
            say('interrupted')
            ctx.exit(CTRL_C)


def _load(name: str) -> Command:
    module, _ = _COMMANDS[name]
    with frozen_imports():
        return getattr(import_module(f'.{module}', __package__), name.replace('-', '_'))
