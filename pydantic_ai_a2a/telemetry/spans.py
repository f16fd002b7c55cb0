"""The spans of this package, for each operation, request, run and push notification, in the caller's trace.

Spans are made only if an OpenTelemetry SDK is configured. Attributes are ids and names, never content. Names follow
OpenTelemetry's conventions for A2A (`model/a2a` of semantic-conventions-genai).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import propagate, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import ProxyTracerProvider, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import Attributes, AttributeValue

from ..errors import A2AError
from ..types.a2a_objects import TaskState
from .attributes import CONTEXT, METHOD, SCOPE, STATE, TASK, ids_of, present, state_name
from .propagation import decoded_headers, load_trace

_NOTHING: AbstractContextManager[None] = nullcontext()


def recording() -> bool:
    """Return whether an OpenTelemetry SDK records spans."""
    return not isinstance(trace.get_tracer_provider(), ProxyTracerProvider)


def operation_span(
    method: str, headers: Iterable[tuple[bytes, bytes]], attributes: Mapping[str, str]
) -> AbstractContextManager[Span]:
    """Open a server span for one operation, in the trace and with the baggage that the request names.

    Args:
        method: Name of the operation.
        headers: Headers of the request.
        attributes: Attributes of the operation; empty ones are left out.
    """
    # A current span of this process, such as a web framework's, is the parent. Its instrumentation reads the baggage.
    context = None if _is_traced() else propagate.extract(decoded_headers(headers))
    return _span(method, SpanKind.SERVER, context, present({METHOD: method, **attributes}))


def client_span(method: str, params: object, attributes: Mapping[str, AttributeValue]) -> Span:
    """Start the client span of one request to a remote agent. `inside` makes the span current.

    Args:
        method: Name of the operation.
        params: The params of the operation.
        attributes: Attributes of the remote agent; empty ones are left out.
    """
    named = present({METHOD: method, **attributes, **ids_of(params)})
    return trace.get_tracer(SCOPE).start_span(method, kind=SpanKind.CLIENT, attributes=named)


def name_task(span: Span, task_id: str | None, context_id: str | None, state: TaskState | None) -> None:
    """Name a task in a span, as far as it is known, if the caller may see the task."""
    span.set_attributes(present({TASK: task_id, CONTEXT: context_id, STATE: state and state_name(state)}))


def run_span(task_id: str, context_id: str, stored: str | None) -> AbstractContextManager[Span]:
    """Open a consumer span `a2a run` around one agent run; `stored` is the trace of the submitting process."""
    context = None if _is_traced() else load_trace(stored)
    return _span('a2a run', SpanKind.CONSUMER, context, {TASK: task_id, CONTEXT: context_id})


def push_span(task_id: str, delivery_id: str, stored: str | None) -> AbstractContextManager[Span | None]:
    """Open a client span `a2a push` around one call of a webhook; `stored` is the trace of the task."""
    if not recording():
        return _NOTHING
    return _span('a2a push', SpanKind.CLIENT, load_trace(stored), {TASK: task_id, 'a2a.delivery.id': delivery_id})


@contextmanager
def inside(span: Span, *, end: bool) -> Generator[Span]:
    """Make a span current in the block. An error that leaves the block is the error of the span.

    Args:
        span: The span.
        end: True to end the span with the block.
    """
    # The texts of exceptions may hold content of users: the span has only the class, and the log has the text.
    with trace.use_span(span, end, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except BaseException as error:
            span.set_status(Status(StatusCode.ERROR))
            kind = str(error.code) if isinstance(error, A2AError) else type(error).__qualname__
            span.set_attribute('error.type', kind)
            raise


@contextmanager
def _span(name: str, kind: SpanKind, context: Context | None, attributes: Attributes) -> Generator[Span]:
    """Open a span in the trace of a context, with the baggage of the context in the block."""
    token = None if context is None else attach(context)
    try:
        with inside(trace.get_tracer(SCOPE).start_span(name, kind=kind, attributes=attributes), end=True) as span:
            yield span
    finally:
        if token is not None:
            detach(token)


def _is_traced() -> bool:
    return trace.get_current_span().get_span_context().is_valid
