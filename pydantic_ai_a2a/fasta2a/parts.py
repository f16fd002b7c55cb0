"""A user's own FastA2A storage, broker and worker: whether they fit together, and what is made of them.

Knows neither the app nor how it is hosted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fasta2a.broker import Broker
from fasta2a.storage import Storage
from fasta2a.worker import Worker
from pydantic_ai.agent import AbstractAgent

from ..agent.hooks import Hooks
from ..agent.options import RunOptions
from ..backends.memory import SqliteBackend
from ..conversion.inbound import HTTPS_ONLY
from ..ports import Backend
from .broker import BrokeredBackend
from .storage import FastA2ABackend
from .worker import AgentWorker

__all__ = ('OwnParts', 'foreign_worker', 'own_parts')


@dataclass(frozen=True, slots=True)
class OwnParts:
    """What the user has brought; a worker's storage and broker among it."""

    storage: Storage[Any] | None
    broker: Broker | None
    worker: Worker[Any] | None

    @property
    def foreign(self) -> Worker[Any] | None:
        """A worker that runs tasks by itself."""
        return foreign_worker(self.worker)

    def backend(self, memory: SqliteBackend) -> Backend:
        """What tasks are kept in, and run through."""
        inner = memory
        if self.storage is not None:
            inner = FastA2ABackend(self.storage, memory, worker_writes=self.foreign is not None)
        return inner if self.broker is None else BrokeredBackend(inner, self.broker)


def foreign_worker(worker: Worker[Any] | None) -> Worker[Any] | None:
    """Return the worker if it runs tasks by itself."""
    return None if isinstance(worker, AgentWorker) and not worker.runs_itself else worker


def own_parts(
    agent: AbstractAgent[Any, Any],
    *,
    storage: Storage[Any] | None,
    broker: Broker | None,
    worker: Worker[Any] | None,
    backend_given: bool,
    options: RunOptions,
    hooks: Hooks,
    deps_factory: object,
    force_download: bool,
    url_schemes: frozenset[str],
) -> OwnParts | None:
    """The user's own parts, if there are any.

    Raises:
        TypeError: They are given with a backend, or a worker with run options.
        ValueError: The worker has another storage, broker or agent.
    """
    if storage is broker is worker is None:
        return None
    if backend_given:
        raise TypeError('storage=, broker= and worker= are what FastA2A has for a backend; give them or backend=.')
    if worker is None:
        return OwnParts(storage, broker, None)
    given_options = [name for name, value in options.items() if value is not None]
    others = {
        'deps_factory': deps_factory is not None,
        'force_download': not force_download,
        'allowed_file_url_schemes': url_schemes != HTTPS_ONLY,
    }
    if given_here := sorted([*given_options, *hooks.given, *(name for name, there in others.items() if there)]):
        raise TypeError(f'With worker=, to_a2a() takes no {", ".join(given_here)}: the worker runs as it was made.')
    given: dict[str, tuple[object, object]] = {'storage': (storage, worker.storage), 'broker': (broker, worker.broker)}
    given |= {'agent': (agent, getattr(worker, 'agent', agent))}
    if different := [name for name, (ours, its) in given.items() if ours is not None and ours is not its]:
        raise ValueError(f'The worker has another {" and ".join(different)} than to_a2a() was given.')
    return OwnParts(worker.storage, worker.broker, worker)
