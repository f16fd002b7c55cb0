"""Spans and metrics, through the API of OpenTelemetry: ids, names and numbers go in, records for an SDK come out.

There is a span for each operation, run and push notification. Metrics count tasks, runs, tokens and webhooks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, Protocol
from weakref import WeakSet

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
from opentelemetry.trace import ProxyTracerProvider, Span, SpanKind, Status, StatusCode

# --- metrics ----------------------------------------------------------------------------------------------------------
# Without a meter provider of an OpenTelemetry SDK, no instrument is made.
#
# The attributes of a metric come from short lists of the package: states, kinds of failure, classes of errors. No
# attribute names an owner, a task, a context or a text of a caller.

_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
"""Bounds of the buckets of durations: the bounds of the SDK are for milliseconds."""


class Queue(Protocol):
    """The tasks of a worker before the start."""

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
        meter.create_observable_gauge(
            'a2a.queue.length', [self._observe], '{task}', 'Tasks of this process that wait for a free slot.'
        )

    def enter(self, state: str, failure: str | None = None) -> None:
        """Count a task in a new state, with the kind of the failure."""
        attributes = {'a2a.task.state': state}
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

    def _observe(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(sum(queue.waiting for queue in list(self._queues)))]


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
# The spans of this package, for each operation, run and push notification, in the caller's trace.
#
# Spans are made only if an OpenTelemetry SDK is configured. Attributes are ids and names, never content.

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
