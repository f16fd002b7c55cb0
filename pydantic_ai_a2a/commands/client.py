"""The commands `card`, `tasks` and `cancel`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import get_args

import click

from ..protocol.stored import json_of
from ..types import AgentCard, CancelParams, ListParams, Task, TaskState, agent_card_ta
from .remote import Remote, agent_options
from .terminal import as_json, echo, say, write_table

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
    async with remote.cards() as (_, cards):
        agent_card, _ = await cards.get()
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
def tasks(*, remote: Remote, context: str | None, state: TaskState | None, limit: int, json_lines: bool) -> int:
    """List your tasks at an agent.

    URL is the agent or its card.
    """
    return asyncio.run(_list(remote, context, state, limit=limit, json_lines=json_lines))


async def _list(remote: Remote, context: str | None, state: TaskState | None, *, limit: int, json_lines: bool) -> int:
    listed_tasks: list[Task] = []
    async with remote.interface() as interface:
        params = ListParams(context_id=context, state=state, history_length=0, tenant=interface.tenant)
        async with aclosing(interface.items('ListTasks', params)) as found_tasks:
            async for task in found_tasks:
                listed_tasks.append(task)
                if len(listed_tasks) == limit:
                    break
    if json_lines:
        for task in listed_tasks:
            echo(as_json(json_of(task)))
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
def cancel(*, remote: Remote, task_id: str) -> int:
    """Cancel a task of an agent.

    URL is the agent or its card.
    """
    return asyncio.run(_cancel(remote, task_id))


async def _cancel(remote: Remote, task_id: str) -> int:
    async with remote.interface() as interface:
        task = await interface.call('CancelTask', CancelParams(id=task_id, tenant=interface.tenant))
    state = task['status']['state']
    say(f'the task {task_id} is {state}')
    return int(state != 'canceled')
