"""The ports of the store in memory: each method is one step under the lock of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial

from ...ports import (
    Accepted,
    Bucket,
    Charge,
    Checkpoint,
    Claim,
    CredentialStore,
    DeadDelivery,
    DeadLetter,
    Delivery,
    Ending,
    Erased,
    EventLog,
    ExportedConversation,
    ExportedTask,
    Finish,
    Housekeeping,
    Leased,
    Marks,
    OnExpired,
    Outbox,
    Pause,
    PushConfig,
    PushConfigs,
    QuotaStore,
    SealedCredential,
    Slot,
    Spent,
    Status,
    Submission,
    Subscription,
    TaskQueue,
    TaskReader,
)
from ...settings import Retention
from ...task_states import INTERRUPTED, TERMINAL
from ...types import Page, StoredTask, TaskEvent, TaskHeader, TaskQuery
from ..ended import ended_task
from ..event_bus import BusEnding
from ..model_json import load_message_rows, load_record
from ..rules import tell_expired, unpaid
from . import dead_letters, ends, reads, runs, submit, sweep
from .store import Store

__all__ = (
    'MemoryCredentials',
    'MemoryEvents',
    'MemoryHousekeeping',
    'MemoryOutbox',
    'MemoryPushConfigs',
    'MemoryQueue',
    'MemoryQuotas',
    'MemoryReader',
)


class _Port:
    def __init__(self, store: Store) -> None:
        self.store = store


class MemoryQueue(_Port, TaskQueue):
    """The queue of a store in memory."""

    async def submit(
        self, submission: Submission, *, queue_limit: int, idempotency_window: int, slot: Slot | None = None
    ) -> Accepted:
        store = self.store
        with store.lock:
            store.check_room(submission.size)
            accepted = submit.submit(store, submission, queue_limit=queue_limit, window=idempotency_window, slot=slot)
        if not accepted.replayed and accepted.header.queued and accepted.claim is None:
            store.tell_ready(accepted.header.id)
        return accepted

    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        with self.store.lock:
            header = submit.cancel(self.store, task_id, owner, at=at, force=force)
        for _, on_cancel in tuple(self.store.listeners):
            on_cancel(task_id)
        return header

    async def claim(self, holder: str, *, at: int, lease: int, limit: int, task_id: str | None = None) -> list[Claim]:
        with self.store.lock:
            return runs.claim(self.store, holder, at=at, lease=lease, limit=limit, task_id=task_id)

    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        with self.store.lock:
            return runs.renew(self.store, holder, tasks, lease=lease)

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        with self.store.lock:
            runs.emit(self.store, claim, events, status, checkpoint)

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        self.store.event_bus.prepare(claim.header.id, finish.final, partial(ended_task, claim, finish))
        with self.store.lock:
            return ends.finish(self.store, claim, finish)

    async def release(self, claim: Claim) -> None:
        with self.store.lock:
            runs.release(self.store, claim)


class MemoryCredentials(_Port, CredentialStore):
    """Reads the credentials of tasks in memory."""

    async def load(self, task_id: str, credential_id: str) -> SealedCredential | None:
        with self.store.lock:
            return self.store.credentials.get(task_id, {}).get(credential_id)


class MemoryReader(_Port, TaskReader):
    """Reads the tasks of a store in memory."""

    async def load(
        self, task_id: str, owner: str | None, *, history_length: int | None = None, artifacts: bool = True
    ) -> StoredTask | None:
        store = self.store
        with store.lock:
            task = store.tasks.get(task_id)
            if task is None or owner not in (None, task.owner):
                return None
            return reads.load(task, history_length=history_length, artifacts=artifacts)

    async def watch(self, task_id: str, owner: str | None) -> StoredTask | None:
        store = self.store
        with store.lock:
            task = store.tasks.get(task_id)
            if task is None or owner not in (None, task.owner):
                return None
            if task.state not in TERMINAL:
                task.log_from_now()
            return reads.load(task, history_length=None, artifacts=True)

    async def list(self, query: TaskQuery) -> Page:
        with self.store.lock:
            return reads.page(self.store, query)

    async def pause(self, task_id: str, owner: str) -> Pause | None:
        with self.store.lock:
            task = self.store.tasks.get(task_id)
            if task is None or task.owner != owner or task.state not in INTERRUPTED:
                return None
            return Pause(task.last_event, task.context_id, task.progress.pending, task.paused_request())

    async def unread(self, task_id: str, after: int) -> Sequence[tuple[int, bytes]]:
        with self.store.lock:
            task = self.store.tasks.get(task_id)
            return [] if task is None else task.prompts(after)


class MemoryEvents(_Port, EventLog):
    """The event logs of a store in memory."""

    def subscribe(self, task_id: str, on_drop: Callable[[], object]) -> Subscription:
        return self.store.event_bus.subscribe(task_id, on_drop)

    def expect(self, task_id: str) -> Ending:
        return BusEnding(self.store.event_bus, task_id, partial(self._stopped_after, task_id))

    async def wait(self, task_id: str, after: int) -> None:
        await self.store.event_bus.wait(task_id, after, partial(self._stopped_after, task_id))

    async def _stopped_after(self, task_id: str, after: int) -> bool:
        with self.store.lock:
            return reads.stopped_after(self.store.tasks.get(task_id), after)

    def release(self, held: Callable[[str], bool]) -> None:
        self.store.event_bus.release(held)

    def watched(self, task_id: str) -> bool:
        return self.store.event_bus.watched(task_id)

    async def has(self, task_id: str, n: int) -> bool:
        with self.store.lock:
            return reads.resumable(self.store.tasks.get(task_id), n)


class MemoryQuotas(_Port, QuotaStore):
    """Counts the requests and the usage of callers in memory."""

    async def take(self, bucket: Bucket, *, at: int) -> int:
        with self.store.lock:
            return self.store.quotas.take(bucket, at=at)

    async def spent(self, subject: str, window: int, *, at: int) -> Sequence[Spent]:
        with self.store.lock:
            return self.store.quotas.spent(subject, window, at=at)

    async def charge(self, charges: Sequence[Charge]) -> None:
        with self.store.lock:
            self.store.quotas.charge(charges)

    async def settle(self, task_id: str, run: int, charges: Sequence[Charge]) -> None:
        with self.store.lock:
            task = self.store.tasks.get(task_id)
            # Only the task has the charged amounts of a run. A run of an erased task may have been charged before, so
            # charge nothing.
            if task is not None and task.state in TERMINAL and task.run == run:
                due = unpaid(run, task.paid or (), charges)
                if due is not None:
                    rest, task.paid = due
                    self.store.quotas.charge(rest)


class MemoryHousekeeping(_Port, Housekeeping):
    """Keeps a store in memory small, and does the work of operators."""

    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> int:
        with self.store.lock:
            swept, ended = sweep.sweep(self.store, retention, at)
        tell_expired(ended, on_expired)
        return swept

    async def erase_task(self, task_id: str, owner: str | None, *, at: int) -> bool:
        with self.store.lock:
            return sweep.erase_task(self.store, task_id, owner, at)

    async def erase(self, owner: str, context_id: str | None = None, *, at: int) -> Erased:
        with self.store.lock:
            erased = sweep.erase(self.store, owner, context_id, at)
        self.store.forget(owner, context_id)
        return erased

    async def dead_letters(
        self, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> Sequence[DeadLetter]:
        with self.store.lock:
            return dead_letters.dead_letters(self.store, owner, limit, after)

    async def retry(self, task_id: str, *, new_id: str, at: int, again: bool = False) -> TaskHeader:
        with self.store.lock:
            header = dead_letters.retry(self.store, task_id, new_id=new_id, at=at, again=again)
        self.store.tell_ready(header.id)
        return header

    async def export(
        self, owner: str, context_id: str | None = None
    ) -> AsyncIterator[ExportedTask | ExportedConversation]:
        with self.store.lock:
            task_ids = sorted(self.store.lists.ids(owner, context_id))
        for task_id in task_ids:
            with self.store.lock:
                task = self.store.tasks.get(task_id)  # a sweep may have deleted the task
                exported = None
                if task is not None:
                    read = reads.load(task, history_length=None, artifacts=True)
                    exported = ExportedTask(read, task.requests())
            if exported is not None:
                yield exported
        with self.store.lock:
            names = sorted(name for name, _ in self.store.conversations.of_owner(owner) if context_id in (None, name))
        for name in names:
            conversation = self._conversation(owner, name)
            if conversation is not None:
                yield conversation

    def _conversation(self, owner: str, name: str) -> ExportedConversation | None:
        conversations = self.store.conversations
        with self.store.lock:
            conversation = conversations.find(owner, name)
            if conversation is None:
                return None
            chains = [conversations.chain(tip) for tip in (conversation.head, *conversation.branches)]
        messages, *branches = [load_message_rows(bytes(entry.message) for entry in chain) for chain in chains]
        return ExportedConversation(load_record(conversation.record), messages, branches)


class MemoryPushConfigs(_Port, PushConfigs):
    """The webhooks of a store in memory."""

    async def create(self, task_id: str, owner: str, config: PushConfig, *, limit: int) -> None:
        with self.store.lock:
            task = self.store.find(task_id, owner)
            self.store.webhooks.check_put(task, config, limit)
            self.store.webhooks.put(task, config)

    async def get(self, task_id: str, owner: str, config_id: str | None) -> PushConfig:
        with self.store.lock:
            return self.store.webhooks.get(self.store.find(task_id, owner), config_id)

    async def list(self, task_id: str, owner: str) -> Sequence[PushConfig]:
        with self.store.lock:
            return self.store.webhooks.configs(self.store.find(task_id, owner))

    async def delete(self, task_id: str, owner: str, config_id: str) -> None:
        with self.store.lock:
            self.store.webhooks.delete(self.store.find(task_id, owner), config_id)


class MemoryOutbox(_Port, Outbox):
    """The deliveries of a store in memory."""

    async def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        with self.store.lock:
            return self.store.webhooks.lease(lease=lease, limit=limit, held=held)

    async def done(self, delivery: Delivery) -> None:
        with self.store.lock:
            self.store.webhooks.done(delivery)

    async def failed(self, delivery: Delivery, *, at: int, pause: int | None, error: str) -> None:
        with self.store.lock:
            self.store.webhooks.failed(delivery, at=at, pause=pause, error=error)

    async def release(self, delivery: Delivery) -> None:
        with self.store.lock:
            self.store.webhooks.release(delivery)

    async def dead(
        self, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> Sequence[DeadDelivery]:
        with self.store.lock:
            return self.store.webhooks.dead(owner, limit, after)

    async def retry(self, delivery_id: str) -> None:
        with self.store.lock:
            self.store.webhooks.retry(delivery_id)

    def listen(self, on_due: Callable[[], object]) -> Callable[[], None]:
        self.store.webhooks.listeners.append(on_due)
        return partial(self.store.webhooks.listeners.remove, on_due)
