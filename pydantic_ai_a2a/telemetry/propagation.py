"""The trace and the baggage of a caller, on their way to runs and to other agents."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry import baggage, propagate
from opentelemetry.context import Context, get_current
from pydantic_core import from_json, to_json


def trace_headers() -> dict[str, str]:
    """Return the headers that carry the current trace and baggage: `traceparent`, `tracestate` and `baggage`.

    The propagators of OpenTelemetry decide which headers there are. What Pydantic AI notes about the current run in the
    baggage, such as the conversation id, is left out.
    """
    headers: dict[str, str] = {}
    context = get_current()
    for name in baggage.get_all(context):
        if name.startswith('gen_ai.'):
            context = baggage.remove_baggage(name, context)
    propagate.inject(headers, context)
    if len(headers.get('baggage', '')) > 8192:  # the limit of W3C, which older versions of OpenTelemetry do not know
        del headers['baggage']
    return headers


def dump_trace() -> str | None:
    """Return the current trace and baggage for storage with a task; None without both."""
    headers = trace_headers()
    return to_json(headers).decode() if headers else None


def load_trace(stored: str | None) -> Context | None:
    """Return the trace and baggage that `dump_trace` has returned; None for None."""
    return None if stored is None else propagate.extract(from_json(stored))


def decoded_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers of a request as texts, in the form that the propagators read."""
    return {name.decode('latin-1'): value.decode('latin-1') for name, value in headers}
