"""Backends with one fault each, and the suites over them: `test_broken` says which of their tests has to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import Phase, settings

from pydantic_ai_a2a.errors import TaskNotCancelableError
from pydantic_ai_a2a.server.store.ports import (
    Accepted,
    Backend,
    Claim,
    DeadDelivery,
    Delivery,
    Finish,
    Leased,
    OnExpired,
    Slot,
    Subscription,
    Swept,
)
from pydantic_ai_a2a.server.store.sql.conversations import SqlConversationStore
from pydantic_ai_a2a.server.store.sql.event_port import SqlEvents
from pydantic_ai_a2a.server.store.sql.housekeeping import SqlHousekeeping
from pydantic_ai_a2a.server.store.sql.reader_port import SqlReader
from pydantic_ai_a2a.server.store.sql.task_queue import SqlQueue
from pydantic_ai_a2a.server.store.sql.webhook_ports import SqlOutbox
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import Page, StoredTask, TaskEvent, TaskHeader, TaskQuery

from ..suites import READER_LAG, BackendSuite, CheckpointSuite, DurableSuite, PushSuite
from ..suites.base import MakeBackend, OpenBackend

# That a test fails is enough here, whatever the shortest way to it is.
settings.register_profile('unshrunk', settings.get_profile('steady'), phases=[Phase.generate])
settings.load_profile('unshrunk')

# --- the queue ------------------------------------------------------------------------------------------------------


class LosesAnEvent(SqlQueue):
    async def emit(self, claim: Claim, events: Sequence[TaskEvent], *rest: Any, **options: Any) -> None:
        await super().emit(claim, events[:1], *rest, **options)


class ForgetsCheckpoints(SqlQueue):
    async def emit(self, claim: Claim, events: Sequence[TaskEvent], *rest: Any, **options: Any) -> None:
        await super().emit(claim, events, *rest)


class WritesByHalves(SqlQueue):
    async def emit(self, claim: Claim, events: Sequence[TaskEvent], *rest: Any, **options: Any) -> None:
        for event in events:
            await super().emit(claim, [event])
        await super().emit(claim, (), *rest, **options)


class TellsTooEarly(SqlQueue):
    async def emit(self, claim: Claim, events: Sequence[TaskEvent], *rest: Any, **options: Any) -> None:
        self.database.event_bus.publish(claim.header.id, events)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await super().emit(claim, events, *rest, **options)


class ForgetsTheFence(SqlQueue):
    newest: dict[str, Claim]

    async def claim(self, *args: Any, **options: Any) -> list[Claim]:
        claims = await super().claim(*args, **options)
        self.newest = {each.header.id: each for each in claims}
        return claims

    async def emit(self, claim: Claim, *rest: Any, **options: Any) -> None:
        await super().emit(self.newest[claim.header.id], *rest, **options)


class ForgetsAttempts(SqlQueue):
    async def claim(self, *args: Any, **options: Any) -> list[Claim]:
        return [replace(each, attempt=1) for each in await super().claim(*args, **options)]


class CountsHandedBack(SqlQueue):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.released: set[str] = set()

    async def release(self, claim: Claim, *rest: Any, **options: Any) -> None:
        self.released.add(claim.header.id)
        await super().release(claim, *rest, **options)

    async def claim(self, *args: Any, **options: Any) -> list[Claim]:
        claims = await super().claim(*args, **options)
        return [replace(each, attempt=each.attempt + (each.header.id in self.released)) for each in claims]


class NeverHandsBack(SqlQueue):
    async def release(self, claim: Claim, *rest: Any, **options: Any) -> None:
        pass


class ForgetsPauses(SqlQueue):
    async def release(self, claim: Claim, *rest: Any, **options: Any) -> None:
        await super().release(claim, *rest)


class ForgetsTries(SqlQueue):
    async def claim(self, *args: Any, **options: Any) -> list[Claim]:
        return [replace(each, tried=None) for each in await super().claim(*args, **options)]


class ForgetsOwnersLimits(SqlQueue):
    async def claim(self, slot: Slot, **options: Any) -> list[Claim]:
        return await super().claim(slot._replace(owner_limit=None), **options)


class ForgetsPausedQueues(SqlHousekeeping):
    async def pause(self, at: int | None) -> None:
        pass


class ForgetsContexts(SqlQueue):
    async def submit(self, submission: Any, **options: Any) -> Accepted:
        apart = replace(submission, context_id=submission.context_id and submission.task_id)
        return await super().submit(apart, **options)


class ReplaysFromNow(SqlQueue):
    async def submit(self, submission: Any, **options: Any) -> Accepted:
        accepted = await super().submit(submission, **options)
        return accepted._replace(after=accepted.header.last_event)


class CancelsForAnyone(SqlQueue):
    async def cancel(self, task_id: str, owner: str | None, **options: Any) -> TaskHeader:
        return await super().cancel(task_id, None, **options)


class CancelsWhatHasEnded(SqlQueue):
    async def cancel(self, task_id: str, owner: str | None, **options: Any) -> TaskHeader:
        try:
            return await super().cancel(task_id, owner, **options)
        except TaskNotCancelableError:
            task = await SqlReader(self.database).load(task_id, owner)
            assert task is not None
            return task.header


class DropsMetadata(SqlQueue):
    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        return await super().finish(claim, replace(finish, metadata=finish.metadata or b'{}'))


class LosesWhatIsUnread(SqlQueue):
    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        return await super().finish(claim, replace(finish, last=True))


class ReadsTwice(SqlQueue):
    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        return await super().finish(claim, replace(finish, taken=0))


class TakesWhateverComes(SqlQueue):
    async def submit(self, submission: Any, **options: Any) -> Accepted:
        return await super().submit(replace(submission, only_waiting=False), **options)


class EndsWhateverPause(SqlQueue):
    async def submit(self, submission: Any, **options: Any) -> Accepted:
        return await super().submit(replace(submission, pause=None), **options)


class ForgetsWhatEntered(SqlQueue):
    async def emit(self, claim: Claim, events: Sequence[TaskEvent], status: Any = None, checkpoint: Any = None) -> None:
        await super().emit(claim, events, status, checkpoint and replace(checkpoint, taken=0))


class TakesItsInputsApart(SqlQueue):
    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        following = await super().finish(claim, finish)
        if isinstance(finish.messages, list):
            finish.messages.clear()
        return following


# --- the other ports ------------------------------------------------------------------------------------------------


class ReadsForAnyone(SqlReader):
    async def load(self, task_id: str, owner: str | None, **options: Any) -> StoredTask | None:
        return await super().load(task_id, None, **options)


class ListsForAnyone(SqlReader):
    async def list(self, query: TaskQuery) -> Page:
        return await super().list(replace(query, owner=None) if query.context_id else query)


class ReadsWhatWas(SqlReader):
    seen: StoredTask | None = None

    async def load(self, task_id: str, owner: str | None, **options: Any) -> StoredTask | None:
        self.seen = self.seen or await super().load(task_id, owner, **options)
        return self.seen


class FindsWhatWasRead(SqlReader):
    async def unread(self, task_id: str, after: int) -> Sequence[tuple[int, bytes, bytes | None]]:
        return await super().unread(task_id, 0)


class StartsTooLate(SqlEvents):
    def subscribe(self, task_id: str, on_drop: Callable[[], object], *, live: bool = False) -> Subscription:
        reader = super().subscribe(task_id, on_drop, live=live)
        start = reader.start
        reader.start = lambda after: start(after + 1)
        return reader


class HasEverything(SqlEvents):
    async def has(self, task_id: str, n: int) -> bool:
        return True


class SeesNobody(SqlEvents):
    def watched(self, task_id: str, *, live: bool = False) -> bool:
        return False


class ErasesForAnyone(SqlHousekeeping):
    async def erase_task(self, task_id: str, owner: str | None, *, at: int) -> bool:
        return await super().erase_task(task_id, None, at=at)


class RetriesAgain(SqlHousekeeping):
    async def retry(
        self, task_id: str, *, new_id: str, at: int, again: bool = False, failed: bool = False
    ) -> TaskHeader:
        return await super().retry(task_id, new_id=new_id, at=at, again=True, failed=failed)


class KeepsEverything(SqlHousekeeping):
    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> Swept:
        return Swept()


class OneConversationForAll(MemoryBackend):
    def conversations(self, owner: str) -> SqlConversationStore:
        return super().conversations('/')


class TellsElsewhere(MemoryBackend):
    def listen(self, on_ready: Any, on_cancel: Any) -> Callable[[], None]:
        return super().listen(lambda task_id: Context().run(on_ready, task_id), on_cancel)


PORTS: dict[type[Any], str] = {
    SqlQueue: 'queue',
    SqlReader: 'reader',
    SqlEvents: 'events',
    SqlHousekeeping: 'housekeeping',
}


def broken(part: type[Any]) -> Backend:
    """The backend in memory, but for one part."""
    if issubclass(part, Backend):
        return cast(type[MemoryBackend], part)('agent', reader_lag=READER_LAG)
    backend = MemoryBackend('agent', reader_lag=READER_LAG)
    options: list[Any] = [backend.due] if issubclass(part, SqlQueue) else []
    setattr(backend, next(name for port, name in PORTS.items() if issubclass(part, port)), part(backend, *options))
    return backend


BROKEN: list[type[Any]] = [
    MemoryBackend,  # which is not
    *(LosesAnEvent, WritesByHalves, TellsTooEarly, ForgetsTheFence, ForgetsAttempts, CountsHandedBack, NeverHandsBack),
    *(ForgetsPauses, ForgetsTries, ForgetsOwnersLimits, ForgetsPausedQueues),
    *(ForgetsContexts, ReplaysFromNow, CancelsForAnyone, CancelsWhatHasEnded, DropsMetadata, TakesItsInputsApart),
    *(ReadsForAnyone, ListsForAnyone, ReadsWhatWas, StartsTooLate, HasEverything, SeesNobody, ErasesForAnyone),
    *(RetriesAgain, KeepsEverything, OneConversationForAll, TellsElsewhere, ForgetsCheckpoints),
    *(LosesWhatIsUnread, ReadsTwice, TakesWhateverComes, EndsWhateverPause, ForgetsWhatEntered, FindsWhatWasRead),
]


class TestBroken(BackendSuite, CheckpointSuite):
    @pytest.fixture(params=BROKEN, ids=lambda part: part.__name__)
    def make_backend(self, request: pytest.FixtureRequest) -> MakeBackend:
        return lambda: broken(request.param)


# --- push notifications ---------------------------------------------------------------------------------------------


class ServesWhoComesFirst(SqlOutbox):
    async def lease(self, *, held: Mapping[str, int], **options: Any) -> Leased:
        return await super().lease(held={}, **options)


class GivesUpAtOnce(SqlOutbox):
    async def failed(self, delivery: Delivery, *, pause: int | None, **options: Any) -> None:
        await super().failed(delivery, pause=None, **options)


class KeepsWhatItHas(SqlOutbox):
    async def release(self, delivery: Delivery) -> None:
        pass


class TellsOfAllDead(SqlOutbox):
    async def dead(self, owner: str | None = None, **options: Any) -> Sequence[DeadDelivery]:
        return await super().dead(**options)


class SweepsTheUntold(SqlHousekeeping):
    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> Swept:
        return await super().sweep(replace(retention, waiting=timedelta(milliseconds=1)), at=at)


def broken_push(part: type[Any]) -> Backend:
    backend = MemoryBackend('agent', reader_lag=READER_LAG)
    if issubclass(part, SqlOutbox):
        backend.outbox = part(backend, backend.due)
    elif issubclass(part, SqlHousekeeping):
        return broken(part)
    return backend


BROKEN_PUSH: list[type[Any]] = [
    MemoryBackend,  # which is not
    *(ServesWhoComesFirst, GivesUpAtOnce, KeepsWhatItHas, TellsOfAllDead, SweepsTheUntold),
]


class TestBrokenPush(PushSuite):
    @pytest.fixture(params=BROKEN_PUSH, ids=lambda part: part.__name__)
    def make_backend(self, request: pytest.FixtureRequest) -> MakeBackend:
        return lambda: broken_push(request.param)


# --- durable ones ---------------------------------------------------------------------------------------------------


class LetsEverybodyGo(SqlEvents):
    def release(self, held: Callable[[str], bool]) -> None:
        super().release(lambda task_id: False)


class SharesItsTasks(SqliteFileBackend):
    def _check_alone(self) -> None:
        pass


def one_agent(file: SqliteFile, namespace: str) -> Backend:
    return SqliteFileBackend(file, 'agent', reader_lag=READER_LAG)


def lets_everybody_go(file: SqliteFile, namespace: str) -> Backend:
    backend = SqliteFileBackend(file, namespace, reader_lag=READER_LAG)
    backend.events = LetsEverybodyGo(backend)
    return backend


def shares_its_tasks(file: SqliteFile, namespace: str) -> Backend:
    return SharesItsTasks(file, namespace, reader_lag=READER_LAG)


def a_file_each(file: SqliteFile, namespace: str) -> Backend:
    """As many files as backends."""
    apart = replace(file, path=file.path.with_name(f'{len([*file.path.parent.iterdir()])}.db'))
    apart.path.touch()
    return SqliteFileBackend(apart, namespace, reader_lag=READER_LAG)


def sound(file: SqliteFile, namespace: str) -> Backend:
    return SqliteFileBackend(file, namespace, reader_lag=READER_LAG)


BROKEN_FILES = [sound, one_agent, lets_everybody_go, shares_its_tasks, a_file_each]


class TestBrokenFile(DurableSuite):
    @pytest.fixture(params=BROKEN_FILES, ids=lambda make: make.__name__)
    def open_backend(self, request: pytest.FixtureRequest, tmp_path: Path) -> OpenBackend:
        file = SqliteFile(path=tmp_path / 'agent.db', synchronous='normal')
        return lambda namespace: request.param(file, namespace)
