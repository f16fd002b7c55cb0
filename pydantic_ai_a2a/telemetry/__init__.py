"""Spans and metrics, through the API of OpenTelemetry: ids, names and numbers go in, records for an SDK come out.

`spans` makes a span for each operation, run and push notification. `instruments` counts tasks, runs, tokens and
webhooks.
"""

from __future__ import annotations

from .instruments import Instruments, metrics
from .spans import SCOPE, name_task, operation_span, push_span, recording, run_span, traceparent

__all__ = (
    'SCOPE',
    'Instruments',
    'metrics',
    'name_task',
    'operation_span',
    'push_span',
    'recording',
    'run_span',
    'traceparent',
)
