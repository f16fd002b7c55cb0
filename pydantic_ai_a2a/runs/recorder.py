"""The recorder: the only writer of a running task. Converts the run's events to their stored form.

One recorder belongs to one claim. The recorder numbers the events, as the only writer while the claim is valid.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context
from dataclasses import replace
from functools import partial
from time import perf_counter, time
from typing import Any, Protocol, TypeAlias, TypeVar

from pydantic_ai.usage import RunUsage

from ..conversion.stream import Failure
from ..errors import LeaseLost, StoreFailed, StoreUnavailable
from ..protocol import own_extensions, run_metadata, stored
from ..settings import Results
from ..store.ports import Charge, Checkpoint, Claim, Finish, Status
from ..store.ports.queue import Sink
from ..telemetry.spans import Instruments, metrics, recording, run_span
from ..types import (
    Artifact,
    Message,
    Note,
    Part,
    PartialArtifact,
    Step,
    TaskEvent,
    TaskState,
    TextDelta,
    ToolArtifact,
    count_of,
    dump_json,
)

Charges: TypeAlias = Callable[[str, Any], Sequence[Charge]]
"""Returns the charges of an owner for a run's usage, a `RunUsage`."""


_SIZE = 500
"""Characters of gathered text that are sent before the interval has passed."""


