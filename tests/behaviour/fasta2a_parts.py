"""FastA2A parts of a user's own: storages, some of which break or wait, and a worker that is no agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Task, TaskState
from fasta2a.storage import InMemoryStorage, Storage
from fasta2a.worker import Worker
from pydantic_ai.messages import ModelMessage

from examples.sqlite_storage import SqliteStorage

from .faulty_queues import StorageError

OwnStorage = Storage[list[ModelMessage]]


@pytest.fixture(params=['memory', 'sqlite'])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> OwnStorage:
    """FastA2A's own storage, and a user's."""
    return InMemoryStorage() if request.param == 'memory' else SqliteStorage(tmp_path / 'a2a.db')


def memory_parts() -> dict[str, Any]:
    """A broker and a storage in memory, as options of a worker or of an app."""
    return {'broker': InMemoryBroker(), 'storage': InMemoryStorage[list[ModelMessage]]()}


class FailingStorage(InMemoryStorage[list[ModelMessage]]):
    """Breaks when it is to write one of these states, or to load a context of this name."""

    def __init__(self, *states: TaskState, context: str | None = None) -> None:
        super().__init__()
        self.states = {*states}
        self.context = context

    async def update_task(
        self,
        task_id: str,
        state: TaskState,
        new_artifacts: list[Artifact] | None = None,
        new_messages: list[Message] | None = None,
    ) -> Task:
        if state in self.states:
            self.states.remove(state)
            raise StorageError('nobody but the log may read this')
        return await super().update_task(task_id, state, new_artifacts, new_messages)

    async def load_context(self, context_id: str) -> list[ModelMessage] | None:
        if context_id == self.context:
            raise StorageError('nobody but the log may read this')
        return await super().load_context(context_id)


class GatedStorage(InMemoryStorage[list[ModelMessage]]):
    """Lets the writes of one state wait until they are let go."""

    def __init__(self, state: TaskState) -> None:
        super().__init__()
        self.state: TaskState = state
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()

    async def update_task(self, task_id: str, state: TaskState, *args: Any, **kwargs: Any) -> Task:
        if state == self.state:
            self.reached.set()
            await self.gate.wait()
        return await super().update_task(task_id, state, *args, **kwargs)


class PlainWorker(Worker[Any]):
    """A worker that would run tasks by itself."""

    async def run_task(self, params: Any) -> None: ...

    async def cancel_task(self, params: Any) -> None: ...

    def build_message_history(self, history: Any) -> list[Any]:
        return []

    def build_artifacts(self, result: Any) -> list[Any]:
        return []


def plain_worker() -> Worker[Any]:
    """One with a storage and a broker of its own."""
    return PlainWorker(**memory_parts())
