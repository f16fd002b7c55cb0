"""The ports of the store in memory: each method is one step under the lock of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from ...settings import Retention
from ...types import INTERRUPTED, TERMINAL, StoredTask, TaskHeader
from ..events import BusEnding, ended_task
from ..histories import load_message_rows, load_record
from ..ports import (
    Accepted,
    Charge,
    Claim,
    CredentialStore,
    Ending,
    Erased,
    EventLog,
    ExportedConversation,
    ExportedTask,
    Finish,
    Housekeeping,
    OnExpired,
    Outbox,
    Pause,
    PushConfig,
    PushConfigs,
    QuotaStore,
    SealedCredential,
    Slot,
    Submission,
    Subscription,
    TaskQueue,
    TaskReader,
)
from ..rules import tell_expired, unpaid
from . import dead_letters as dead
from . import ends, reads, runs, submit, sweep
from .push import Webhooks
from .quotas import Quotas
from .store import Store


class _Port:
    def __init__(self, store: Store) -> None:
        self.store = store


def _locked(step: Callable[..., Any], part: str = '') -> Any:
    """Make a method of a port that does one step under the lock of the store. The port class declares the signature.

    Args:
        step: A function of the store; with `part`, a method of the part of the store with this name.
        part: Name of a part of the store. Default: the store itself.
    """

    async def method(port: _Port, *args: Any, **kwargs: Any) -> Any:
        store = port.store
        with store.lock:
            return step(getattr(store, part) if part else store, *args, **kwargs)

    return method


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

    claim = _locked(runs.claim)
    renew = _locked(runs.renew)
    emit = _locked(runs.emit)

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        self.store.event_bus.prepare(claim.header.id, finish.final, partial(ended_task, claim, finish))
        with self.store.lock:
            return ends.finish(self.store, claim, finish)

    release = _locked(runs.release)


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

    list = _locked(reads.page)

    async def pause(self, task_id: str, owner: str) -> Pause | None:
        with self.store.lock:
            task = self.store.tasks.get(task_id)
            if task is None or task.owner != owner or task.state not in INTERRUPTED:
                return None
            return Pause(task.last_event, task.context_id, task.progress.pending, task.paused_request())

    async def unread(self, task_id: str, after: int) -> Sequence[tuple[int, bytes, bytes | None]]:
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

    take = _locked(Quotas.take, 'quotas')
    spent = _locked(Quotas.spent, 'quotas')
    charge = _locked(Quotas.charge, 'quotas')

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

    dead_letters = _locked(dead.dead_letters)

    async def retry(self, task_id: str, *, new_id: str, at: int, again: bool = False) -> TaskHeader:
        with self.store.lock:
            header = dead.retry(self.store, task_id, new_id=new_id, at=at, again=again)
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

    lease = _locked(Webhooks.lease, 'webhooks')
    done = _locked(Webhooks.done, 'webhooks')
    failed = _locked(Webhooks.failed, 'webhooks')
    release = _locked(Webhooks.release, 'webhooks')
    dead = _locked(Webhooks.dead, 'webhooks')
    retry = _locked(Webhooks.retry, 'webhooks')

    def listen(self, on_due: Callable[[], object]) -> Callable[[], None]:
        self.store.webhooks.listeners.append(on_due)
        return partial(self.store.webhooks.listeners.remove, on_due)
