"""The command `chat`: a conversation with a remote agent, one line a message."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from ..types.a2a_objects import Part
from .exit_codes import CTRL_C, WAITS
from .remote_agent import Remote, agent_options
from .remote_conversation import Talk
from .terminal import say

_HELP = '/new begins a new conversation, /help shows this, /exit ends, and Ctrl-C cancels the running task'


@click.command()
@agent_options
@click.option('--context', default='', metavar='ID', help='Conversation to continue.')
def chat(*, remote: Remote, context: str) -> int:
    """Talk with an agent, one line a message.

    URL is the agent or its card.

    /new begins a new conversation, /help shows this, /exit or Ctrl-D ends the command. Ctrl-C cancels the running
    task, and at the prompt ends the command. Without a terminal, each line of standard input is a message.
    """
    read = _reader()
    with Talk(remote, hints=False) as talk:
        say(_HELP)
        while True:
            try:
                line = read().strip()
            except EOFError:
                return 0
            if line == '/exit':
                return 0
            if line == '/help':
                say(_HELP)
            elif line == '/new':
                context = ''
            elif line:
                code = talk.send([Part(text=line)], context_id=context)
                context = talk.context_id or ''
                if code == WAITS or (code == CTRL_C and not sys.stdin.isatty()):
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