class Recorder:
    """Records one run of a task.

    Args:
        claim: The claim of the task.
        queue: Stores the writes.
        now: Returns the time (ms).
        flush_delay: Seconds for which pieces of text are gathered into one write; 0 writes each at once.
        charges: Converts the run's usage to charges; None for none.
        retries: Repeats a write while the store is unavailable; None tries each write once.
        results: Seconds of a gathered piece of text, and whether all readers get notes.
    """

    def __init__(
        self,
        claim: Claim,
        queue: Sink,
        now: Callable[[], int],
        *,
        flush_delay: float = 0.0,
        charges: Charges | None = None,
        retries: Retries | None = None,
        results: Results = Results(interval=0),
    ) -> None:
        header = claim.header
        self.artifact_id = f'{header.id}.{claim.turn}.result'
        """Id of the artifact with the turn's answer, while streaming and after."""
        self._claim = claim
        self._queue = queue
        self._now = now
        self._n = header.last_event
        self._text: stored.TextArtifact | None = None
        self.text_type = stored.PLAIN
        """The media type of the agent's text."""
        self._flush_delay = flush_delay
        self._results = results
        self._flush = self._new_flush() if flush_delay else None
        """In memory, where writes take no time, made for the first piece of a text."""
        self._charges = charges
        self.store = (retries or Retries.once()).of(header.id)
        """Calls the store for this run, again while the store is unavailable."""
        self.unstored: Finish | None = None
        """The end of the run until the store accepts the write."""
        self.tells = claim.request is not None and run_metadata.asks_run_metadata(claim.request)
        """True if the task's metadata reports the usage of the run."""
        self.live = claim.request is not None and own_extensions.wants_live(claim.request)
        """True if a message of the run wants live text before there is a reader."""
        self.usage: Any = claim.used
        """Usage of the run over all attempts and tries, a `RunUsage` that grows during the run."""
        self.has_stored_steps = False
        """True once this try has stored a step of the run."""
        self.transient: Exception | None = None
        """The error of the model after which the run can be tried again."""
        self.timeout: float | None = None
        """Seconds of the run over all tries; None for no limit."""
        self.tool_artifacts: dict[str, bytes] = {}
        """Artifacts from tools, as JSON, by id."""
        self._partial = b''
        """The last partial artifact, as JSON."""
        self.taken = 0 if claim.checkpoint is None else claim.checkpoint.taken
        """Row of the newest client message that entered the run under way; 0 for none."""

    async def write(self, event: TextDelta | Note | Step | PartialArtifact | ToolArtifact) -> None:
        """Store and publish an event of the running agent.

        Raises:
            LeaseLost: The task is no longer ours.
        """
        if isinstance(event, TextDelta):
            self._flush = self._flush or self._new_flush()
            await (self._store([self._chunk(event)]) if self._flush is None else self._flush.add(event))
            return
        if isinstance(event, Step):
            message = self._message(stored.dump_parts([event.part]), metadata=event.metadata)
            await self._emit(self._status_event(Status('working', self._now(), message)))
            return
        if isinstance(event, PartialArtifact):
            await self._write_partial(event.artifact)
            return
        if isinstance(event, ToolArtifact):
            header, body = self._claim.header, stored.dump_artifact(event.artifact)
            await self._emit((None, stored.artifact_update(header.id, header.context_id, body)))
            self.tool_artifacts[event.artifact['artifact_id']] = body
            return
        await self._emit(*self._note(event))

    async def _write_partial(self, artifact: Artifact) -> None:
        header, body = self._claim.header, stored.dump_artifact(artifact)
        if body != self._partial:
            self._partial = body
            await self._emit((None, stored.artifact_update(header.id, header.context_id, body, last=False)))

    async def save(self, checkpoint: Checkpoint, note: Note | None) -> None:
        """Store a checkpoint, together with the agent's note about the step, after all earlier events.

        Raises:
            LeaseLost: The task is no longer ours.
        """
        event, status = (None, None) if note is None else self._note(note)
        if self.taken:
            checkpoint = replace(checkpoint, taken=self.taken)
        if self._flush is not None:
            await self._flush.write(event, status, checkpoint)
        else:
            await self._store([] if event is None else [event], status, checkpoint)
        self.has_stored_steps = True

    async def drop_text(self) -> None:
        """Drop the text that is not stored yet."""
        if self._flush is not None:
            await self._flush.rest(store=False)

    def _new_flush(self) -> Flush | None:
        delay = max(self._flush_delay, self._results.interval)
        return Flush(self._store, self._chunk, delay, self._results) if delay else None

    def _note(self, note: Note) -> tuple[EventBody, Status]:
        status = Status(
            'working',
            self._now(),
            self._message(stored.text_parts(note.text, self.text_type if note.of_model else stored.PLAIN)),
        )
        if note.of_model and not self._results.progress.notes:
            header = self._claim.header
            body = stored.status(status.state, status.at, status.message)
            return (status.state, stored.note(header.id, header.context_id, body)), status
        return self._status_event(status), status

    async def complete(
        self,
        artifacts: Sequence[Artifact],
        *,
        answer: str | None,
        streamed: str | None,
        messages: Sequence[Any],
        rewritten: Sequence[Any] | None = None,
        usage: Any,
    ) -> Claim | None:
        """End the run with its results. Return the claim of the task's next message, if any.

        Args:
            artifacts: The answer.
            answer: Text of the answer, if the answer is plain text: added to the history as a message of the agent.
            streamed: Text that readers of live text have as the answer, if any.
            messages: The run's new model messages.
            rewritten: The whole context with these messages, if the run has summarised earlier messages.
            usage: Usage of the run.
        """
        bodies = [(artifact['artifact_id'], stored.dump_artifact(artifact)) for artifact in artifacts]
        closing = self._closing(artifacts, bodies, streamed)
        history: list[tuple[str, bytes]] = []
        if answer is not None:
            message_id = f'{self._claim.header.id}.{self._claim.turn}.answer'
            history = [(message_id, self._message(stored.text_parts(answer, self.text_type), message_id))]
        status = Status('completed', self._now(), None)
        return await self._finish(
            status,
            events=closing,
            history=history,
            artifacts=[*self.tool_artifacts.items(), *bodies],
            messages=messages,
            rewritten=rewritten,
            usage=usage,
        )

    async def cancel(self, messages: Sequence[Any], usage: Any) -> None:
        """End the run as cancelled. The context keeps the messages of the run."""
        await self._finish(Status('canceled', self._now(), None), messages=messages, usage=usage)

    async def fail(self, failure: Failure, correlation_id: str) -> Claim | None:
        """End the run as failed. Return the claim of the task's next message, if any. The context stays unchanged.

        Args:
            failure: The failure. If `failure.last` is True, the task's other messages are left out.
            correlation_id: Names the failure in the log.
        """
        metadata = {'failure': failure.kind, 'correlationId': correlation_id}
        message = self._message(stored.text_parts(failure.sentence), metadata=metadata)
        return await self._finish(Status('failed', self._now(), message), failure=failure.kind, last=failure.last)

    async def interrupt(
        self,
        state: TaskState,
        parts: Sequence[Part],
        messages: Sequence[Any],
        *,
        usage: Any = None,
        pending: bytes | None = None,
    ) -> Claim | None:
        """Let the task wait for its client, with its model messages, until the task ends.

        A rejected task may instead go on with its next message, whose claim is returned.
        """
        status = Status(state, self._now(), self._message(stored.dump_parts(parts)))
        artifacts = [*self.tool_artifacts.items()] or None
        return await self._finish(status, artifacts=artifacts, messages=messages, usage=usage, pending=pending)

    async def relay_message(self, message: Message) -> None:
        """Store and publish a message of a user's own worker.

        Raises:
            LeaseLost: The task is no longer ours.
        """
        status = Status('working', self._now(), self._of_task(message))
        await self._emit(self._status_event(status), status)

    async def relay_artifact(self, artifact: bytes, *, append: bool, last: bool) -> None:
        """Store and publish an artifact of a user's own worker, or a chunk of an artifact.

        Raises:
            LeaseLost: The task is no longer ours.
        """
        header = self._claim.header
        update = stored.artifact_update(header.id, header.context_id, artifact, append=append, last=last)
        await self._emit((None, update))

    async def relay_end(
        self,
        state: TaskState,
        message: Message | None,
        *,
        artifacts: Sequence[tuple[str, bytes]],
        unreported: Sequence[bytes],
    ) -> Claim | None:
        """End the run as stored by a user's own worker; `unreported` are artifacts without a whole report."""
        header = self._claim.header
        events = [(None, stored.artifact_update(header.id, header.context_id, body)) for body in unreported]
        status = Status(state, self._now(), None if message is None else self._of_task(message))
        return await self._finish(status, events=events, artifacts=artifacts)

    def _of_task(self, message: Message) -> bytes:
        header = self._claim.header
        return stored.dump_message({**message, 'task_id': header.id, 'context_id': header.context_id})

    async def _emit(self, event: EventBody, status: Status | None = None) -> None:
        if self._flush is not None:
            await self._flush.write(event, status)
            return
        await self._store([event], status)

    async def _store(
        self, events: Sequence[EventBody], status: Status | None = None, checkpoint: Checkpoint | None = None
    ) -> None:
        n = self._n
        numbered: list[TaskEvent] = []
        for event in events:
            n += 1
            numbered.append(TaskEvent(n, *event))
        claim = self._claim
        await self.store(lambda: self._queue.emit(claim, numbered, status, checkpoint))
        self._n = n  # only now: the next events reuse the numbers of events that were not stored

    async def _finish(self, status: Status, *, events: Sequence[EventBody] = (), **rest: Any) -> Claim | None:
        if self._flush is not None:
            # An end without artifacts keeps the artifacts in the log.
            events = [*await self._flush.rest(store=rest.get('artifacts') is None), *events]
        metadata = None
        if self.tells:
            metadata = rest['metadata'] = self._metadata(**rest)
        numbered = enumerate([*events, self._status_event(status, metadata)], self._n + 1)
        *before, final = [TaskEvent(n, *event) for n, event in numbered]
        if self._charges is not None and self.usage is not None:
            rest['charges'] = self._charges(self._claim.header.owner, self.usage)
        self.unstored = Finish(status=status, events=before, final=final, taken=self.taken, **rest)
        following = await self.store(self.store_end)
        self.unstored = None
        return following

    async def store_end(self) -> Claim | None:
        """Write the end of the run from `unstored`.

        Raises:
            LeaseLost: The task is no longer ours.
        """
        assert self.unstored is not None, 'the run has ended'
        following = await self._queue.finish(self._claim, self.unstored)
        # With a next message, the task goes on in the state `working`. A run without a task has no fence.
        if metrics.instruments is not None and following is None and self._claim.fence:
            metrics.instruments.enter(self.unstored.status.state, self.unstored.failure)
        return following

    def _closing(
        self, artifacts: Sequence[Artifact], bodies: Sequence[tuple[str, bytes]], streamed: str | None
    ) -> list[EventBody]:
        """Return the updates that complete the artifacts in the stream and close them (§4.2.2)."""
        header = self._claim.header
        events: list[EventBody] = []
        for artifact, (_, body) in zip(artifacts, bodies, strict=True):
            has_pieces = streamed is not None and not events and _is_text(artifact, streamed)
            write = stored.whole_text if has_pieces else stored.artifact_update
            events.append((None, write(header.id, header.context_id, body)))
        return events

    def _chunk(self, delta: TextDelta) -> EventBody:
        if self._text is None:
            header = self._claim.header
            self._text = stored.TextArtifact(header.id, header.context_id, self.artifact_id, 'result', self.text_type)
        return None, self._text.piece(delta.text, first=delta.first)

    def _metadata(self, *, usage: Any = None, messages: Sequence[Any] = (), **_: object) -> bytes:
        claim = self._claim
        run_id = f'{claim.header.id}.{claim.run}' if claim.checkpoint is None else claim.checkpoint.run
        used = self.usage if usage is None else usage
        return run_metadata.task_metadata(claim.header.metadata, run_id=run_id, usage=used, messages=messages)

    def _status_event(self, status: Status, metadata: bytes | None = None) -> EventBody:
        header = self._claim.header
        body = stored.status(status.state, status.at, status.message)
        return status.state, stored.status_update(header.id, header.context_id, body, metadata)

    def _message(self, parts: bytes, message_id: str | None = None, metadata: dict[str, Any] | None = None) -> bytes:
        rest = b'' if metadata is None else b',"metadata":' + dump_json(metadata)
        ids = stored.ids(self._claim.header.id, self._claim.header.context_id)
        return stored.message(message_id or stored.new_id(), b'ROLE_AGENT', parts, rest + b',' + ids)


