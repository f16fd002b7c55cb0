"""A user's own FastA2A storage, broker and worker, and the backend made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fasta2a.broker import Broker
from fasta2a.storage import Storage
from fasta2a.worker import Worker

from ..store.ports import Backend
from ..store.sqlite.memory import MemoryBackend

if TYPE_CHECKING:
    from .agent_worker import AgentWorker


class OwnParts(NamedTuple):
    """The user's own parts, including a worker's storage and broker."""

    storage: Storage[Any] | None
    broker: Broker | None
    worker: Worker[Any] | None

    @property
    def foreign(self) -> Worker[Any] | None:
        """The worker, if it overrides `run_task` or is no `AgentWorker`."""
        return foreign_worker(self.worker)

    def backend(self, memory: MemoryBackend) -> Backend:
        """Return the backend of the user's parts and a backend in memory."""
        from .broker_backend import BrokeredBackend  # noqa: PLC0415 - only apps with such parts need it
        from .storage_backend import FastA2ABackend  # noqa: PLC0415 - only apps with such parts need it

        inner = memory
        if self.storage is not None:
            inner = FastA2ABackend(self.storage, memory, worker_writes=self.foreign is not None)
        return inner if self.broker is None else BrokeredBackend(inner, self.broker)


def foreign_worker(worker: Worker[Any] | None) -> Worker[Any] | None:
    """Return a worker that runs tasks itself, else None."""
    own = agent_worker(worker)
    return worker if own is None or own.runs_itself else None


def agent_worker(worker: Worker[Any] | None) -> AgentWorker | None:
    """Return the worker if the worker is an `AgentWorker`."""
    if worker is None:
        return None
    from .agent_worker import AgentWorker  # noqa: PLC0415 - only apps with a FastA2A worker need it

    return worker if isinstance(worker, AgentWorker) else None


def own_parts(storage: Storage[Any] | None, broker: Broker | None, worker: Worker[Any] | None) -> OwnParts | None:
    """Return the user's own parts, if there are any."""
    if worker is not None:
        return OwnParts(worker.storage, worker.broker, worker)
    return None if storage is broker is None else OwnParts(storage, broker, None)
