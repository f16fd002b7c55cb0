"""The commands `tasks`, `watch` and `cancel`, for the tasks of a remote agent."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, get_args

import click
from fasta2a.schema import Task, TaskState

from ..protocol.stored import task_json
from .calling import Remote, agent_options, json_options
from .screen import Form, as_json, safe
from .table import write_table
from .talk import Talk
from .target import say

__all__ = ('cancel', 'tasks', 'watch')


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
            async for task in pages:
                listed_tasks.append(task)
                if len(listed_tasks) == limit:
                    break
    if json_lines:
        for task in listed_tasks:
            click.echo(as_json(task_json(task)))
    elif listed_tasks:
        columns = ('task', 'context', 'state', 'status since')
        write_table(columns, [[safe(value) for value in _row(task)] for task in listed_tasks])
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
        task = await client.cancel(task_id)
    state = task['status']['state']
    say(f'the task {safe(task_id)} is {state}')
    return int(state != 'canceled')
