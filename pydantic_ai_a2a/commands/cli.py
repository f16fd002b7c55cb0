"""The command line `pydantic-ai-a2a`: its commands, and the exit codes of their errors.

A command exits with 0 after success, with 1 after a failure, and with 2 if the command line is wrong. After SIGTERM, a
server ends by the signal, as under uvicorn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from click import ClickException, Context, Group

from ..app.serve_grpc import CannotListen
from ..errors import A2AError, BackendUnusable, StoreUnavailable
from .card import card
from .chat import chat
from .dead_deliveries import dead_deliveries
from .dead_letters import dead_letters
from .doctor import doctor
from .erase import erase
from .export import export
from .hash_key import hash_key
from .migrate import migrate
from .running import serve, worker
from .send import send
from .tasks import cancel, tasks, watch

__all__ = ('main',)


class _CommandLine(Group):
    """The commands. Each returns its exit code."""

    def invoke(self, ctx: Context) -> NoReturn:
        try:
            ctx.exit(super().invoke(ctx))
        except StoreUnavailable as error:
            raise ClickException(f'{error} ({error.detail})') from error
        except (A2AError, BackendUnusable, CannotListen) as error:
            raise ClickException(str(error)) from error


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command in the arguments, by default the arguments of this process.

    Raises:
        SystemExit: Always: the command has ended, or uvicorn could not serve the app.
    """
    serving = [serve, worker, migrate, export, erase, hash_key, dead_letters, dead_deliveries]
    calling = [card, send, chat, tasks, watch, cancel, doctor]
    names = {'help_option_names': ['-h', '--help']}
    _CommandLine(
        help='Serve Pydantic AI agents over A2A, and call A2A agents.',
        commands=[*serving, *calling],
        context_settings=names,
    ).main(arguments, prog_name='pydantic-ai-a2a')
