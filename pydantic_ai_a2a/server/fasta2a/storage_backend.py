"""A user's own FastA2A storage as a backend: order, event log and idempotency in memory, all else in the storage.

The state machine in memory decides. Each write is first tried in memory and undone, then written to the storage, then
done in memory: readers see only stored states. A lock for each task keeps both in step.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, TypeAlias, cast
from weakref import WeakValueDictionary

from fasta2a.schema import Artifact, Message, Task
from fasta2a.storage import Storage
from pydantic_ai.messages import ModelMessage

from ...errors import A2AError, LeaseLost, TaskNotFoundError, UnsupportedOperationError
from ...settings.retention import Retention
from ...task_states import INTERRUPTED, TERMINAL, check_cancel, check_message
from ...types.stored_events import TaskEvent
from ...types.stored_tasks import StoredTask, TaskHeader
from ...types.task_queries import Page, TaskQuery
from ...wire.protocol import stored, stored_values
from ..store.conversation_turns import closed_turn
from ..store.ports import (
    Accepted,
    Backend,
    Checkpoint,
    Claim,
    EventLog,
    Finish,
    Housekeeping,
    OnExpired,
    Slot,
    Status,
    Submission,
    Swept,
    WrappedQueue,
)
from ..store.sql.event_port import SqlEvents
from ..store.sql.reader_port import SqlReader
from ..store.sqlite.memory import MemoryBackend
from .storage_tasks import context_key, owner_of, storage_header, stored_task

logger = logging.getLogger('pydantic_ai_a2a')

_Storage: TypeAlias = Storage[list[ModelMessage]]

_Submit: TypeAlias = Callable[[Submission], Awaitable[Accepted]]


def _refused(work: str) -> Any:
    """Make a method of a port that refuses an operation. The port declares the signature."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise UnsupportedOperationError(
            f'A FastA2A storage cannot {work}: give to_a2a() a backend= instead of a storage=.'
        )

    return refuse


class FastA2ABackend(Backend):
    """A user's FastA2A storage. Parts that the storage lacks are in memory.

    The storage is written through and read for tasks. Its task ids are the tasks' ids. Unsupported operations are
    refused with `UnsupportedOperationError`: lists of tasks, conversations as a store, erasing, and continuing or
    subscribing to a task of another process, or of this process before a restart.

    Serves one event loop.

    Args:
        storage: The user's storage. Its contexts are lists of Pydantic AI's messages.
        memory: An empty backend in memory.
        worker_writes: True if a user's worker writes states, artifacts and contexts to the storage itself.
    """

    durable = False

    def __init__(self, storage: Storage[Any], memory: MemoryBackend, *, worker_writes: bool = False) -> None:
        self.storage = cast('_Storage', storage)
        self.memory = memory
        self.worker_writes = worker_writes
        self.withheld: set[str] = set()
        """Tasks that a broker has not handed out here yet, so that no worker here may claim them."""
        self.failed_begin: dict[str, Exception] = {}
        """Exceptions of the storage at claims, by task: the run ends with the exception."""
        self.own_messages: dict[str, Sequence[ModelMessage]] = {}
        """The messages of interrupted tasks that are missing in their contexts."""
        self.queue = _StorageQueue(self)
        self.reader = _StorageReader(self)
        self.events = _StorageEvents(memory)
        self.housekeeping = StorageHousekeeping(self)
        self.quotas = memory.quotas
        self.hook_calls = memory.hook_calls
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lock(self, key: str) -> asyncio.Lock:
        """Return the lock of a key, shared by all holders."""
        return self._locks.setdefault(key, asyncio.Lock())

    async def load(self, task_id: str, owner: str | None) -> Task | None:
        """Return a task of the storage; None for another owner's task."""
        task = await self.storage.load_task(task_id)  # without a length: FastA2A's own storage would cut its own copy
        return task if task is not None and owner in (None, owner_of(task['context_id'])[0]) else None

    async def history(self, claim: Claim) -> Sequence[ModelMessage]:
        if (error := self.failed_begin.pop(claim.header.id, None)) is not None:
            raise error
        context = await self.storage.load_context(_key(claim.header))
        return [*(context or ()), *(claim.own_messages or ())]

    def forget(self, task_id: str) -> None:
        """Drop what is kept of a task's unfinished run."""
        self.failed_begin.pop(task_id, None)
        self.own_messages.pop(task_id, None)

    async def queued(self) -> bool:
        return await self.memory.queued()

    conversations = _refused('be used as a conversation store')

    def listen(self, on_ready: Callable[[str], None], on_cancel: Callable[[str], None]) -> Callable[[], None]:
        return self.memory.listen(on_ready, on_cancel)

    def close(self) -> None:
        self.memory.close()


