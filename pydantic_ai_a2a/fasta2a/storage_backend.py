"""A user's own FastA2A storage as a backend: order, event log and idempotency in memory, all else in the storage.

The state machine in memory decides. Each write is first tried in memory and undone, then written to the storage, then
done in memory: readers see only stored states. A lock for each task keeps both in step.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self, TypeAlias, cast
from weakref import WeakValueDictionary

from fasta2a.broker import Broker, TaskOperation
from fasta2a.schema import Artifact, Message, Task, TaskSendParams
from fasta2a.storage import Storage
from pydantic_ai.messages import ModelMessage
from pydantic_core import to_json

from ..clock import STOP_TIME
from ..conversion.stream import closed
from ..errors import A2AError, LeaseLost, TaskNotFoundError, UnsupportedOperationError
from ..protocol import stored
from ..settings import Retention
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
    TaskQueue,
    WrappedQueue,
    inner_method,
)
from ..store.rules import status_event
from ..store.sql.ports import SqlEvents, SqlReader
from ..store.sqlite.memory import MemoryBackend
from ..types import (
    ANONYMOUS,
    INTERRUPTED,
    STOPPED,
    TERMINAL,
    Page,
    StoredTask,
    TaskEvent,
    TaskHeader,
    TaskQuery,
    check_cancel,
    check_message,
)

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
        self.queue = _Queue(self)
        self.reader = _Reader(self)
        self.events = _Events(memory)
        self.housekeeping = StorageHousekeeping(self)
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


async def _header_in(memory: MemoryBackend, task_id: str) -> TaskHeader | None:
    """Return the header of a task in memory; None if the memory does not have the task."""
    task = await memory.reader.load(task_id, None, history_length=0, artifacts=False)
    return None if task is None else task.header


class _Queue(WrappedQueue):
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
        task = await self._storage.submit_task(key, stored.load_message(submission.body))
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
        header = await _header_in(self._backend.memory, submission.task_id)
        assert header is not None, 'its message was just checked'
        if self._backend.worker_writes and header.state not in INTERRUPTED:
            raise UnsupportedOperationError(
                'The task runs, and its worker accepts no further messages: send the message without taskId'
                ' once the task has ended.'
            )
        messages = [stored.load_message(stored.with_ids(submission.body, header.id, _key(header)))]
        if submission.answer is not None and submission.answer.rest is not None:
            messages.append(stored.load_message(submission.answer.rest))
        # FastA2A's state for a queued task: its workers begin tasks in no other state.
        state = 'submitted' if checked.header.queued else header.state
        await self._storage.update_task(header.id, state, new_messages=messages)
        return await store(submission)

    async def _unheld(self, task_id: str, owner: str | None) -> TaskHeader:
        """Return the header of a task that only the storage has."""
        task = await self._backend.load(task_id, owner)
        if task is None:
            raise TaskNotFoundError
        return _header(task, None)

    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        async with self._backend.lock(task_id):
            try:
                header = await self._rehearsal.cancel(task_id, owner, at=at, force=force)
            except TaskNotFoundError:
                return await self._cancel_unheld(task_id, owner, at)
            if header.state in TERMINAL:
                await self._append(header, closed(self._backend.own_messages.get(task_id, ())))
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
                claim.header.id, status.state, new_messages=[stored.load_message(status.message)]
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
                await self._write_missing_end(task, finish)
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


def _key(task: TaskHeader) -> str:
    return context_key(task.owner, task.context_id)


def _new_messages(finish: Finish) -> list[Message] | None:
    """Return the messages for the task's history, with the status message: the storage has no other place."""
    bodies = [body for _, body in finish.history]
    if finish.status.message is not None:
        bodies.append(finish.status.message)
    return [stored.load_message(body) for body in bodies] or None


class _Events(SqlEvents):
    """The event logs in memory, for tasks whose messages this process has accepted."""

    expect = EventLog.expect  # the storage makes the ids of new tasks


class _Reader(SqlReader):
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


# --- tasks shared by processes through a user's FastA2A storage and broker --------------------------------------------
# Taken over, or watched in another process.

_ANOTHER = 'another process'
_FOR_EVER = 10**12
"""Milliseconds, beyond the end of every process."""


