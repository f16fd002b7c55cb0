"""A user's own FastA2A storage as a backend: order, event log and idempotency in memory, all else in the storage.

The state machine in memory decides. Each write is first tried in memory and undone, then written to the storage, then
done in memory: readers see only stored states. A lock for each task keeps both in step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, cast
from weakref import WeakValueDictionary

from fasta2a.schema import Artifact, Message, Task
from fasta2a.storage import Storage
from pydantic_ai.conversation_store import ConversationStore
from pydantic_ai.messages import ModelMessage

from ..conversion.stream import closed
from ..errors import A2AError, LeaseLost, TaskNotFoundError, UnsupportedOperationError
from ..protocol import stored
from ..store.histories import load_messages
from ..store.memory import ends, records, runs
from ..store.memory import submit as accept
from ..store.memory.backend import MemoryBackend
from ..store.memory.ports import MemoryQueue, MemoryReader
from ..store.ports import Accepted, Backend, Checkpoint, Claim, Finish, Slot, Status, Submission
from ..types import TERMINAL, Page, StoredTask, TaskEvent, TaskHeader, TaskQuery, check_cancel, check_message
from .events import StorageEvents
from .housekeeping import StorageHousekeeping
from .values import context_key, owner_of, stored_task

__all__ = ('FastA2ABackend', 'claimable')

_Storage: TypeAlias = Storage[list[ModelMessage]]


_Store: TypeAlias = Callable[[Submission], Awaitable[Accepted]]


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
        self.unclaimable: set[str] = set()
        """Tasks that no worker here may claim, because a broker has not handed them out yet."""
        self.failed_begin: dict[str, Exception] = {}
        """Exceptions of the storage at claims, by task: the run ends with the exception."""
        self.cancel_listeners: list[Callable[[str], None]] = []
        self.queue = _Queue(self)
        self.reader = _Reader(self)
        self.events = StorageEvents(memory)
        self.housekeeping = StorageHousekeeping(self.storage, memory)
        self.quotas = memory.quotas
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

    async def queued(self) -> bool:
        return await self.memory.queued()

    def own_messages(self, task_id: str) -> list[ModelMessage]:
        """Return the messages of an interrupted task in memory that are missing in its context."""
        own_messages = self.memory.store.tasks[task_id].progress.own_messages
        return [] if own_messages is None else load_messages(own_messages)

    def conversations(self, owner: str) -> ConversationStore:
        raise UnsupportedOperationError(
            'A FastA2A storage cannot be used as a conversation store: give to_a2a() a backend= instead of a storage=.'
        )

    def listen(self, on_ready: Callable[[str], None], on_cancel: Callable[[str], None]) -> Callable[[], None]:
        stop_listening = self.memory.listen(on_ready, on_cancel)
        self.cancel_listeners.append(on_cancel)

        def stop() -> None:
            self.cancel_listeners.remove(on_cancel)
            stop_listening()

        return stop

    def close(self) -> None:
        self.memory.close()


def claimable(memory: MemoryBackend, withheld: Collection[str], holder: str, *, limit: int) -> list[str]:
    """Return the tasks in memory to claim now, oldest first, without withheld tasks."""
    with memory.store.lock:
        tasks = runs.claimable(memory.store, holder, limit + len(withheld))
    return [task.id for task in tasks if task.id not in withheld][:limit]


class _Queue(MemoryQueue):
    """A queue in memory that writes to the storage first. Tasks are claimed after their submission, without slots."""

    def __init__(self, backend: FastA2ABackend) -> None:
        super().__init__(backend.memory.store)
        self._backend = backend
        self._storage = backend.storage

    # --- the client's side ------------------------------------------------------------------------------------------

    async def submit(
        self, submission: Submission, *, queue_limit: int, idempotency_window: int, slot: Slot | None = None
    ) -> Accepted:
        store = partial(super().submit, queue_limit=queue_limit, idempotency_window=idempotency_window)

        def check() -> accept.Checked:
            with self.store.lock:
                return accept.check(self.store, submission, queue_limit=queue_limit, window=idempotency_window)

        async with self._backend.lock(f'{submission.owner} {submission.message_id}'):
            if submission.new:
                return check().replayed or await self._create(submission, store)
            async with self._backend.lock(submission.task_id):
                return await self._continue(submission, check, store)

    async def _create(self, submission: Submission, store: _Store) -> Accepted:
        key = context_key(submission.owner, submission.context_id or '')
        task = await self._storage.submit_task(key, stored.load_message(submission.body))
        try:
            return await store(replace(submission, task_id=task['id']))
        except A2AError:  # a concurrent message took the queue's last place
            await self._storage.update_task(task['id'], 'rejected')
            raise

    async def _continue(self, submission: Submission, check: Callable[[], accept.Checked], store: _Store) -> Accepted:
        try:
            checked = check()
        except TaskNotFoundError:
            header = await self._unheld(submission.task_id, submission.owner)
            check_message(header, submission.context_id)
            raise UnsupportedOperationError(
                'Another process began the task, and only that process can continue the task: send a message'
                ' without taskId.'
            ) from None
        if checked.replayed is not None:
            return checked.replayed
        if self._backend.worker_writes and not checked.waited:
            raise UnsupportedOperationError(
                'The task runs, and its worker accepts no further messages: send the message without taskId'
                ' once the task has ended.'
            )
        task = self.store.tasks[submission.task_id]
        messages = [stored.load_message(stored.with_ids(submission.body, task.id, _key(task)))]
        if submission.answer is not None and submission.answer.rest is not None:
            messages.append(stored.load_message(submission.answer.rest))
        # FastA2A's state for a queued task: its workers begin tasks in no other state.
        queued = task.progress.queued or checked.queues
        await self._storage.update_task(task.id, 'submitted' if queued else task.state, new_messages=messages)
        return await store(submission)

    async def _unheld(self, task_id: str, owner: str | None) -> TaskHeader:
        """Return the header of a task that only the storage has."""
        task = await self._backend.load(task_id, owner)
        if task is None:
            raise TaskNotFoundError
        return stored_task(task, None, history_length=0, artifacts=False).header

    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        async with self._backend.lock(task_id):
            try:
                header, ends_now = accept.would_cancel(self.store, task_id, owner, force=force)
            except TaskNotFoundError:
                return await self._cancel_unheld(task_id, owner, at)
            if ends_now:
                await self._append(header, closed(self._backend.own_messages(task_id)))
                artifacts = await self._streamed(task_id, await self._backend.load(task_id, None))
                await self._storage.update_task(task_id, 'canceled', new_artifacts=artifacts)
            return await super().cancel(task_id, owner, at=at, force=force)

    async def _cancel_unheld(self, task_id: str, owner: str | None, at: int) -> TaskHeader:
        header = await self._unheld(task_id, owner)
        check_cancel(header)
        await self._storage.update_task(task_id, 'canceled')
        for listener in tuple(self._backend.cancel_listeners):  # a broker's listener may reach the process of the run
            listener(task_id)
        return replace(header, state='canceled', status_at=at)

    # --- the holder's side ------------------------------------------------------------------------------------------

    async def claim(self, holder: str, *, at: int, lease: int, limit: int, task_id: str | None = None) -> list[Claim]:
        unclaimable = self._backend.unclaimable
        wanted = [] if task_id is None or task_id in unclaimable else [task_id]
        if task_id is None:
            wanted = claimable(self._backend.memory, unclaimable, holder, limit=limit)
        return [claim for wanted_id in wanted for claim in await self._claim(wanted_id, holder, at, lease)]

    async def _claim(self, task_id: str, holder: str, at: int, lease: int) -> list[Claim]:
        async with self._backend.lock(task_id):
            if not runs.claimable(self.store, holder, 1, task_id):
                return []
            if not self._backend.worker_writes:
                try:
                    await self._storage.update_task(task_id, 'working')
                except Exception as error:  # any exception of a user's storage; the run ends with it
                    self._backend.failed_begin[task_id] = error
            return await super().claim(holder, at=at, lease=lease, limit=1, task_id=task_id)

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
            runs.check_held(self.store, claim)
            await self._storage.update_task(
                claim.header.id, status.state, new_messages=[stored.load_message(status.message)]
            )
            await super().emit(claim, events, status, checkpoint)

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        task_id = claim.header.id
        async with self._backend.lock(task_id):
            goes_on = ends.goes_on(self.store, claim, finish)
            task = await self._backend.load(task_id, None)
            if self._backend.worker_writes:
                await self._write_missing_end(task, finish)
            elif task is None or task['status']['state'] in TERMINAL:
                # Another process has ended the task, for example after a cancel.
                await super().cancel(task_id, None, at=finish.status.at, force=True)
                raise LeaseLost
            else:
                await self._write(task, claim, finish, goes_on=goes_on)
            self._backend.failed_begin.pop(task_id, None)
            ended = finish.status.state in TERMINAL  # the storage has the turn then
            return await super().finish(claim, replace(finish, messages=()) if ended else finish)

    async def _write(self, task: Task, claim: Claim, finish: Finish, *, goes_on: bool) -> None:
        header, state = claim.header, finish.status.state
        if state in ('completed', 'canceled'):
            messages = [*(claim.own_messages or ()), *finish.messages]
            await self._append(header, closed(messages) if state == 'canceled' else messages)
        if finish.artifacts is not None:
            artifacts = [stored.load_artifact(body) for _, body in finish.artifacts]
        else:
            artifacts = await self._streamed(header.id, task) if state in TERMINAL else None
        await self._storage.update_task(
            header.id,
            'working' if goes_on else state,
            new_artifacts=artifacts,
            new_messages=_new_messages(finish),
        )

    async def _write_missing_end(self, task: Task | None, finish: Finish) -> None:
        """Write the end if the worker has not, after an exception or a cancellation."""
        if task is not None and task['status']['state'] != finish.status.state:
            await self._storage.update_task(task['id'], finish.status.state, new_messages=_new_messages(finish))

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
        artifacts = [stored.load_artifact(body) for body in bodies]
        return [artifact for artifact in artifacts if artifact['artifact_id'] not in stored_ids] or None


def _key(task: TaskHeader | records.Task) -> str:
    return context_key(task.owner, task.context_id)


def _new_messages(finish: Finish) -> list[Message] | None:
    """Return the messages for the task's history, with the status message: the storage has no other place."""
    bodies = [body for _, body in finish.history]
    if finish.status.message is not None:
        bodies.append(finish.status.message)
    return [stored.load_message(body) for body in bodies] or None


