"""A remote agent on the command line, and the commands `card`, `tasks`, `cancel` and `doctor`.

These commands load no Pydantic AI, so that they start quickly.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from functools import wraps
from textwrap import fill
from typing import Any, NamedTuple, get_args

import click
from click import ClickException, UsageError

from ..client.cards import RemoteCards
from ..client.connections import Connections
from ..client.interfaces import choose
from ..client.transport import Transport
from ..client.urls import check_url, origin
from ..doctor import Finding, examine
from ..errors import A2AError, RemoteError
from ..protocol.stored import json_of
from ..types import AgentCard, CancelParams, ListParams, Task, TaskState, agent_card_ta
from .terminal import Command, awaited, echo, echo_json, safe, say, write_table

_INDENT = 12
"""Characters before the text of a line of `card` and `doctor`."""


class Remote(NamedTuple):
    """A remote agent on the command line."""

    url: str
    headers: dict[str, str]
    token: str | None
    timeout: float
    trusted_origins: Sequence[str]

    def connections(self) -> Connections:
        """Return connections to the agent.

        Raises:
            UsageError: The URL is not one of HTTP, or a header has characters that HTTP does not allow.
        """
        try:
            check_url(self.url)
            return Connections(headers=self.headers, auth=self.token, timeout=self.timeout)
        except ValueError as error:
            raise UsageError(str(error)) from None

    @asynccontextmanager
    async def cards(self) -> AsyncGenerator[tuple[Connections, RemoteCards]]:
        """Yield connections to the agent, and the card of the agent."""
        connections = self.connections()
        try:
            yield connections, RemoteCards(connections, self.url)
        finally:
            await connections.close()

    @asynccontextmanager
    async def interface(self) -> AsyncGenerator[Transport]:
        """Yield the interface that the card names."""
        async with self.cards() as (connections, cards):
            card, url = await cards.get()
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
        if timeout <= 0:
            raise UsageError('--timeout takes a number of seconds above zero.')
        if not all(map(origin, trusted_origins)):
            raise UsageError('--trusted-origin takes an origin such as https://api.example.com.')
        remote = Remote(url, dict(map(_header, headers)), _token(token_env), timeout, trusted_origins)
        remote.connections()  # refuses a bad URL and bad headers before the command does anything
        try:
            return command(remote=remote, **options)
        except (A2AError, RemoteError) as error:
            if debug:
                echo(''.join(traceback.format_exception(error)), err=True)
            raise ClickException(safe(_sentence(error))) from error

    return with_agent


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


# --- the command `card` -----------------------------------------------------------------------------------------------


@click.command()
@agent_options
@click.option('--json', 'is_json', is_flag=True, help='Write the card as JSON.')
@awaited
async def card(*, remote: Remote, is_json: bool) -> int:
    """Show the card of an agent.

    URL is the agent or its card.
    """
    async with remote.cards() as (_, cards):
        agent_card, _ = await cards.get()
    if is_json:
        echo_json(json.dumps(agent_card_ta.dump_python(agent_card, mode='json', by_alias=True)))
    else:
        for name, text in _card_lines(agent_card):
            echo(f'{name:{_INDENT}}{text}'.rstrip())
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


# --- the commands `tasks` and `cancel` --------------------------------------------------------------------------------


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
@awaited
async def tasks(*, remote: Remote, context: str | None, state: TaskState | None, limit: int, json_lines: bool) -> int:
    """List your tasks at an agent.

    URL is the agent or its card.
    """
    listed_tasks: list[Task] = []
    async with remote.interface() as interface:
        params = ListParams(context_id=context, state=state, history_length=0)
        async with aclosing(interface.items('ListTasks', params)) as found_tasks:
            async for task in found_tasks:
                listed_tasks.append(task)
                if len(listed_tasks) == limit:
                    break
    if json_lines:
        for task in listed_tasks:
            echo_json(json.dumps(json_of(task)))
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
@awaited
async def cancel(*, remote: Remote, task_id: str) -> int:
    """Cancel a task of an agent.

    URL is the agent or its card.
    """
    async with remote.interface() as interface:
        task = await interface.call('CancelTask', CancelParams(id=task_id))
    state = task['status']['state']
    say(f'the task {task_id} is {state}')
    return int(state != 'canceled')


# --- the command `doctor` ---------------------------------------------------------------------------------------------


@click.command()
@agent_options
@click.option('-v', '--verbose', is_flag=True, help='Show each step, and each hint as often as it occurs.')
@click.option('--json', 'is_json', is_flag=True, help='Write each step as a line of JSON.')
@awaited
async def doctor(*, remote: Remote, verbose: bool, is_json: bool) -> int:
    """Examine an agent, and say what to change.

    URL is the agent or its card. The command sends harmless text, and cancels tasks that still run. The exit code is 1
    if there is a fault.
    """
    has_fault, summary = False, _Summary()
    steps = examine(remote.url, remote.connections(), remote.trusted_origins)
    async with aclosing(steps):
        async for finding in steps:
            has_fault |= finding.level == 'fault'
            if is_json:
                echo_json(json.dumps(asdict(finding)))
            elif verbose:
                echo(_finding_lines(finding))
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
