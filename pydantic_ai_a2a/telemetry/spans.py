"""Spans and metrics, through the API of OpenTelemetry: ids, names and numbers go in, records for an SDK come out.

There is a span for each operation, run and push notification. Metrics count tasks, runs, tokens and webhooks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, Protocol
from weakref import WeakSet

from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
from opentelemetry.trace import ProxyTracerProvider, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import Attributes, AttributeValue
from pydantic_core import from_json, to_json

from ..errors import A2AError
from ..types import SendParams, TaskState

# --- metrics ----------------------------------------------------------------------------------------------------------
# Without a meter provider of an OpenTelemetry SDK, no instrument is made.
#
# The attributes of a metric come from short lists of the package: states, kinds of failure, classes of errors. No
# attribute names an owner, a task, a context or a text of a caller.

_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
"""Bounds of the buckets of durations: the bounds of the SDK are for milliseconds."""


class Queue(Protocol):
    """The tasks of a worker before the start."""

    queue_paused: bool
    """True if an operator has paused the queue."""

    @property
    def waiting(self) -> int:
        """Number of tasks in wait for a free slot, from any thread."""
        ...


class Instruments:
    """The instruments of a meter provider.

    Args:
        provider: The meter provider.
        queues: The observed queues of the running workers.
    """

    def __init__(self, provider: MeterProvider, queues: WeakSet[Queue]) -> None:
        self.provider = provider
        self._queues = queues
        meter = provider.get_meter(SCOPE)
        self._tasks = meter.create_counter('a2a.task.transitions', '{task}', 'Tasks that have entered a state.')
        self._queue_time = meter.create_histogram(
            'a2a.queue.duration',
            's',
            'Time from the submission of a task to the start of its first run.',
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._runs = meter.create_up_down_counter('a2a.run.active', '{run}', 'Runs at this moment.')
        self._run_time = meter.create_histogram(
            'a2a.run.duration', 's', 'Time of an agent run.', explicit_bucket_boundaries_advisory=_SECONDS
        )
        self._tokens = meter.create_counter('a2a.run.tokens', '{token}', 'Tokens that runs have used.')
        self._lost = meter.create_counter('a2a.lease.lost', '{lease}', 'Leases that a worker has lost during a run.')
        self._webhooks = meter.create_counter('a2a.push.deliveries', '{delivery}', 'Tries to call a webhook.')
        self._over = meter.create_counter('a2a.retention.over_limit', '{row}', 'Data deleted before its time.')
        self._behind = meter.create_counter('a2a.retention.behind', '{sweep}', 'Sweeps that were not enough.')
        meter.create_observable_gauge(
            'a2a.queue.length', [self._observe], '{task}', 'Tasks of this process that wait for a free slot.'
        )
        meter.create_observable_gauge(
            'a2a.queue.paused',
            [self._observe_pause],
            '1',
            '1 if an operator has paused a queue of this process, else 0.',
        )

    def enter(self, state: TaskState, failure: str | None = None) -> None:
        """Count a task in a new state, with the kind of the failure."""
        attributes = {_STATE: _name_of(state)}
        if failure is not None:
            attributes['error.type'] = failure
        self._tasks.add(1, attributes)

    def begin_run(self, waited: float | None) -> None:
        """Count the start of a run. For the first run of a task, `waited` is the task's time in the queue (s)."""
        self._runs.add(1)
        if waited is not None:
            self._queue_time.record(max(0.0, waited))

    def end_run(self, seconds: float, error: BaseException | None, tokens: Sequence[int]) -> None:
        """Count the end of a run, with the tokens of input and output."""
        self._runs.add(-1)
        self._run_time.record(seconds, {} if error is None else {'error.type': type(error).__qualname__})
        for kind, number in zip(('input', 'output'), tokens, strict=True):
            self._tokens.add(number, {'gen_ai.token.type': kind})

    def lose_lease(self) -> None:
        """Count the loss of a lease during a run."""
        self._lost.add(1)

    def deliver(self, outcome: Literal['accepted', 'failed', 'dead']) -> None:
        """Count a try to call a webhook: `failed` is tried again, `dead` is not."""
        self._webhooks.add(1, {'a2a.push.outcome': outcome})

    def sweep(self, over: Mapping[str, int], *, behind: bool) -> None:
        """Count data that was deleted before its time, and sweeps that were not enough."""
        for kind, number in over.items():
            self._over.add(number, {'a2a.retention.data': kind})
        if behind:
            self._behind.add(1)

    def _observe(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(sum(queue.waiting for queue in list(self._queues)))]

    def _observe_pause(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(int(any(queue.queue_paused for queue in list(self._queues))))]


