"""A FastA2A worker of a user's own that is no agent."""

from __future__ import annotations

from typing import Any

from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage
from fasta2a.worker import Worker

__all__ = ('foreign',)


class Foreign(Worker[Any]):
    """A worker that would run tasks by itself."""

    async def run_task(self, params: Any) -> None: ...

    async def cancel_task(self, params: Any) -> None: ...

    def build_message_history(self, history: Any) -> list[Any]:
        return []

    def build_artifacts(self, result: Any) -> list[Any]:
        return []


def foreign() -> Worker[Any]:
    """One with a storage and a broker of its own."""
    return Foreign(broker=InMemoryBroker(), storage=InMemoryStorage[Any]())
