"""The commands by name, and the exit codes of their errors.

A command exits with 0 after success, with 1 after a failure, and with 2 if the command line is wrong. After SIGTERM, a
server ends by the signal, as under uvicorn.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click
from click import ClickException, Command, Context, Group

from ..errors import A2AError, BackendUnusable, CannotListen, StoreUnavailable
from .cli import CTRL_C
from .terminal import SafeLog, safe, say

_HELP = {
    'running': {
        'serve': 'Serve an app or an agent over HTTP and gRPC.',
        'worker': 'Run the tasks of an app that other processes serve.',
    },
    'stores': {
        'migrate': 'Upgrade the schema of a store.',
        'export': 'Write the tasks and conversations of an owner.',
        'erase': 'Erase the tasks and conversations of an owner.',
        'dead-letters': 'List or retry failed tasks (dead letters).',
        'dead-deliveries': 'List or retry failed push notifications.',
    },
    'queue': {'queue': 'Show or pause the queue of a store, and cancel tasks.'},
    'hash_key': {'hash-key': 'Make a key or token for a caller, and its hash.'},
    'remote': {
        'card': 'Show the card of an agent.',
        'tasks': 'List your tasks at an agent.',
        'cancel': 'Cancel a task of an agent.',
        'doctor': 'Examine an agent, and say what to change.',
    },
    'calling': {
        'send': 'Send a message to an agent, and show the answer.',
        'chat': 'Talk with an agent, one line a message.',
        'watch': 'Show the events of a task until it stops.',
    },
}
"""The first sentence of each command, by module. A module is loaded when one of its commands is chosen."""
_MODULES = {name: module for module, commands in _HELP.items() for name in commands}


def run(arguments: Sequence[str] | None) -> NoReturn:
    """Run the command in the arguments."""
    # The last resort writes the warnings of commands that configure no logging.
    (logging.lastResort or logging.NullHandler()).setFormatter(SafeLog())
    commands = _CommandLine(
        help='Serve Pydantic AI agents over A2A, and call A2A agents.',
        commands=[Command(name, short_help=text) for names in _HELP.values() for name, text in names.items()],
        context_settings={'help_option_names': ['-h', '--help']},
    )
    click.version_option(package_name='pydantic-ai-a2a')(commands).main(arguments, prog_name='pydantic-ai-a2a')


class _CommandLine(Group):
    """The commands. Each returns its exit code."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
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
    return getattr(import_module(f'.{_MODULES[name]}', __package__), name.replace('-', '_'))