class Metrics:
    """The metrics of this process."""

    def __init__(self) -> None:
        self.instruments: Instruments | None = None
        """The instruments; None without an SDK. Callers look here first: a disabled metric costs no call."""
        self._queues: WeakSet[Queue] = WeakSet()

    def begin(self) -> None:
        """Make the instruments if an SDK is configured. Called at the start of an app."""
        provider = get_meter_provider()
        # OpenTelemetry's default provider: no SDK is configured.
        if type(provider).__module__.partition('.metrics')[0] == 'opentelemetry':
            self.instruments = None
        elif self.instruments is None or self.instruments.provider is not provider:
            self.instruments = Instruments(provider, self._queues)

    def watch(self, queue: Queue) -> None:
        """Observe the length of a worker's queue, as long as the worker exists."""
        if self.instruments is not None:
            self._queues.add(queue)


metrics = Metrics()


# --- spans ------------------------------------------------------------------------------------------------------------
# The spans of this package, for each operation, request, run and push notification, in the caller's trace.
#
# Spans are made only if an OpenTelemetry SDK is configured. Attributes are ids and names, never content. Names follow
# OpenTelemetry's conventions for A2A (`model/a2a` of semantic-conventions-genai).

SCOPE = 'pydantic_ai_a2a'
"""Instrumentation scope of spans and metrics, and name of the logger."""

_METHOD, _TASK, _STATE = 'a2a.method.name', 'a2a.task.id', 'a2a.task.state'
_CONTEXT = 'gen_ai.conversation.id'
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
    context = None if _is_traced() else propagate.extract(_decoded(headers))
    return _span(method, SpanKind.SERVER, context, _present({_METHOD: method, **attributes}))


def client_span(method: str, params: object, attributes: Mapping[str, AttributeValue]) -> Span:
    """Start the client span of one request to a remote agent. `inside` makes the span current.

    Args:
        method: Name of the operation.
        params: The params of the operation.
        attributes: Attributes of the remote agent; empty ones are left out.
    """
    named = _present({_METHOD: method, **attributes, **ids_of(params)})
    return trace.get_tracer(SCOPE).start_span(method, kind=SpanKind.CLIENT, attributes=named)


def ids_of(params: object) -> dict[str, AttributeValue]:
    """Return the attributes with the ids in the params of an operation."""
    if not isinstance(params, SendParams):
        task_id = getattr(params, 'task_id', None) or getattr(params, 'id', None)
        return _present({_TASK: task_id, _CONTEXT: getattr(params, 'context_id', None)})
    message = params.message
    references = message.get('reference_task_ids')
    of_message = {'a2a.message.id': message['message_id'], 'a2a.message.reference_task_ids': references}
    return _present({**of_message, _TASK: message.get('task_id'), _CONTEXT: message.get('context_id')})


def name_task(span: Span, task_id: str | None, context_id: str | None, state: TaskState | None) -> None:
    """Name a task in a span, as far as it is known, if the caller may see the task."""
    span.set_attributes(_present({_TASK: task_id, _CONTEXT: context_id, _STATE: state and _name_of(state)}))


def run_span(task_id: str, context_id: str, stored: str | None) -> AbstractContextManager[Span]:
    """Open a consumer span `a2a run` around one agent run; `stored` is the trace of the submitting process."""
    context = None if _is_traced() else _loaded(stored)
    return _span('a2a run', SpanKind.CONSUMER, context, {_TASK: task_id, _CONTEXT: context_id})


def push_span(task_id: str, delivery_id: str, stored: str | None) -> AbstractContextManager[Span | None]:
    """Open a client span `a2a push` around one call of a webhook; `stored` is the trace of the task."""
    if not recording():
        return _NOTHING
    return _span('a2a push', SpanKind.CLIENT, _loaded(stored), {_TASK: task_id, 'a2a.delivery.id': delivery_id})


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


def _present(attributes: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    return {name: value for name, value in attributes.items() if value}


def _name_of(state: TaskState) -> str:
    return f'TASK_STATE_{state.upper().replace("-", "_")}'


# --- the trace and the baggage of a caller, on their way to runs and to other agents ----------------------------------


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


def _loaded(stored: str | None) -> Context | None:
    return None if stored is None else propagate.extract(from_json(stored))


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode('latin-1'): value.decode('latin-1') for name, value in headers}
