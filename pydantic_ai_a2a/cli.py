"""The command `pydantic-ai-a2a`: what it is given, which command that means, and how it ends. Knows no operation.

Ends with 0 when it has done its work, 1 if it could not, 2 for a command that makes no sense; a server that is ended by
SIGTERM ends by that signal, as uvicorn does.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence

from .commands.dead_deliveries import add_dead_deliveries
from .commands.dead_letters import add_dead_letters
from .commands.erase import add_erase, erase
from .commands.export import add_export, export
from .commands.hash_key import add_hash_key, hash_key
from .commands.migrate import add_migrate, migrate
from .commands.running import add_serve, add_worker, serve, worker
from .commands.target import Refused
from .errors import A2AError, BackendUnusable, StoreUnavailable
from .serve import CannotListen

__all__ = ('main',)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code.

    Raises:
        SystemExit: The command line makes no sense (2), asks for help (0), what it asks for cannot be done (1), or
            uvicorn could not serve the app.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return options.command(options)
    except Refused as refused:
        parser.exit(2, f'{parser.prog}: error: {refused}\n')
    except StoreUnavailable as error:
        parser.exit(1, f'{parser.prog}: error: {error} ({error.detail})\n')
    except (A2AError, BackendUnusable, CannotListen) as error:
        parser.exit(1, f'{parser.prog}: error: {error}\n')


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog='pydantic-ai-a2a', description='Serve Pydantic AI agents over A2A.')
    commands = parser.add_subparsers(required=True, metavar='COMMAND')
    for name, summary, add, command in (
        ('serve', 'serve an app or an agent over HTTP', add_serve, serve),
        ('worker', 'run the tasks of an app, without HTTP', add_worker, worker),
        ('migrate', 'bring a store up to date', add_migrate, migrate),
        ('export', 'write what is stored of an owner or a context', add_export, export),
        ('erase', 'erase what is stored of an owner or a context', add_erase, erase),
        ('hash-key', 'make a key for a caller, and its hash', add_hash_key, hash_key),
    ):
        each = commands.add_parser(name, help=summary, description=command.__doc__)
        add(each)
        each.set_defaults(command=command)
    add_dead_letters(commands.add_parser('dead-letters', help='tasks that were started too often, or lost their store'))
    add_dead_deliveries(commands.add_parser('dead-deliveries', help='notifications that no webhook took'))
    return parser
