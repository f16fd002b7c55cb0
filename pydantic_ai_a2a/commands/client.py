"""The command `card`."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any, get_args

import click

from ..doctor.examination import examine
from ..doctor.probe import Finding
from ..protocol.stored import task_json
from ..types import AgentCard, Part, Task, TaskState, agent_card_ta
from .calling import INTERRUPTED, WAITS, Remote, Talk, agent_options, json_options
from .terminal import Form, as_json, echo, say, write_table

_WIDTH = 12


@click.command()
@agent_options
@click.option('--json', 'is_json', is_flag=True, help='Write the card as JSON.')
def card(*, remote: Remote, is_json: bool) -> int:
    """Show the card of an agent.

    URL is the agent or its card.
    """
    return asyncio.run(_show(remote, is_json=is_json))


async def _show(remote: Remote, *, is_json: bool) -> int:
    async with remote.client() as client:
        agent_card = await client.card()
    if is_json:
        echo(as_json(agent_card_ta.dump_python(agent_card, mode='json', by_alias=True)))
    else:
        for name, text in _card_lines(agent_card):
            echo(f'{name:{_WIDTH}}{text}'.rstrip())
    return 0


def _card_lines(agent_card: AgentCard) -> Iterator[tuple[str, str]]:
    yield 'Name', f'{agent_card["name"]} {agent_card.get("version", "")}'
    yield 'Description', ' '.join(agent_card.get('description', '').split())
    for entry in agent_card.get('supported_interfaces', ()):
        yield 'Interface', f'{entry["url"]} ({entry["protocol_binding"]} {entry.get("protocol_version", "")})'
    capabilities = agent_card['capabilities']
    yield 'Streaming', 'yes' if capabilities.get('streaming') else 'no'
    yield 'Webhooks', 'yes' if capabilities.get('push_notifications') else 'no'
    yield 'Sign-in', ', '.join(agent_card.get('security_schemes', ())) or 'none declared'
    if signatures := agent_card.get('signatures'):
        yield 'Signatures', f'{len(signatures)}, not verified'
    yield 'Input', ', '.join(agent_card.get('default_input_modes', ()))
    yield 'Output', ', '.join(agent_card.get('default_output_modes', ()))
    for skill in agent_card.get('skills', ()):
        yield 'Skill', f'{skill["name"]}: {" ".join(skill["description"].split())}'
    for extension in capabilities.get('extensions', ()):
        yield 'Extension', extension['uri']


# --- the command `send` -----------------------------------------------------------------------------------------------


@click.command()
@agent_options
@click.argument('text', required=False)
@click.option(
    '--file',
    'files',
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar='FILE',
    help='Attach a file. Can be repeated.',
)
@click.option('--data', metavar='JSON', help='Attach a JSON value.')
@click.option('--context', default='', metavar='ID', help='Conversation that the message continues.')
@click.option('--task', default='', metavar='ID', help='Task that the message answers or continues.')
@json_options
def send(
    *,
    remote: Remote,
    text: str | None,
    files: Sequence[Path],
    data: str | None,
    context: str,
    task: str,
    form: Form,
) -> int:
    """Send a message to an agent, and show the answer.

    URL is the agent or its card. The answer is shown as it comes.

    TEXT is the message, or - for standard input. In a terminal, the command asks for approvals and answers.

    Exit codes: 0 completed, 1 failed or refused, 3 the task waits for an answer, 130 after Ctrl-C, which cancels
    the task.
    """
    parts = [*_text(text), *_data(data), *map(_file, files)]
    if not parts:
        raise click.UsageError('There is nothing to send: give TEXT, --file or --data.')
    with Talk(remote, form) as talk:
        return talk.send(parts, task_id=task, context_id=context)


def _text(text: str | None) -> list[Part]:
    words = sys.stdin.read() if text == '-' else text
    return [Part(text=words)] if words else []


def _data(data: str | None) -> list[Part]:
    if data is None:
        return []
    try:
        value: Any = json.loads(data)
    except ValueError as error:
        raise click.UsageError(f'--data is not JSON: {error}.') from None
    return [Part(data=value, media_type='application/json')]


def _file(path: Path) -> Part:
    media_type = mimetypes.guess_type(path.name)[0] or 'application/octet-stream'
    return Part(raw=b64encode(path.read_bytes()).decode(), media_type=media_type, filename=path.name)


# --- the commands `tasks`, `watch` and `cancel`, for the tasks of a remote agent --------------------------------------


@click.command()
@agent_options
@click.option('--context', metavar='ID', help='Only tasks of this conversation.')
@click.option('--state', type=click.Choice(get_args(TaskState)), metavar='STATE', help='Only tasks in this state.')
@click.option(
    '--limit',
    default=50,
    show_default=True,
    metavar='N',
    help='Maximum number of tasks, newest status first.',
    type=click.IntRange(1),
)
@click.option('--json', 'json_lines', is_flag=True, help='Write each task as a line of JSON.')
def tasks(*, remote: Remote, context: str | None, state: TaskState | None, limit: int, json_lines: bool) -> int:
    """List your tasks at an agent.

    URL is the agent or its card.
    """
    return asyncio.run(_list(remote, context, state, limit=limit, json_lines=json_lines))


async def _list(remote: Remote, context: str | None, state: TaskState | None, *, limit: int, json_lines: bool) -> int:
    listed_tasks: list[Task] = []
    async with remote.client() as client:
        pages: Any = client.list(context_id=context, state=state, history_length=0)
        async with aclosing(pages):
            async for listed in pages:
                listed_tasks.append(listed.task)
                if len(listed_tasks) == limit:
                    break
    if json_lines:
        for task in listed_tasks:
            echo(as_json(task_json(task)))
    elif listed_tasks:
        columns = ('task', 'context', 'state', 'status since')
        write_table(columns, [_row(task) for task in listed_tasks])
    return 0


def _row(task: Task) -> list[str]:
    status = task['status']
    return [task['id'], task['context_id'], status['state'], status.get('timestamp', '-')]


@click.command()
@agent_options
@click.argument('task_id', metavar='TASK')
@json_options
def watch(*, remote: Remote, task_id: str, form: Form) -> int:
    """Show the events of a task until it stops.

    URL is the agent or its card. A task stops when it has ended or waits for its client.

    The exit codes are the same as those of `send`. After Ctrl-C, the task continues.
    """
    with Talk(remote, form) as talk:
        return talk.watch(task_id)


@click.command()
@agent_options
@click.argument('task_id', metavar='TASK')
def cancel(*, remote: Remote, task_id: str) -> int:
    """Cancel a task of an agent.

    URL is the agent or its card.
    """
    return asyncio.run(_cancel(remote, task_id))


async def _cancel(remote: Remote, task_id: str) -> int:
    async with remote.client() as client:
        state = (await client.cancel(task_id)).state
    say(f'the task {task_id} is {state}')
    return int(state != 'canceled')


# --- the command `doctor` ---------------------------------------------------------------------------------------------

_INDENT = 12


@click.command()
@agent_options
@click.option('-v', '--verbose', is_flag=True, help='Show each step, and each hint as often as it occurs.')
@click.option('--json', 'is_json', is_flag=True, help='Write each step as a line of JSON.')
def doctor(*, remote: Remote, verbose: bool, is_json: bool) -> int:
    """Examine an agent, and say what to change.

    URL is the agent or its card. The command sends harmless text, and cancels tasks that still run. The exit code is 1
    if there is a fault.
    """
    return asyncio.run(_examine(remote, is_json=is_json, verbose=verbose))


async def _examine(remote: Remote, *, is_json: bool, verbose: bool) -> int:
    has_fault, summary = False, _Summary()
    steps = examine(remote.url, remote.connections(), remote.trusted_origins)
    async with aclosing(steps):
        async for finding in steps:
            has_fault |= finding.level == 'fault'
            if is_json or verbose:
                echo(as_json(asdict(finding)) if is_json else _finding_lines(finding))
            else:
                summary.add(finding)
    summary.write()
    return int(has_fault)


class _Summary:
    """Writes the cards and interfaces that are examined, what to change once, and the other steps by name only."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}
        """The steps since the last written line, by level."""
        self._written: set[tuple[str, str]] = set()

    def add(self, finding: Finding) -> None:
        if finding.level in ('ok', 'not checked') and finding.step not in ('card', 'interface'):
            self._names.setdefault(finding.level, []).append(finding.step)
        elif (finding.step, finding.text) not in self._written:
            self._written.add((finding.step, finding.text))
            self.write()
            echo(_finding_lines(finding))

    def write(self) -> None:
        for level, names in self._names.items():
            echo(_wrapped(level, ', '.join(names)))
        self._names.clear()


def _finding_lines(finding: Finding) -> str:
    section = f' (§{finding.section})' if finding.section else ''
    lines = [_wrapped(finding.level, f'{finding.step}: {finding.text}{section}')]
    if finding.level in ('hint', 'warning', 'fault'):
        details = (('sent', finding.sent), ('came', finding.came), ('change', finding.advice))
        lines += [_wrapped('', f'{name}: {text}') for name, text in details if text]
    return '\n'.join(lines)


def _wrapped(head: str, text: str) -> str:
    first, rest = f'{head:{_INDENT}}', ' ' * _INDENT
    return fill(text, 80, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)


# --- the command `chat` -----------------------------------------------------------------------------------------------


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
            except (KeyboardInterrupt, click.Abort):
                return INTERRUPTED
            if line == '/exit':
                return 0
            if line == '/help':
                say(_HELP)
            elif line == '/new':
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