def _is_text(artifact: Artifact, text: str) -> bool:
    parts = artifact['parts']
    return len(parts) == 1 and parts[0].get('text') == text


# --- the writes of streamed text --------------------------------------------------------------------------------------
# Pieces are gathered, and stored after a delay.

EventBody: TypeAlias = tuple[TaskState | None, bytes]
"""A `TaskEvent` without its number."""


class Flush:
    """Gathers the pieces of a text: stores the first at once, and the next pieces after a delay.

    Each write is an asyncio task of its own: after a cancellation during a write, the run would not know the result.

    Args:
        store: Stores events.
        chunk: Makes the event of a piece.
        delay: Seconds between two writes of pieces.
        results: Join of gathered pieces.
    """

    def __init__(
        self,
        store: Callable[[Sequence[EventBody], Status | None, Checkpoint | None], Awaitable[None]],
        chunk: Callable[[TextDelta], EventBody],
        delay: float,
        results: Results,
    ) -> None:
        self._store = store
        self._chunk = chunk
        self._delay = delay
        self._joins = results.interval > 0
        self._waiting: list[TextDelta] = []
        self._writing = 0
        """Number of waiting pieces in the current write. No text may be joined to them."""
        self._lock = asyncio.Lock()
        self._gathering: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    async def add(self, delta: TextDelta) -> None:
        """Store a piece: at once after a pause of the text, otherwise soon.

        Raises:
            Exception: The error of the write, or of an earlier write.
        """
        if self._error is not None:
            raise self._error
        if self._joins and not delta.first and len(self._waiting) > self._writing:
            last = self._waiting.pop()
            delta = TextDelta(last.text + delta.text, last.first)
        self._waiting.append(delta)
        if self._gathering is None:
            # The run waits: a busy agent and the thread of the store would compete for the interpreter, and readers
            # would get the piece after 2.5 ms in place of 0.9 ms (SQLite).
            await self.write()
            self._gathering = asyncio.create_task(self._gather(), context=Context())
        elif sum(len(piece.text) for piece in self._waiting) >= _SIZE:
            await self.write()

    async def write(
        self, event: EventBody | None = None, status: Status | None = None, checkpoint: Checkpoint | None = None
    ) -> None:
        """Store the waiting pieces, and after them an event or a checkpoint."""
        writing = asyncio.create_task(self._write(event, status, checkpoint), context=Context())
        writing.add_done_callback(self._note_error)
        await asyncio.shield(writing)

    async def rest(self, *, store: bool) -> Sequence[EventBody]:
        """End the gathering. Store the waiting pieces, or return their events."""
        async with self._lock:
            if self._gathering is not None:
                self._gathering.cancel()
        if store and self._waiting:
            await self.write()
        return [self._chunk(delta) for delta in self._waiting]

    def _note_error(self, writing: asyncio.Task[None]) -> None:
        """Keep the error of a write for the next caller: a cancelled run does not wait for the write."""
        if not writing.cancelled() and isinstance(error := writing.exception(), Exception):
            self._error = error

    async def _gather(self) -> None:
        try:
            await asyncio.sleep(self._delay)
            while self._waiting:
                await self._write(None, None, None)
                await asyncio.sleep(self._delay)
        except Exception as error:  # raised to the next caller
            self._error = error
        finally:
            self._gathering = None

    async def _write(self, event: EventBody | None, status: Status | None, checkpoint: Checkpoint | None) -> None:
        async with self._lock:
            self._writing = len(self._waiting)
            events = [self._chunk(delta) for delta in self._waiting]
            try:
                await self._store(events if event is None else [*events, event], status, checkpoint)
                del self._waiting[: self._writing]
            finally:
                self._writing = 0


