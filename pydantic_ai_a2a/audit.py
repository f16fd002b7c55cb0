"""The audit log: who was refused, and who answered, cancelled and erased what, one line of JSON each.

It knows neither credentials nor content.

The logger is `pydantic_ai_a2a.audit`. Each record of it has the same facts as a dict, in its attribute `audit`.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from os import urandom
from typing import Literal, TypeAlias

__all__ = ('LOGGER', 'Event', 'Fact', 'audit', 'new_correlation_id')

LOGGER = 'pydantic_ai_a2a.audit'
"""Name of the logger."""

Event: TypeAlias = Literal[
    'authentication-missing',
    'authentication-failed',
    'authentication-unavailable',
    'forbidden',
    'quota-exceeded',
    'refused',
    'calls-answered',
    'task-canceled',
    'erased',
]
"""What happened. A request without credentials is how many clients ask what they need, so it is no warning."""

_ORDINARY = ('authentication-missing', 'calls-answered', 'task-canceled')

Fact: TypeAlias = 'str | list[str] | dict[str, str] | None'
"""What is said about it."""

logger = logging.getLogger(LOGGER)


def new_correlation_id() -> str:
    """Names one request, or what else was done, in its answer and in the logs."""
    return urandom(8).hex()


def audit(event: Event, *, correlation_id: str, **facts: Fact) -> None:
    """Write a record.

    Args:
        event: What happened.
        correlation_id: See `new_correlation_id`.
        facts: More about it: names and classes, never credentials or content. Those that are None are left out.
    """
    level = logging.INFO if event in _ORDINARY else logging.WARNING
    if not logger.isEnabledFor(level):
        return
    known = {name: value for name, value in facts.items() if value is not None}
    time = datetime.now(UTC).isoformat(timespec='milliseconds')
    record = {'event': event, 'time': time, **known, 'correlation_id': correlation_id}
    # JSON in ASCII has no line breaks of any kind, so nothing that a client names can look like another record.
    logger.log(level, '%s', json.dumps(record, separators=(',', ':')), extra={'audit': record})
