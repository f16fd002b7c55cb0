"""The command `chat`."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click
from fasta2a.schema import Part

from .calling import INTERRUPTED, WAITS, Remote, agent_options
from .talk import Talk
from .target import say

__all__ = ('chat',)


@click.command()
@agent_options
@click.option('--context', default='', metavar='ID', help='Conversation to continue.')
def chat(*, remote: Remote, context: str) -> int:
    """Talk with an agent, one line a message.

    URL is the agent or its card.

    /new begins a new conversation, /exit or Ctrl-D ends the command. Ctrl-C cancels the running task, and at the
    prompt ends the command. Without a terminal, each line of standard input is a message.
    """
    read = _reader()
    with Talk(remote, hints=False) as talk:
        say('/new begins a new conversation, /exit ends')
        while True:
            try:
                line = read().strip()
            except EOFError:
                return 0
            except (KeyboardInterrupt, click.Abort):
                return INTERRUPTED
            if line == '/exit':
                return 0
            if line == '/new':
                context = ''
            elif line:
                code = talk.send([Part(text=line)], context_id=context)
                context = talk.context_id or ''
                if code == WAITS or (code == INTERRUPTED and not sys.stdin.isatty()):
                    return code


def _reader() -> Callable[[], str]:
    """Return a function that reads a line, with a history if the extra `cli` is installed."""
    if not sys.stdin.isatty():
        return _line
    try:
        from prompt_toolkit import PromptSession  # noqa: PLC0415 - of an extra
    except ImportError:
        return lambda: input('> ')
    session: PromptSession[str] = PromptSession()
    return lambda: session.prompt('> ')


def _line() -> str:
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line