# --- writes that failed because the store was unavailable, kept for retry ---------------------------------------------
# Releases of tasks, failures, charges.
#
# Leases of such tasks are still renewed: no other worker takes over a task that only waits for a write.

logger = logging.getLogger('pydantic_ai_a2a')

Attempt: TypeAlias = Callable[[], Awaitable[object]]
"""Writes to the store. May be called again."""


class PendingWrites:
    """Pending writes of one worker, in their order."""

    def __init__(self) -> None:
        self._pending_writes: list[tuple[str, Attempt]] = []
        self._writing: list[str] = []
        """Tasks with a write in progress, which may take long."""
        self._settling = asyncio.Lock()

    def add(self, task_id: str, attempt: Attempt) -> None:
        """Keep a write of a task for later."""
        self._pending_writes.append((task_id, attempt))

    async def give(self, task_id: str, attempt: Attempt) -> None:
        """Write now. After any exception, keep the write for later."""
        try:
            await attempt()
        except BaseException:  # including a cancellation during the write
            self.add(task_id, attempt)
            raise

    async def settle(self) -> None:
        """Try all pending writes. Failed writes are kept. Concurrent calls run one after the other.

        Raises:
            StoreUnavailable: The store is unavailable. The remaining writes were not tried, to save time.
        """
        async with self._settling:
            for _ in range(len(self._pending_writes)):
                task_id, attempt = self._pending_writes[0]
                self._writing.append(task_id)
                del self._pending_writes[0]
                try:
                    await self.give(task_id, attempt)
                except StoreUnavailable:
                    raise
                except Exception:  # the others may succeed
                    logger.exception(
                        'A pending write of task %s could not be stored; the task runs again once its lease expires.',
                        task_id,
                    )
                finally:
                    self._writing.remove(task_id)

    async def settle_at_last(self, seconds: float) -> None:
        """Try all pending writes a last time, for at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self.settle()
        except (StoreUnavailable, TimeoutError):
            logger.warning(
                'The ends of tasks could not be stored; these tasks run again once their leases expire: %s',
                ', '.join(self.tasks()),
            )

    def tasks(self) -> list[str]:
        """Return the tasks of the pending writes, from any thread. A task may occur twice."""
        return [*(task_id for task_id, _ in self._pending_writes.copy()), *self._writing.copy()]


# --- retries of a run's reads and writes while the store is unavailable, instead of a new run -------------------------
# After a long outage, workers leave the tasks of other workers alone until those had time to renew their leases.

T = TypeVar('T')


class StoreCall(Protocol):
    """Calls the store for one task."""

    async def __call__(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the call.

        Raises:
            LeaseLost: The task is no longer held.
            StoreUnavailable: The worker ends before the store is available.
            StoreFailed: The store failed in another way, or the transaction took too long several times.
        """
        ...