async def adopt(backend: FastA2ABackend, task_id: str, *, at: int) -> None:
    """Take over a task of another process, to run the task here.

    Raises:
        TaskNotFoundError: The storage has no such task.
        UnsupportedOperationError: The task has begun.
    """
    task = await backend.load(task_id, None)
    if task is None:
        raise TaskNotFoundError
    read = stored_task(task, None, history_length=1, artifacts=False)
    if read.header.state != 'submitted' or not read.history:
        raise UnsupportedOperationError(
            f'The task is {read.header.state}, and only a submitted task can be started: the delivery is ignored.'
        )
    submission = Submission(
        owner=read.header.owner,
        anonymous=True,
        message_id='',  # too short for replay: the accepting process keeps the id
        digest=b'',
        body=read.history[0],
        task_id=task_id,
        new=True,
        context_id=read.header.context_id,
        at=at,
    )
    await backend.memory.queue.submit(submission, queue_limit=sys.maxsize, idempotency_window=0)


class Followed:
    """One task that may run in another process.

    Args:
        backend: Publishes the events of the task.
        task_id: Id of the task.
    """

    def __init__(self, backend: FastA2ABackend, task_id: str) -> None:
        self._backend = backend
        self._task_id = task_id
        self._claim: Claim | None = None

    async def look(self, *, at: int) -> bool:
        """Publish the start and the end of the task. Return True after the end."""
        task = await self._backend.load(self._task_id, None)
        if task is None:
            return True
        read = stored_task(task, None, history_length=0, artifacts=True)
        if self._claim is None and read.header.state != 'submitted':
            self._claim = await self._take(at)
        if read.header.state not in STOPPED:
            return False
        if self._claim is not None:
            await self._backend.memory.queue.finish(self._claim, _end_of(self._claim, read, at))
        return True

    async def _take(self, at: int) -> Claim | None:
        """Claim the task for the other process, unless the task runs here after all."""
        task_id, queue = self._task_id, self._backend.memory.queue
        async with self._backend.lock(task_id):
            if task_id not in self._backend.withheld:
                return None
            claims = await queue.claim(Slot(_ANOTHER, _FOR_EVER), at=at, limit=1, task_id=task_id)
        return claims[0] if claims else None


def _end_of(claim: Claim, read: StoredTask, at: int) -> Finish:
    """Return the end of a task from another process."""
    header, bodies = claim.header, read.artifacts or ()
    status = Status(read.header.state, at, read.header.status_message)
    payloads = (stored.artifact_update(header.id, header.context_id, body) for body in bodies)
    events = [TaskEvent(n, None, payload) for n, payload in enumerate(payloads, header.last_event + 1)]
    return Finish(
        status=status,
        events=events,
        final=status_event(header, status, header.last_event + len(events) + 1),
        artifacts=[(stored.load_artifact(body)['artifact_id'], body) for body in bodies],
    )


# --- conversion of a user's FastA2A storage ---------------------------------------------------------------------------
# The keys of its contexts, and its tasks as stored tasks.
#
# FastA2A's storage has no owners. Therefore every owner except the anonymous one has its own keys for contexts, and the
# key of its context names the owner of a task. Neither this package nor a `fasta2a.Worker` that reads the storage finds
# values of one owner under the key of another.

_SCOPED = 'pydantic_ai_a2a:'


def context_key(owner: str, context_id: str) -> str:
    """Return the storage's key of an owner's context: the plain contextId for the anonymous owner."""
    if owner == ANONYMOUS.owner and not context_id.startswith(_SCOPED):
        return context_id
    return f'{_SCOPED}{owner}:{context_id}'


def owner_of(key: str) -> tuple[str, str]:
    """Return the owner and the contextId of a key. Colons in an owner are quoted."""
    if not key.startswith(_SCOPED):
        return ANONYMOUS.owner, key
    owner, _, context_id = key.removeprefix(_SCOPED).partition(':')
    return owner, context_id


def stored_task(
    task: Task, in_memory: StoredTask | None, *, history_length: int | None = None, artifacts: bool = True
) -> StoredTask:
    """Return a task of the storage, with the event number and partial results from this process's memory.

    Args:
        task: The task from the storage, not changed.
        in_memory: The task in memory, with its artifacts so far.
        history_length: Number of newest messages; None for all.
        artifacts: True to include the artifacts.
    """
    header = _header(task, None if in_memory is None else in_memory.header)
    history = _messages(task.get('history', ()), header)
    if history_length is not None:
        history = history[-history_length:] if history_length else []
    bodies = None
    if artifacts:
        bodies = _artifacts(task.get('artifacts', ()), () if in_memory is None else in_memory.artifacts or (), header)
    return StoredTask(header, history if history_length != 0 else None, bodies)


