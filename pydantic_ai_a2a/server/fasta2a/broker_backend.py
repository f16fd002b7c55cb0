"""A user's own FastA2A broker around a backend: the broker carries the operations from submit and cancel to the run.

A broker may be shared by several processes, and hand an operation to any of them. A process without the task runs the
task from the storage. The process with the task then asks the storage until the task has stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextvars import Context, copy_context
from types import TracebackType
from typing import Any, Self

from fasta2a.broker import Broker, TaskOperation
from fasta2a.schema import TaskSendParams

from ...base_exceptions import ends_task
from ...clock import STOP_TIME
from ...errors import A2AError
from ...wire.protocol import stored_values
from ..store.ports import Accepted, Backend, Claim, Slot, Submission, TaskQueue, WrappedQueue
from ..store.ports.wrapped_queue import inner_method
from ..store.sqlite.memory import MemoryBackend
from .shared_tasks import SharedTask, adopt
from .storage_backend import FastA2ABackend, header_in_memory
from .storage_tasks import context_key

logger = logging.getLogger('pydantic_ai_a2a')

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
        self.quotas, self.hook_calls = inner.quotas, inner.hook_calls
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
            await self._follow(SharedTask(self._shared, task_id), task_id)

    async def _follow(self, followed: SharedTask, task_id: str) -> None:
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
        message = stored_values.load_message(task.history[-1])
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
            current = asyncio.current_task()
            try:
                async for operation in self._broker.receive_task_operations():
                    self._spawn(self._carry_out(operation))
                logger.error('The broker stopped delivering operations; the app asks the broker again in a moment.')
            except BaseException as error:  # a user's broker raises any exception
                if ends_task(error, current):
                    raise
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
        return await header_in_memory(self._memory, task_id) is not None


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
