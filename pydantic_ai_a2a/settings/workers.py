"""Execution of tasks in this process: slots, leases, tries and the shutdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..arguments import checked
from ..time_spans import Span
from ..types.a2a_objects import Worker
from .positive_numbers import positive


class _FixedWorkers:
    """Times that fit every server. Tests have others, in subclasses of `Workers`."""

    backoff = 2.0
    """Seconds before the first further try of a run. Each later pause is twice as long, up to 64 seconds. A pause is up
    to a half longer at random."""


@checked
@dataclass(frozen=True, kw_only=True)
class Workers(_FixedWorkers):
    """Execution of tasks in this process."""

    running: int = 256
    """Tasks that run at once in this process. Synchronous tools share the 40 threads of anyio. Default 256."""
    drain_grace: Span[float] = Span(20.0)
    """Seconds that running tasks get to finish when the server shuts down. Default 20."""
    drain_delay: Span[float] = Span(0.0)
    """Seconds that a server continues to serve after SIGTERM, with HTTP 503 on `/health/ready`, before the shutdown:
    time for a load balancer to react. Default 0."""
    lease: Span[float] = Span(30.0)
    """Seconds until another process may take over a task whose worker has stopped renewing it. Default 30."""
    attempts: int = 3
    """Starts of a task, including the first. A task starts again after the loss of its process. After the last start
    the task is `failed` and becomes a dead letter. Default 3."""
    retries: int = 5
    """Further tries of a run after an error of the model that `retry_on` accepts, such as HTTP 503. A try continues
    after the last stored step, and each stored step allows as many tries again. In memory, a run is tried again only
    before its first tool call. The pauses before five tries take 62 to 93 seconds, or longer as the provider asks with
    `Retry-After`. 0 turns tries off. Default 5."""
    retry_on: Callable[[Exception], bool] | None = None
    """Function that returns True for an error of a model request after which the run is tried again. Default None: HTTP
    408, 429 and 500 or more, timeouts, and dropped connections; not an exhausted quota."""

    worker: Worker[Any] | None = None
    """A FastA2A worker of your own, with its own storage and broker. Default None. An `AgentWorker` is called by this
    package's worker, with its own `build_message_history` and `build_artifacts`. Any other worker runs tasks itself, as
    does an `AgentWorker` with its own `run_task` or `cancel_task`."""

    def __post_init__(self) -> None:
        positive(self, or_zero=('retries',))
