"""The spans of this package, for each operation, run and push notification, in the caller's trace.

Spans are made only if an OpenTelemetry SDK is configured. Attributes are ids and names, never content.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import ProxyTracerProvider, Span, SpanKind, Status, StatusCode

__all__ = ('SCOPE', 'name_task', 'operation_span', 'push_span', 'recording', 'run_span', 'traceparent')

SCOPE = 'pydantic_ai_a2a'
"""Instrumentation scope of spans and metrics, and name of the logger."""

_NOTHING: AbstractContextManager[None] = nullcontext()


def recording() -> bool:
    """Return whether an OpenTelemetry SDK records spans."""
    return not isinstance(trace.get_tracer_provider(), ProxyTracerProvider)


def operation_span(
    method: str, headers: Iterable[tuple[bytes, bytes]], attributes: Mapping[str, str]
) -> AbstractContextManager[Span]:
    """Open a server span `a2a {method}` for one operation, as a child of the caller's span if the request names one.

    Args:
        method: Name of the operation.
        headers: Headers of the request.
        attributes: Attributes of the binding.
    """
    # A current span of this process, such as a web framework's, is the parent.
    context = None if trace.get_current_span().get_span_context().is_valid else propagate.extract(_decoded(headers))
    return _span(f'a2a {method}', SpanKind.SERVER, context, {**attributes, 'rpc.method': method})


def name_task(span: Span, task_id: str, context_id: str | None = None) -> None:
    """Name the task, and the context if known, in the span of an operation whose caller may see the task."""
    span.set_attribute('a2a.task.id', task_id)
    if context_id is not None:
        span.set_attribute('gen_ai.conversation.id', context_id)


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode('latin-1'): value.decode('latin-1') for name, value in headers}


def run_span(task_id: str, context_id: str, parent: str | None) -> AbstractContextManager[Span]:
    """Open a consumer span `a2a run` around one agent run; `parent` is the traceparent of the submitting process."""
    context = None
    if parent is not None and not trace.get_current_span().get_span_context().is_valid:
        context = propagate.extract({'traceparent': parent})
    attributes = {'a2a.task.id': task_id, 'gen_ai.conversation.id': context_id}
    return _span('a2a run', SpanKind.CONSUMER, context, attributes)


def push_span(task_id: str, delivery_id: str, parent: str | None) -> AbstractContextManager[Span | None]:
    """Open a client span `a2a push` around one call of a webhook; `parent` is the task's traceparent."""
    if not recording():
        return _NOTHING
    context = None if parent is None else propagate.extract({'traceparent': parent})
    return _span('a2a push', SpanKind.CLIENT, context, {'a2a.task.id': task_id, 'a2a.delivery.id': delivery_id})


@contextmanager
def _span(name: str, kind: SpanKind, context: Context | None, attributes: dict[str, str]) -> Generator[Span]:
    tracer = trace.get_tracer(SCOPE)
    # The texts of exceptions may hold content of users: the span has only the class, and the log has the text.
    with tracer.start_as_current_span(
        name, context, kind, attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_status(Status(StatusCode.ERROR))
            span.set_attribute('error.type', type(error).__qualname__)
            raise


def traceparent() -> str | None:
    """Return the current span as W3C trace context, for storage with a task; None outside of any span."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get('traceparent')
