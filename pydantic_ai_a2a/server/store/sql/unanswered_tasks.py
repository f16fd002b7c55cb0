"""Waiting tasks that fail because no answer has come in time."""

from __future__ import annotations

import logging
from typing import TypeAlias

from pydantic_core import from_json, to_json

from ....types.stored_events import TaskEvent
from ....types.stored_tasks import TaskHeader
from ....wire.protocol import new_ids, stored
from ..ports import OnExpired, Status

logger = logging.getLogger('pydantic_ai_a2a')

EXPIRED = 'expired'
"""Failure class of a task without an answer in time."""
Expired: TypeAlias = list[tuple[TaskHeader, TaskEvent]]
"""Waiting tasks without an answer in time, with the last events."""


def expired_status(header: TaskHeader, run: int, at: int) -> Status:
    """Return the failure of a task without an answer in time."""
    metadata = to_json({'failure': EXPIRED, 'correlationId': f'{header.id}.{run}'})
    parts = stored.text_parts('The task waited too long.')
    rest = b',"metadata":' + metadata + b',' + stored.ids(header.id, header.context_id)
    return Status('failed', at, stored.message(new_ids.new_id(), b'ROLE_AGENT', parts, rest))


def report_expired(ended: Expired, on_expired: OnExpired | None) -> None:
    """Log the tasks that a sweep has failed, under the correlation ids that clients read, and call the listener."""
    for header, event in ended:
        failure_id = from_json(event.payload)['statusUpdate']['status']['message']['metadata']['correlationId']
        logger.error('Task %s failed (%s, correlation id %s).', header.id, EXPIRED, failure_id)
        if on_expired is not None:
            on_expired(header, EXPIRED, failure_id)
