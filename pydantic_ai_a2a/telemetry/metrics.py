"""Metrics: tasks, runs, tokens and webhooks are counted.

Without a meter provider of an OpenTelemetry SDK, no instrument is made.

The attributes of a metric come from short lists of the package: states, kinds of failure, classes of errors. No
attribute names an owner, a task, a context or a text of a caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal
from weakref import WeakSet

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider

from ..types.a2a_objects import TaskState
from .attributes import SCOPE, STATE, state_name
from .watched_queue import WatchedQueue

_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
"""Bounds of the buckets of durations: the bounds of the SDK are for milliseconds."""


class Instruments:
    """The instruments of a meter provider.

    Args:
        provider: The meter provider.
        queues: The observed queues of the running workers.
    """

    def __init__(self, provider: MeterProvider, queues: WeakSet[WatchedQueue]) -> None:
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
        attributes = {STATE: state_name(state)}
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
        self._queues: WeakSet[WatchedQueue] = WeakSet()

    def begin(self) -> None:
        """Make the instruments if an SDK is configured. Called at the start of an app."""
        provider = get_meter_provider()
        # OpenTelemetry's default provider: no SDK is configured.
        if type(provider).__module__.partition('.metrics')[0] == 'opentelemetry':
            self.instruments = None
        elif self.instruments is None or self.instruments.provider is not provider:
            self.instruments = Instruments(provider, self._queues)

    def watch(self, queue: WatchedQueue) -> None:
        """Observe the length of a worker's queue, as long as the worker exists."""
        if self.instruments is not None:
            self._queues.add(queue)


metrics = Metrics()
