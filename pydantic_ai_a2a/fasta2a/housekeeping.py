"""Housekeeping of a user's FastA2A storage: the memory is swept, and unsupported operations are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from fasta2a.storage import Storage

from ..errors import UnsupportedOperationError
from ..protocol import stored
from ..settings import Retention
from ..store.memory import sweep
from ..store.memory.backend import MemoryBackend
from ..store.ports import DeadLetter, Erased, ExportedConversation, ExportedTask, Housekeeping, OnExpired
from ..store.rules import tell_expired
from ..types import TaskHeader

__all__ = ('StorageHousekeeping',)

_INSTEAD = ': give to_a2a() a backend= instead of a storage=.'


class StorageHousekeeping(Housekeeping):
    """Bounds the memory. The storage keeps its own bounds."""

    def __init__(self, storage: Storage[Any], memory: MemoryBackend) -> None:
        self._storage = storage
        self._memory = memory

    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> int:
        with self._memory.store.lock:
            swept, ended = sweep.sweep(self._memory.store, retention, at)
        for header, _ in ended:
            task = await self._memory.reader.load(header.id, None, history_length=0, artifacts=False)
            body = None if task is None else task.header.status_message
            messages = None if body is None else [stored.load_message(body)]
            await self._storage.update_task(header.id, 'failed', new_messages=messages)
        tell_expired(ended, on_expired)
        return swept

    async def erase_task(self, task_id: str, owner: str | None, *, at: int) -> bool:
        raise UnsupportedOperationError(f'A FastA2A storage cannot erase tasks{_INSTEAD}')

    async def erase(self, owner: str, context_id: str | None = None, *, at: int) -> Erased:
        raise UnsupportedOperationError(f'A FastA2A storage cannot erase contexts{_INSTEAD}')

    async def dead_letters(
        self, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> Sequence[DeadLetter]:
        raise UnsupportedOperationError(f'A FastA2A storage cannot list dead letters{_INSTEAD}')

    async def retry(self, task_id: str, *, new_id: str, at: int, again: bool = False) -> TaskHeader:
        raise UnsupportedOperationError(f'A FastA2A storage cannot retry tasks{_INSTEAD}')

    def export(self, owner: str, context_id: str | None = None) -> AsyncIterator[ExportedTask | ExportedConversation]:
        raise UnsupportedOperationError(f'A FastA2A storage cannot export tasks{_INSTEAD}')