def _header(task: Task, in_memory: TaskHeader | None) -> TaskHeader:
    owner, context_id = owner_of(task['context_id'])
    status, metadata = task['status'], task.get('metadata')
    message = status.get('message')
    read = TaskHeader(
        id=task['id'],
        context_id=context_id,
        owner=owner,
        state=status['state'],
        status_at=_ms(status.get('timestamp')),
        status_message=None if message is None else _message(message, task['id'], context_id),
        metadata=to_json(metadata) if metadata else None,
        last_event=0,
    )
    if in_memory is None:
        return read
    read = replace(
        read,
        state=in_memory.state if read.state == 'submitted' else read.state,  # the storage's state for every queued task
        metadata=read.metadata or in_memory.metadata,
        last_event=in_memory.last_event,
        dialect=in_memory.dialect,
        queued=in_memory.queued,
    )
    same = in_memory.state == read.state
    return replace(read, status_at=in_memory.status_at, status_message=in_memory.status_message) if same else read


def _ms(timestamp: str | None) -> int:
    """Return a time in milliseconds. A time without a zone is local, as in FastA2A's own storage."""
    return 0 if timestamp is None else int(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _message(message: Message, task_id: str, context_id: str) -> bytes:
    return stored.dump_message({**message, 'task_id': task_id, 'context_id': context_id})


def _messages(history: Iterable[Message], header: TaskHeader) -> list[bytes]:
    """Return the history without the status message, which the storage has no other place for."""
    status_id = None
    if header.status_message is not None:
        status_id = stored.load_message(header.status_message)['message_id']
    messages = (message for message in history if message['message_id'] != status_id)
    return [_message(message, header.id, header.context_id) for message in messages]


def _artifacts(artifacts: Iterable[Artifact], in_memory: Sequence[bytes], header: TaskHeader) -> list[bytes]:
    """Return the newest version of each artifact, since a storage only appends; of a live task, the streamed parts."""
    newest = {artifact['artifact_id']: stored.dump_artifact(artifact) for artifact in artifacts}
    if header.state == 'working':
        newest |= {stored.load_artifact(body)['artifact_id']: body for body in in_memory}
    return list(newest.values())


# --- housekeeping of a user's FastA2A storage -------------------------------------------------------------------------
# The memory is swept, and unsupported operations are refused.


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
            header = await _header_in(self._backend.memory, task_id)
            body = None if header is None else header.status_message
            messages = None if body is None else [stored.load_message(body)]
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


# --- a user's own FastA2A broker around a backend ---------------------------------------------------------------------
# The broker carries the operations from submit and cancel to the run.
#
# A broker may be shared by several processes, and hand an operation to any of them. A process without the task runs the
# task from the storage. The process with the task then asks the storage until the task has stopped.

PAUSE = 1.0
"""Seconds before a failed broker is asked again, and between two looks at a task of another process."""


class BrokeredBackend(Backend):
    """A backend whose tasks run after a broker has handed them out. Enter the backend while a worker listens.

    Serves one event loop at a time.

    Args:
        inner: Stores the tasks.
        broker: The user's broker.
    """

    def __init__(self, inner: MemoryBackend | FastA2ABackend, broker: Broker) -> None:
        self.inner = inner
        self.reader, self.events, self.housekeeping = inner.reader, inner.events, inner.housekeeping
        self.quotas = inner.quotas
        self.durable = inner.durable
        self._broker = broker
        self._shared = inner if isinstance(inner, FastA2ABackend) else None
        """The backend whose storage other processes may share."""
        self._memory = inner.memory if isinstance(inner, FastA2ABackend) else inner
        self._withheld = set[str]() if self._shared is None else self._shared.withheld
        self.queue = _WithholdingQueue(inner.queue, self._withheld)
        self._contexts: dict[str, Context] = {}
        """Contexts of the submissions, by task."""
        self._adopted: set[str] = set()
        """Tasks of other processes to be run here."""
        self._on_ready: Callable[[str], None] = _ignore
        self._on_cancel: Callable[[str], None] = _ignore
        self._active: set[asyncio.Task[None]] = set()

    take_room = inner_method(Backend.take_room)
    conversations = inner_method(Backend.conversations)
    history = inner_method(Backend.history)
    queued = inner_method(Backend.queued)
    paused = inner_method(Backend.paused)
    close = inner_method(Backend.close)

    # --- while a worker listens -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._listening = asyncio.Event()
        await self._broker.__aenter__()
        self._spawn(self._receive())
        for task_id in self._contexts:  # operations from before the last exit may be lost
            self._spawn(self._send(task_id))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        active = [*self._active]
        for task in active:
            task.cancel()
        await asyncio.wait(active, timeout=STOP_TIME)
        await self._broker.__aexit__(kind, error, traceback)

    def listen(self, on_ready: Callable[[str], None], on_cancel: Callable[[str], None]) -> Callable[[], None]:
        self._on_ready, self._on_cancel = on_ready, on_cancel
        self._listening.set()
        return self.inner.listen(self._announce, self._announce_cancel)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._active.add(task)
        task.add_done_callback(self._active.discard)

    # --- to the broker ----------------------------------------------------------------------------------------------

    def _announce(self, task_id: str) -> None:
        if task_id in self._adopted:
            self._on_ready(task_id)
            return
        self._contexts[task_id] = copy_context()
        self._withheld.add(task_id)
        self._spawn(self._send(task_id))

    async def _send(self, task_id: str) -> None:
        try:
            await self._broker.run_task(await self._params(task_id))
        except Exception:  # a user's broker raises any exception
            logger.exception('The broker refused task %s; the task runs without the broker.', task_id)
            self._hand_out(task_id)
        if self._shared is not None:
            await self._follow(Followed(self._shared, task_id), task_id)

    async def _follow(self, followed: Followed, task_id: str) -> None:
        """Watch a task in another process, until the broker hands out the task here."""
        over = False
        while task_id in self._withheld and not over:
            await asyncio.sleep(PAUSE)
            over = task_id in self._withheld and await followed.look(at=self.now())
        if over:
            self._withheld.discard(task_id)
            self._contexts.pop(task_id, None)

    async def _params(self, task_id: str) -> TaskSendParams:
        task = await self.reader.load(task_id, None, artifacts=False)
        assert task is not None, 'its message was just taken'
        assert task.history
        key = context_key(task.header.owner, task.header.context_id)
        message = stored.load_message(task.history[-1])
        return TaskSendParams(id=task_id, context_id=key, message={**message, 'context_id': key})

    def _announce_cancel(self, task_id: str) -> None:
        self._spawn(self._send_cancel(task_id))

    async def _send_cancel(self, task_id: str) -> None:
        try:
            await self._broker.cancel_task({'id': task_id})
        except Exception:  # a user's broker raises any exception
            logger.exception(
                'The broker refused the cancellation of task %s; the app cancels the task itself.', task_id
            )
            self._on_cancel(task_id)

    # --- from the broker --------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        """Take operations at once: FastA2A's own broker blocks each sender until its operation is taken."""
        while True:
            try:
                async for operation in self._broker.receive_task_operations():
                    self._spawn(self._carry_out(operation))
                logger.error('The broker stopped delivering operations; the app asks the broker again in a moment.')
            except Exception:  # a user's broker raises any exception
                logger.exception('The broker failed to deliver operations; the app asks the broker again in a moment.')
            await asyncio.sleep(PAUSE)

    async def _carry_out(self, operation: TaskOperation) -> None:
        await self._listening.wait()
        task_id = operation['params']['id']
        try:
            if operation['operation'] == 'cancel':
                await self._cancel(task_id)
            else:
                await self._run(task_id)
        except A2AError as error:
            logger.warning('The broker delivered task %s, and the delivery is ignored: %s', task_id, error)
        except Exception:  # a user's storage failed; the next operation may succeed
            logger.exception('An operation of the broker on task %s failed and is not repeated.', task_id)

    async def _run(self, task_id: str) -> None:
        if task_id in self._contexts or await self._held(task_id):
            self._hand_out(task_id)
        elif self._shared is not None:
            self._adopted.add(task_id)
            try:
                await adopt(self._shared, task_id, at=self.now())
            finally:
                self._adopted.discard(task_id)
        else:
            logger.warning(
                'The broker delivered task %s, which is not in the memory of this process; the delivery is ignored.'
                ' Processes that share a broker need a shared storage= too.',
                task_id,
            )

    def _hand_out(self, task_id: str) -> None:
        self._withheld.discard(task_id)
        self._contexts.pop(task_id, Context()).run(self._on_ready, task_id)

    async def _cancel(self, task_id: str) -> None:
        if not await self._held(task_id):
            await self.inner.queue.cancel(task_id, None, at=self.now())
        self._on_cancel(task_id)

    async def _held(self, task_id: str) -> bool:
        return await _header_in(self._memory, task_id) is not None


class _WithholdingQueue(WrappedQueue):
    """A queue without claims for tasks that the broker has not handed out yet, so slots are not used."""

    def __init__(self, inner: TaskQueue, withheld: Collection[str]) -> None:
        super().__init__(inner)
        self._withheld = withheld

    async def submit(self, submission: Submission, *, slot: Slot | None = None, **limits: Any) -> Accepted:
        return await super().submit(submission, **limits)

    async def claim(self, slot: Slot, *, skip: Collection[str] = (), **which: Any) -> list[Claim]:
        return await super().claim(slot, skip={*skip, *self._withheld}, **which)


def _ignore(task_id: str) -> None:
    """Do nothing: no worker listens yet."""