async def header_in_memory(memory: MemoryBackend, task_id: str) -> TaskHeader | None:
    """Return the header of a task in memory; None if the memory does not have the task."""
    task = await memory.reader.load(task_id, None, history_length=0, artifacts=False)
    return None if task is None else task.header


class _StorageQueue(WrappedQueue):
    """A queue in memory that writes to the storage first. Tasks are claimed after their submission, without slots."""

    def __init__(self, backend: FastA2ABackend) -> None:
        super().__init__(backend.memory.queue)
        self._rehearsal = backend.memory.queue.rehearsal()
        self._backend = backend
        self._storage = backend.storage

    # --- the client's side ------------------------------------------------------------------------------------------

    async def submit(self, submission: Submission, *, slot: Slot | None = None, **limits: Any) -> Accepted:
        check, store = partial(self._rehearsal.submit, **limits), partial(super().submit, **limits)
        async with self._backend.lock(f'{submission.owner} {submission.message_id}'):
            if submission.new:
                checked = await check(submission)
                return checked if checked.replayed else await self._create(submission, store)
            async with self._backend.lock(submission.task_id):
                return await self._continue(submission, check, store)

    async def _create(self, submission: Submission, store: _Submit) -> Accepted:
        key = context_key(submission.owner, submission.context_id or '')
        task = await self._storage.submit_task(key, stored_values.load_message(submission.body))
        try:
            return await store(replace(submission, task_id=task['id']))
        except A2AError:  # a concurrent message took the queue's last place
            await self._storage.update_task(task['id'], 'rejected')
            raise

    async def _continue(self, submission: Submission, check: _Submit, store: _Submit) -> Accepted:
        try:
            checked = await check(submission)
        except TaskNotFoundError:
            header = await self._unheld(submission.task_id, submission.owner)
            check_message(header, submission.context_id)
            raise UnsupportedOperationError(
                'Another process began the task, and only that process can continue the task: send a message'
                ' without taskId.'
            ) from None
        if checked.replayed:
            return checked
        header = await header_in_memory(self._backend.memory, submission.task_id)
        assert header is not None, 'its message was just checked'
        if self._backend.worker_writes and header.state not in INTERRUPTED:
            raise UnsupportedOperationError(
                'The task runs, and its worker accepts no further messages: send the message without taskId'
                ' once the task has ended.'
            )
        messages = [stored_values.load_message(stored.with_ids(submission.body, header.id, _key(header)))]
        if submission.answer is not None and submission.answer.rest is not None:
            messages.append(stored_values.load_message(submission.answer.rest))
        # FastA2A's state for a queued task: its workers begin tasks in no other state.
        state = 'submitted' if checked.header.queued else header.state
        await self._storage.update_task(header.id, state, new_messages=messages)
        return await store(submission)

    async def _unheld(self, task_id: str, owner: str | None) -> TaskHeader:
        """Return the header of a task that only the storage has."""
        task = await self._backend.load(task_id, owner)
        if task is None:
            raise TaskNotFoundError
        return storage_header(task, None)

    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        async with self._backend.lock(task_id):
            try:
                header = await self._rehearsal.cancel(task_id, owner, at=at, force=force)
            except TaskNotFoundError:
                return await self._cancel_unheld(task_id, owner, at)
            if header.state in TERMINAL:
                await self._append(header, closed_turn(self._backend.own_messages.get(task_id, ())))
                self._backend.forget(task_id)
                artifacts = await self._streamed(task_id, await self._backend.load(task_id, None))
                await self._storage.update_task(task_id, 'canceled', new_artifacts=artifacts)
            return await super().cancel(task_id, owner, at=at, force=force)

    async def _cancel_unheld(self, task_id: str, owner: str | None, at: int) -> TaskHeader:
        header = await self._unheld(task_id, owner)
        check_cancel(header)
        await self._storage.update_task(task_id, 'canceled')
        for worker in tuple(self._backend.memory.workers):  # a broker's callback may reach the process of the run
            worker.on_cancel(task_id)
        return replace(header, state='canceled', status_at=at)

    # --- the holder's side ------------------------------------------------------------------------------------------

    async def claim(self, slot: Slot, *, at: int, **which: Any) -> list[Claim]:
        wanted = await self._rehearsal.claim(slot, at=at, **which)
        return [claim for want in wanted for claim in await self._claim(want.header.id, slot, at)]

    async def _claim(self, task_id: str, slot: Slot, at: int) -> list[Claim]:
        async with self._backend.lock(task_id):
            if not await self._rehearsal.claim(slot, at=at, limit=1, task_id=task_id):
                return []
            if not self._backend.worker_writes:
                try:
                    await self._storage.update_task(task_id, 'working')
                except Exception as error:  # any exception of a user's storage; the run ends with it
                    self._backend.failed_begin[task_id] = error
            return await super().claim(slot, at=at, limit=1, task_id=task_id)

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        if status is None or status.message is None or self._backend.worker_writes:
            await super().emit(claim, events, status, checkpoint)
            return
        async with self._backend.lock(claim.header.id):
            await self._rehearsal.emit(claim, events, status, checkpoint)
            await self._storage.update_task(
                claim.header.id, status.state, new_messages=[stored_values.load_message(status.message)]
            )
            await super().emit(claim, events, status, checkpoint)

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        task_id = claim.header.id
        async with self._backend.lock(task_id):
            ended = finish.status.state in TERMINAL  # the storage has the turn then
            kept = replace(finish, messages=(), rewritten=None) if ended else finish
            goes_on = await self._rehearsal.finish(claim, kept) is not None
            task = await self._backend.load(task_id, None)
            if self._backend.worker_writes:
                # After an exception or a cancellation, the worker has not written the end.
                if task is not None and task['status']['state'] != finish.status.state:
                    await self._storage.update_task(task_id, finish.status.state, new_messages=_new_messages(finish))
            elif task is None or task['status']['state'] in TERMINAL:
                # Another process has ended the task, for example after a cancel.
                await super().cancel(task_id, None, at=finish.status.at, force=True)
                self._backend.forget(task_id)
                raise LeaseLost
            else:
                await self._write(task, claim, finish, goes_on=goes_on)
            self._backend.forget(task_id)
            if finish.status.state in INTERRUPTED:
                self._backend.own_messages[task_id] = [*(claim.own_messages or ()), *finish.messages]
            return await super().finish(claim, kept)

    async def _write(self, task: Task, claim: Claim, finish: Finish, *, goes_on: bool) -> None:
        header, state = claim.header, finish.status.state
        if finish.rewritten is not None and claim.own_messages is None:
            await self._storage.update_context(_key(header), [*finish.rewritten])
        elif state in ('completed', 'canceled'):
            messages = [*(claim.own_messages or ()), *finish.messages]
            await self._append(header, closed_turn(messages) if state == 'canceled' else messages)
        if finish.artifacts is not None:
            artifacts = [stored_values.load_artifact(body) for _, body in finish.artifacts]
        else:
            artifacts = await self._streamed(header.id, task) if state in TERMINAL else None
        await self._storage.update_task(
            header.id,
            'working' if goes_on else state,
            new_artifacts=artifacts,
            new_messages=_new_messages(finish),
        )

    # --- what goes into the storage ---------------------------------------------------------------------------------

    async def _append(self, header: TaskHeader, messages: Sequence[ModelMessage]) -> None:
        """Append a turn to the context: a context is one value, replaced and never changed."""
        if messages:
            key = _key(header)
            await self._storage.update_context(key, [*(await self._storage.load_context(key) or ()), *messages])

    async def _streamed(self, task_id: str, task: Task | None) -> list[Artifact] | None:
        """Return the streamed artifacts of a turn without a result, except for artifacts in the storage."""
        streamed = await self._backend.memory.reader.load(task_id, None, history_length=0)
        bodies = () if streamed is None else streamed.artifacts or ()
        stored_ids = {artifact['artifact_id'] for artifact in (task or {}).get('artifacts', ())}
        artifacts = [stored_values.load_artifact(body) for body in bodies]
        return [artifact for artifact in artifacts if artifact['artifact_id'] not in stored_ids] or None


