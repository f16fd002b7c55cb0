"""A user's own FastA2A parts, such as tests bring them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fasta2a.schema import Artifact, Message, Task, TaskState
from fasta2a.storage import InMemoryStorage, Storage
from pydantic_ai.messages import ModelMessage

from examples.sqlite_storage import SqliteStorage

OwnStorage = Storage[list[ModelMessage]]


def make_storage(name: str, directory: Path) -> OwnStorage:
    return InMemoryStorage() if name == 'memory' else SqliteStorage(directory / 'a2a.db')


@pytest.fixture(params=['memory', 'sqlite'])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> OwnStorage:
    """FastA2A's own storage, and a user's."""
    return make_storage(request.param, tmp_path)


class StorageError(Exception):
    """What a user's storage raises that is broken."""


class Breaking(InMemoryStorage[list[ModelMessage]]):
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


class Slow(InMemoryStorage[list[ModelMessage]]):
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
