"""The port for data of runs at an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping


class PayloadStore(ABC):
    """Keeps data of the runs at an engine, such as of Temporal workflows, for some time after the end of the task."""

    @abstractmethod
    async def put(self, task_id: str, payloads: Mapping[str, bytes]) -> None:
        """Store data of a task by ids. An id that is stored already keeps its data. An erased task gets none."""

    @abstractmethod
    async def get(self, task_id: str, payload_id: str) -> bytes | None:
        """Return data of a task; None if the data was deleted."""