class _Reader(MemoryReader):
    def __init__(self, backend: FastA2ABackend) -> None:
        super().__init__(backend.memory.store)
        self._backend = backend

    async def load(
        self, task_id: str, owner: str | None, *, history_length: int | None = None, artifacts: bool = True
    ) -> StoredTask | None:
        # Read first: the event number must not be newer than the storage's state.
        in_memory = await self._in_memory(task_id, owner, artifacts=artifacts)
        task = await self._backend.load(task_id, owner)
        if task is None:
            return None
        if in_memory is not None and task['status']['state'] in TERMINAL and in_memory.header.state not in TERMINAL:
            async with self._backend.lock(task_id):  # the end is being written, and the last event follows at once
                in_memory = await self._in_memory(task_id, owner, artifacts=artifacts)
        return stored_task(task, in_memory, history_length=history_length, artifacts=artifacts)

    async def watch(self, task_id: str, owner: str | None) -> StoredTask | None:
        await super().watch(task_id, owner)
        return await self.load(task_id, owner)

    async def _in_memory(self, task_id: str, owner: str | None, *, artifacts: bool) -> StoredTask | None:
        return await super().load(task_id, owner, history_length=0, artifacts=artifacts)

    async def list(self, query: TaskQuery) -> Page:
        raise UnsupportedOperationError('A FastA2A storage cannot list tasks: read each task by its id.')