def _key(task: TaskHeader) -> str:
    return context_key(task.owner, task.context_id)


def _new_messages(finish: Finish) -> list[Message] | None:
    """Return the messages for the task's history, with the status message: the storage has no other place."""
    bodies = [body for _, body in finish.history]
    if finish.status.message is not None:
        bodies.append(finish.status.message)
    return [stored_values.load_message(body) for body in bodies] or None


class _StorageEvents(SqlEvents):
    """The event logs in memory, for tasks whose messages this process has accepted."""

    expect = EventLog.expect  # the storage makes the ids of new tasks


class _StorageReader(SqlReader):
    """Reads the tasks of the storage, with the event numbers and partial results in memory."""

    def __init__(self, backend: FastA2ABackend) -> None:
        super().__init__(backend.memory)
        self._backend = backend
        self._memory = backend.memory.reader

    async def load(
        self, task_id: str, owner: str | None, *, history_length: int | None = None, artifacts: bool = True
    ) -> StoredTask | None:
        read = partial(self._memory.load, task_id, owner, history_length=0, artifacts=artifacts)
        return await self._joined(task_id, owner, read, history_length=history_length, artifacts=artifacts)

    async def _joined(
        self, task_id: str, owner: str | None, read: Callable[[], Awaitable[StoredTask | None]], **parts: Any
    ) -> StoredTask | None:
        """Return a task of the storage as `stored_task`, with what `read` returns of this process's memory."""
        in_memory = await read()  # first: the event number must not be newer than the storage's state
        task = await self._backend.load(task_id, owner)
        if task is None:
            return None
        if in_memory is not None and task['status']['state'] in TERMINAL and in_memory.header.state not in TERMINAL:
            async with self._backend.lock(task_id):  # the end is being written, and the last event follows at once
                in_memory = await read()
        return stored_task(task, in_memory, **parts)

    async def watch(self, task_id: str, owner: str | None, *, live: bool = True) -> StoredTask | None:
        read = partial(self._memory.watch, task_id, owner, live=live)
        in_memory = await read()
        task = await self._joined(task_id, owner, read)
        if in_memory is None and task is not None and task.header.state not in TERMINAL:
            raise UnsupportedOperationError(
                'Another process began the task and has the events of the task: use GetTask.'
            )
        return task

    async def list(self, query: TaskQuery) -> Page:
        raise UnsupportedOperationError('A FastA2A storage cannot list tasks: read each task by its id.')


