"""The commands `dead-letters list` and `dead-letters retry`."""

from __future__ import annotations

from typing import Any

from click import Option

from ..server.store.ports import Backend, DeadLetter
from ..wire.protocol import new_ids
from .dead_items import Dead, commands_for
from .tables import time_text


def _letter_values(letter: DeadLetter) -> dict[str, Any]:
    return {
        'taskId': letter.task_id,
        'contextId': letter.context_id,
        'owner': letter.owner,
        'failedAt': time_text(letter.at),
        'attempts': letter.attempts,
        'failure': letter.failure,
        'correlationId': letter.correlation_id,
        'retriedAs': letter.retried_as,
    }


async def _retry_task(backend: Backend, task_id: str, *, again: bool, failed: bool) -> dict[str, str]:
    new_id = new_ids.new_id()
    await backend.housekeeping.retry(task_id, new_id=new_id, at=backend.now(), again=again, failed=failed)
    return {'taskId': task_id, 'retriedAs': new_id}


dead_letters = commands_for(
    Dead[DeadLetter](
        noun='task',
        columns=('task', 'context', 'owner', 'failed', 'attempts', 'failure', 'correlation id', 'retried as'),
        pages=lambda backend: backend.housekeeping.dead_letters,
        values=_letter_values,
        retry=_retry_task,
    ),
    name='dead-letters',
    summary='List or retry failed tasks (dead letters).',
    list_help='List the dead letters, oldest failure first.',
    retry_help='Retry each dead letter as a new task.\n\nThe new task has the same message, owner and context.',
    both_options=[Option(['--failed'], is_flag=True, help='Include all failed tasks. A retry begins anew.')],
    retry_options=[
        Option(['--yes'], is_flag=True, help='With --failed: do not ask whether to begin anew.'),
        Option(['--again'], is_flag=True, help='Also retry tasks that were retried before.'),
    ],
)
