"""Calls of the hook `on_waiting` that have not returned yet: the table `hook_call`."""

from __future__ import annotations

from collections.abc import Sequence

from ....types.stored_tasks import TaskHeader
from ..ports import HookCall, HookCalls, Pause
from . import waiting_tasks
from .database import Port
from .transaction import Transaction, Write

_ADD = 'INSERT INTO hook_call (agent, task_id, run, due_at) VALUES (?, ?, ?, a2a_clock() + CAST(? AS BIGINT))'
_CALL = 'agent = ? AND task_id = ? AND run = ?'
_RENEW = f'UPDATE hook_call SET due_at = a2a_clock() + CAST(? AS BIGINT) WHERE {_CALL}'
_DUE = 'SELECT task_id, run FROM hook_call WHERE agent = ? AND due_at <= (SELECT a2a_clock()) ORDER BY due_at LIMIT ?'


class SqlHookCalls(Port, HookCalls):
    """The calls of a database."""

    async def take(self, *, lease: int, limit: int) -> Sequence[HookCall]:
        if not await self.database.read(_due, self.agent):  # a worker without lost calls writes nothing
            return ()
        return await self.database.write(_take, self.agent, lease=lease, limit=limit)

    async def pause(self, call: HookCall) -> tuple[TaskHeader, Pause] | None:
        return await self.database.read(waiting_tasks.pause_of_run, self.agent, *call)

    async def renew(self, calls: Sequence[HookCall], *, lease: int) -> None:
        await self.database.write(_renew, self.agent, calls, lease=lease)

    async def done(self, call: HookCall) -> None:
        await self.database.write(_done, self.agent, call)


def add(agent: str, call: HookCall, lease: int) -> Write:
    """Store a call in the transaction of its pause."""
    return _ADD, [(agent, *call, lease)]


def _due(agent: str) -> Transaction[bool]:
    return bool((yield _DUE, (agent, 1)))


def _take(agent: str, *, lease: int, limit: int) -> Transaction[list[HookCall]]:
    rows = yield f'{_DUE} /* FOR NO KEY UPDATE SKIP LOCKED */', (agent, limit)
    calls = [HookCall(*row) for row in rows]
    yield from _renew(agent, calls, lease=lease)
    return calls


def _renew(agent: str, calls: Sequence[HookCall], *, lease: int) -> Transaction[None]:
    yield [(_RENEW, [(lease, agent, *call) for call in sorted(calls)])]


def _done(agent: str, call: HookCall) -> Transaction[None]:
    yield [(f'DELETE FROM hook_call WHERE {_CALL}', [(agent, *call)])]