class StorageHousekeeping(Housekeeping):
    """Bounds the memory. The storage keeps its own bounds."""

    def __init__(self, backend: FastA2ABackend) -> None:
        self._backend = backend
        self._unwritten: deque[tuple[TaskHeader, str, str]] = deque()
        """Tasks that have expired in memory, whose end the storage does not have yet, with their failures."""

    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> Swept:
        def note(header: TaskHeader, failure: str, failure_id: str) -> None:
            self._unwritten.append((header, failure, failure_id))

        swept = await self._backend.memory.housekeeping.sweep(retention, at=at, on_expired=note)
        for _ in range(len(self._unwritten)):
            expired = self._unwritten[0]
            try:
                await self._fail(expired[0].id)
            except Exception:  # a user's storage raises any exception
                logger.exception('The storage failed to end task %s; the next sweep tries again.', expired[0].id)
                self._unwritten.append(expired)
            else:
                if on_expired is not None:
                    on_expired(*expired)
            self._unwritten.popleft()
        return swept

    async def _fail(self, task_id: str) -> None:
        self._backend.forget(task_id)
        if await self._backend.load(task_id, None) is not None:
            header = await header_in_memory(self._backend.memory, task_id)
            body = None if header is None else header.status_message
            messages = None if body is None else [stored_values.load_message(body)]
            await self._backend.storage.update_task(task_id, 'failed', new_messages=messages)

    erase_task = _refused('erase tasks')
    erase = _refused('erase contexts')
    dead_letters = _refused('list dead letters')
    retry = _refused('retry tasks')
    export = _refused('export tasks')

    async def set_erasing(self, owner: str, context_id: str | None, *, until: int | None) -> None:
        """Do nothing: `erase` refuses."""

    async def check_erasing(self, owner: str, context_id: str, *, at: int) -> None:
        """Do nothing: the storage erases nothing."""
