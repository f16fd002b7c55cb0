"""The tasks of an inbox, and their rows in a table."""

from __future__ import annotations

from contextlib import aclosing

from ..client.client import A2AClient
from ..client.results import RemoteResult
from ..errors import RemoteProtocolError

COLUMNS = ('task', 'waits for', 'since', 'question')
_ANSWERS = {'approval': 'approval', 'question': 'answer', 'external': 'result', 'authorization': 'sign-in'}
"""What a task waits for, by the kind of a call."""
_LONGEST = 60
"""The most characters of a question in a row."""


async def newest_tasks(client: A2AClient, limit: int) -> list[RemoteResult]:
    """Return so many tasks of the inbox, the newest status first."""
    tasks: list[RemoteResult] = []
    async with aclosing(client.inbox()) as found:
        async for task in found:
            tasks.append(task)
            if len(tasks) == limit:
                break
    return tasks


def row_of(task: RemoteResult) -> list[str]:
    """Return a task in the columns of the table."""
    assert task.task is not None, 'the inbox has tasks'
    try:
        text, calls = task.text, task.pending
    except RemoteProtocolError as error:  # the question cannot be answered
        text, calls = str(error), []
    own = 'sign-in' if task.state == 'auth-required' else 'answer'
    line = ' '.join(text.split())
    return [
        task.task_id,
        ', '.join(dict.fromkeys(_ANSWERS[call['kind']] for call in calls)) or own,
        task.task['status'].get('timestamp', '-'),
        line if len(line) <= _LONGEST else f'{line[: _LONGEST - 3]}...',
    ]
