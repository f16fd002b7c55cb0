"""The command `watch`: shows the events of a task of a remote agent."""

from __future__ import annotations

import click

from .json_options import Form, json_options
from .remote_agent import Remote, agent_options
from .remote_conversation import Talk


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
