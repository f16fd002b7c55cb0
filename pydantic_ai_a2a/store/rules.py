"""The rules of tasks that all stores share: pure functions of values of the ports."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, TypeAlias

from pydantic_core import from_json, to_json

from ..protocol import stored
from ..protocol.own_extensions import SHORTEST_ID
from ..types import TERMINAL, TaskEvent, TaskHeader
from .ports import DEAD_LETTERS, Finish, OnExpired, Status, Submission

logger = logging.getLogger('pydantic_ai_a2a')

EXPIRED = 'expired'
"""Failure class of a task without an answer in time."""
_HANDS_ON = TERMINAL - {'canceled'}
"""States that do not end a task with unread messages."""

Expired: TypeAlias = list[tuple[TaskHeader, TaskEvent]]
"""Waiting tasks without an answer in time, with the last events."""


# --- messages of clients --------------------------------------------------------------------------------------------


def replay_key(message: Submission, window: int) -> str | None:
    """Return the key for recognising a repeated message; None if repetitions are not recognised."""
    # Anonymous clients may share short message ids for new tasks. Only the task's own client knows a task id.
    if window <= 0 or (message.anonymous and message.new and len(message.message_id) < SHORTEST_ID):
        return None
    if not message.anonymous:
        return message.message_id
    return f'{message.message_id} {message.digest.hex()}'  # different content makes a different message


# --- runs -----------------------------------------------------------------------------------------------------------


def status_event(header: TaskHeader, status: Status, n: int) -> TaskEvent:
    """Return the event of a status."""
    body = stored.status(status.state, status.at, status.message)
    return TaskEvent(n, status.state, stored.status_update(header.id, header.context_id, body))


def hands_on(end: Finish) -> bool:
    """Return True if the task goes on with its unread messages after this end of a run."""
    return end.status.state in _HANDS_ON and not end.last and end.failure not in DEAD_LETTERS


def handed_on(header: TaskHeader, end: Finish) -> list[TaskEvent]:
    """Return the events for the end of a run whose task goes on: the reason of a failure, else none."""
    if end.status.message is None:
        return []
    return [status_event(header, end.status._replace(state='working'), end.final.n)]


# --- waiting tasks and dead letters ---------------------------------------------------------------------------------


def expired_status(header: TaskHeader, run: int, at: int) -> Status:
    """Return the failure of a task without an answer in time."""
    metadata = to_json({'failure': EXPIRED, 'correlationId': f'{header.id}.{run}'})
    parts = stored.text_parts('The task waited too long.')
    rest = b',"metadata":' + metadata + b',' + stored.ids(header.id, header.context_id)
    return Status('failed', at, stored.message(stored.new_id(), b'ROLE_AGENT', parts, rest))


def report_expired(ended: Expired, on_expired: OnExpired | None) -> None:
    """Log the tasks that a sweep has failed, under the correlation ids that clients read, and call the listener."""
    for header, event in ended:
        failure_id = from_json(event.payload)['statusUpdate']['status']['message']['metadata']['correlationId']
        logger.error('Task %s failed (%s, correlation id %s).', header.id, EXPIRED, failure_id)
        if on_expired is not None:
            on_expired(header, EXPIRED, failure_id)


def correlation_id(message: bytes | None) -> str | None:
    """Return the correlation id in the status message of a failed task."""
    status: dict[str, Any] = {} if message is None else from_json(message)
    return status.get('metadata', {}).get('correlationId')


def repeated(body: bytes, dead_id: str) -> tuple[str, bytes]:
    """Return a copy of a dead letter's message with a new id and without task ids; and the new id."""
    message: dict[str, Any] = from_json(body)
    message_id = stored.new_id()
    references: Iterable[str] = message.get('referenceTaskIds', ())
    message |= {'messageId': message_id, 'referenceTaskIds': [*references, dead_id]}
    del message['taskId'], message['contextId']
    return message_id, to_json(message)
