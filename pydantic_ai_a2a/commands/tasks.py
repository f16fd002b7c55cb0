"""The commands `tasks` and `cancel`, for the tasks of a remote agent."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import get_args

import click

from ..types.a2a_objects import Task, TaskState
from ..types.operation_params import CancelParams, ListParams
from ..wire.protocol.stored_values import json_of
from .async_commands import awaited
from .remote_agent import Remote, agent_options
from .tables import write_table
from .terminal import echo_json, say


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
    else:
        say('no tasks')
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
