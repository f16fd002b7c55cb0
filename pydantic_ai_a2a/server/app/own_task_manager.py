"""The task manager of FastA2A that an app shows, with the user's own storage and broker."""

from __future__ import annotations

from typing import Any, Self

from fasta2a.broker import Broker
from fasta2a.storage import Storage
from fasta2a.task_manager import TaskManager

from ..runs.app_hosting import Hosting

INSTEAD = (
    'Use app.get_task(), app.list_tasks(), app.cancel_task() and app.conversations(), or app.backend for all other'
    ' stored data.'
)


class OwnTaskManager(TaskManager):
    """A FastA2A task manager that shows the user's own storage and broker; the app itself enters the broker.

    Args:
        storage: The user's storage, if any.
        broker: The user's broker, if any.
        hosting: Knows whether the app runs.
    """

    def __init__(self, storage: Storage[Any] | None, broker: Broker | None, hosting: Hosting) -> None:
        self._hosting = hosting
        if storage is not None:
            self.storage = storage
        if broker is not None:
            self.broker = broker

    def __getattr__(self, name: str) -> Any:
        if name in ('storage', 'broker'):
            raise AttributeError(f'to_a2a() was given no {name}=. {INSTEAD}')
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f'{type(self).__name__}({", ".join(sorted({"storage", "broker"}.intersection(vars(self))))})'

    @property
    def is_running(self) -> bool:
        """True once the app has started."""
        try:
            return self._hosting.begun
        except RuntimeError:  # outside of an event loop
            return False

    async def __aenter__(self) -> Self:
        """Do nothing: the app enters and leaves the broker itself."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing."""
