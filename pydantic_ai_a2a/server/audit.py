"""The audit log: refusals, answers, cancellations and erasures, one line of JSON each, without credentials or content.

The logger is `pydantic_ai_a2a.audit`. The attribute `audit` of a record has the facts of the line as a dict. The
facts come from the callers of `audit`: `auth.guard`, `quotas`, the modules `refusals`, `answer_audit` and
`cancellation` of `service`, and the erasure in `app.a2a_app` and in the command.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Literal, TypeAlias

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
"""Kind of a record."""

# A request without credentials is a client's usual way to ask for the authentication schemes: no warning.
_ORDINARY = ('authentication-missing', 'calls-answered', 'task-canceled')

Fact: TypeAlias = 'str | list[str] | dict[str, str] | None'
"""Value of a fact in a record."""

logger = logging.getLogger(LOGGER)


def audit(event: Event, *, correlation_id: str, **facts: Fact) -> None:
    """Write a record.

    Args:
        event: Kind of the record.
        correlation_id: Names the request or command in the logs.
        facts: Further facts: names and classes, never credentials or content. Facts that are None are left out.
    """
    level = logging.INFO if event in _ORDINARY else logging.WARNING
    if not logger.isEnabledFor(level):
        return
    present = {name: value for name, value in facts.items() if value is not None}
    time = datetime.now(UTC).isoformat(timespec='milliseconds')
    record = {'event': event, 'time': time, **present, 'correlation_id': correlation_id}
    # JSON in ASCII has no line breaks, so a name from a client cannot forge another record.
    logger.log(level, '%s', json.dumps(record, separators=(',', ':')), extra={'audit': record})