_PAUSE = 0.05
"""Seconds before the second attempt; the pause doubles with each attempt."""
_LONGEST = 1.0
_BUSY = 5
"""Attempts of a transaction that takes too long although the store works."""
_FRESH = 1 / 30
"""Part of a lease for which an answer proves that the store is available."""
_SHORTEST = 0.5
"""Seconds without an answer that are no outage, however short the lease is."""


class Outages:
    """Delays claims after an outage, while other workers renew leases that expired during the outage.

    Args:
        lease: Seconds of a lease. The store is asked at least three times in this time.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._answered: float | None = None
        self._until = 0.0

    async def pause(self, ask: Callable[[], Awaitable[object]]) -> float:
        """Ask the store, and return the seconds until the worker may claim tasks.

        If a lease can have expired during an outage, all holders get a third of a lease to renew.

        Args:
            ask: Begins a write transaction without changes.
        """
        time = asyncio.get_running_loop().time
        if self._answered is None or time() - self._answered > self._lease * _FRESH:
            await ask()
            last, self._answered = self._answered, time()
            if last is not None and self._answered - last > max(self._lease * 2 / 3, _SHORTEST):
                self._until = self._answered + self._lease / 3
        return max(0.0, self._until - time())


class Retries:
    """Repeats calls to the store for the tasks of one worker, until a call succeeds or the worker ends.

    A retry may last longer than the lease. A write under a lost lease is refused with `LeaseLost` and does no harm.
    While no process can write, the lease is still valid when the store is back.
    """

    def __init__(self) -> None:
        self._ending = asyncio.Event()
        self.waiting: set[str] = set()
        """Tasks with a call that waits for the store."""

    @classmethod
    def once(cls) -> Retries:
        """Return retries that try each call once."""
        once = cls()
        once.end()
        return once

    def end(self) -> None:
        """Repeat no further call."""
        self._ending.set()

    def of(self, task_id: str) -> StoreCall:
        """Return the function that calls the store for one task."""
        return partial(self._call, task_id)

    async def _call(self, task_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        pause, busy = _PAUSE, 0
        try:
            while True:
                try:
                    return await attempt()
                except LeaseLost:
                    raise
                except StoreUnavailable as error:
                    busy += error.busy
                    if busy >= _BUSY:
                        raise StoreFailed from error
                    if self._ending.is_set():
                        raise
                    self._is_waiting(task_id, error)
                except Exception as error:
                    raise StoreFailed from error
                seconds = pause * random.uniform(0.5, 1)  # nosec B311 - keeps runs apart, and nothing secret
                pause = min(2 * pause, _LONGEST)
                await self._wait(seconds)
        finally:
            if self.waiting:
                self.waiting.discard(task_id)

    def _is_waiting(self, task_id: str, error: StoreUnavailable) -> None:
        if task_id not in self.waiting:
            logger.warning(
                'The store is unavailable; task %s continues once the store is available again: %s',
                task_id,
                error.detail,
            )
        self.waiting.add(task_id)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):  # in Python 3.11, wait_for may swallow a cancellation
                await self._ending.wait()
        except TimeoutError:
            pass


# --- a run of an agent in spans and metrics ---------------------------------------------------------------------------

_NO_SPAN: AbstractContextManager[object] = nullcontext()


def observed_run(claim: Claim, recorder: Recorder) -> AbstractContextManager[object]:
    """Observe the block as the run of a claim: with a span and with metrics, as far as an SDK is configured."""
    header, instruments = claim.header, metrics.instruments
    span = run_span(header.id, header.context_id, claim.traceparent) if recording() else _NO_SPAN
    return span if instruments is None else _measured(span, claim, recorder, instruments)


@contextmanager
def _measured(
    span: AbstractContextManager[object], claim: Claim, recorder: Recorder, instruments: Instruments
) -> Generator[None]:
    first = claim.run == 1 and claim.attempt == 1 and claim.tried is None
    instruments.begin_run(time() - stored.time_of(claim.header.id) if first else None)
    start, before = perf_counter(), _tokens(claim.used)
    error: BaseException | None = None
    try:
        with span:
            yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        used = zip(_tokens(recorder.usage), before, strict=True)
        instruments.end_run(perf_counter() - start, error, [now - then for now, then in used])


def _tokens(usage: RunUsage | None) -> tuple[int, int]:
    """Return the tokens of the input and of the output."""
    return (0, 0) if usage is None else (count_of(usage.input_tokens), count_of(usage.output_tokens))
