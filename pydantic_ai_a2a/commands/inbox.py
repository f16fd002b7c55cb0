"""The command `inbox`: lists what waits for the caller at a remote agent."""

from __future__ import annotations

import json
from functools import partial

import click

from ..client.client import A2AClient
from ..wire.protocol.stored_values import json_of
from .client_thread import ClientThread
from .inbox_rows import COLUMNS, newest_tasks, row_of
from .remote_agent import Remote, agent_options
from .tables import write_table
from .terminal import echo_json, say
from .watch_option import check_watch


@click.command()
@agent_options
@click.option(
    '--limit',
    default=50,
    show_default=True,
    metavar='N',
    help='Maximum number of tasks, newest status first.',
    type=click.IntRange(1),
)
@click.option('--watch', is_flag=True, help='Keep the list on the screen, and decide about the tasks.')
@click.option('--json', 'as_json', is_flag=True, help='Write each task as a line of JSON.')
def inbox(*, remote: Remote, limit: int, watch: bool, as_json: bool) -> int:
    """List what waits for you at an agent, or decide.

    URL is the agent or its card. The list has your questions and sign-ins, and the approvals that you may give.

    With --watch, choose a task with the arrow keys, and open it with Enter. Then the command shows the whole call, and
    asks. q ends the command, and so does Ctrl-C.
    """
    if watch:
        check_watch(as_json=as_json)
        return _on_screen(remote, limit)
    with ClientThread(_client(remote)) as thread:
        tasks = thread.run(partial(newest_tasks, thread.client, limit))
    if as_json:
        for task in tasks:
            echo_json(json.dumps(json_of(task.outcome)))
    elif tasks:
        write_table(COLUMNS, [row_of(task) for task in tasks])
    else:
        say('nothing waits for you')
    return 0


def _on_screen(remote: Remote, limit: int) -> int:
    from .inbox_screen import InboxScreen  # noqa: PLC0415 - of an extra
    from .terminal_keys import Keys  # noqa: PLC0415 - not on Windows

    with Keys() as keys, ClientThread(_client(remote)) as thread:
        return InboxScreen(thread, keys, limit).run()


def _client(remote: Remote) -> A2AClient:
    return A2AClient(
        remote.url,
        headers=remote.headers,
        auth=remote.token,
        timeout=remote.timeout,
        trusted_origins=remote.trusted_origins,
    )
