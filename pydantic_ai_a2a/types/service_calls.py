"""One call of an operation, as the service sees it."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from .callers import Caller
from .frozen_values import frozen


@frozen
class Call:
    """One call, as the service sees it."""

    caller: Caller
    correlation_id: str
    """Identifies the call in logs, in `X-Correlation-Id` and in an error's details."""
    traceparent: str | None = None
    """Trace and baggage of the caller as JSON, for runs in another process; see `telemetry.propagation.dump_trace`."""
    kept: dict[str, Any] | None = None
    """Further information on the call for its run, as JSON values; None if runs need none."""
    size: int = 0
    """Bytes of the request's body."""
    dialect: str = '1.0'
    """Name of the codec of the request."""
    request: Any = field(default=None, repr=False)
    """The `RequestInfo` of the call."""
    live: bool = False
    """True if the client wants the text of an answer while the model writes the text."""
    left: Any = field(default=None, repr=False)
    """A future that is done once the client has gone; it ends the wait for a task. None: such a wait goes on."""
