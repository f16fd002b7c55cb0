"""Checks of the backend, and of what users bring in its place: a storage, a broker, a worker."""

from __future__ import annotations

from typing import Any

from fasta2a.broker import Broker
from fasta2a.storage import Storage
from pydantic_ai.agent import AbstractAgent

from ...settings.app_settings import Settings
from ..fasta2a.user_parts import foreign_worker
from ..store.ports import Backend
from .conflicting_options import refuse_options


def check_backend(
    agent: AbstractAgent[Any, Any],
    settings: Settings,
    *,
    backend: object,
    storage: Storage[Any] | None,
    broker: Broker | None,
) -> None:
    """Check the backend, and a storage, a broker and a worker of the user's own.

    Raises:
        TypeError: The options do not go together.
        ValueError: The worker has another storage, broker or agent.
    """
    worker, is_backend = settings.workers.worker, isinstance(backend, Backend)
    is_foreign = worker is not None and foreign_worker(worker) is not None
    is_own = not storage is broker is worker is None
    budgets = settings.limits.quotas is not None and bool(settings.limits.quotas.budgets)
    refuse_options(
        (
            is_backend and settings.retention.namespace is not None,
            'Retention.namespace cannot be combined with a Backend, which has its own namespace. Pass the'
            ' namespace to the Backend.',
        ),
        (
            backend != 'memory' and is_own,
            'backend= cannot be combined with storage=, broker= or Workers.worker, which replace the backend.'
            ' Remove one of them.',
        ),
        (
            settings.messages.reply != 'task' and not storage is worker is None,
            'Messages.reply cannot be combined with storage= or Workers.worker: direct replies need'
            ' conversations kept by the backend. Remove one of them.',
        ),
        (
            settings.messages.reply != 'task' and settings.access.credentials is not None,
            'Messages.reply cannot be combined with Access.credentials, which are stored with a task. Remove one of'
            ' them.',
        ),
        (
            settings.messages.reply == 'message' and settings.messages.client_tools,
            "Messages.client_tools cannot be combined with reply='message': a call of a client's tool waits in a task."
            ' Remove one of them, or let a function choose the reply.',
        ),
        (
            is_foreign and settings.messages.client_tools,
            'Messages.client_tools cannot be combined with Workers.worker: such a worker calls its own tools only.',
        ),
        (
            worker is not None and settings.results.client_schemas,
            'Results.client_schemas cannot be combined with Workers.worker, which makes the artifacts. Remove one of'
            ' them.',
        ),
        (
            is_foreign and settings.messages.while_working == 'steer',
            "while_working='steer' cannot be combined with Workers.worker: such a worker reads one message a run.",
        ),
        (
            is_foreign and budgets,
            'Quotas.budgets cannot be combined with Workers.worker: such a worker does not report usage.',
        ),
        (
            is_foreign and settings.limits.quotas is not None and settings.limits.quotas.running is not None,
            'Quotas.running cannot be combined with Workers.worker: such a worker chooses the tasks that it runs.',
        ),
    )
    if worker is not None:
        pairs: dict[str, tuple[object, object]] = {
            'storage': (storage, worker.storage),
            'broker': (broker, worker.broker),
            'agent': (agent, getattr(worker, 'agent', agent)),
        }
        if different := [name for name, (ours, its) in pairs.items() if ours is not None and ours is not its]:
            raise ValueError(f'The worker and to_a2a() have a different {" and ".join(different)}. Give both the same.')
