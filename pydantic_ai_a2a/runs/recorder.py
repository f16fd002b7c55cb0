"""The recorder: the only writer of a running task. Converts the run's events to their stored form.

One recorder belongs to one claim. The recorder numbers the events, as the only writer while the claim is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from ..conversion.stream import Failure
from ..protocol import fields, stored
from ..settings import Results
from ..store.ports import Charge, Checkpoint, Claim, Finish, Status
from ..telemetry import metrics
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
    dump_json,
)
from .flush import EventBody, Flush
from .retries import Retries

__all__ = ('Charges', 'Recorder', 'Sink')

Charges: TypeAlias = Callable[[str, Any], Sequence[Charge]]
"""Returns the charges of an owner for a run's usage, a `RunUsage`."""


class Sink(Protocol):
    """Destination of a recorder's writes; a `TaskQueue` is a sink."""

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Write events, a status or a checkpoint of a running task."""

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        """Write the end."""


class Recorder:
    """Records one run of a task.

    Args:
        claim: The claim of the task.
        queue: Stores the writes.
        now: Returns the time (ms).
        flush_delay: Seconds for which pieces of text are gathered into one write; 0 writes each at once.
        charges: Converts the run's usage to charges; None for none.
        retries: Repeats a write while the store is unavailable; None tries each write once.
        results: Seconds and characters of a gathered piece of text, and the end of its stream.
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
        self._marks_end = results.stream == 'mark'
        self._flush_delay = flush_delay
        self._results = results
        self._flush = self._new_flush() if flush_delay else None
        """In memory, where writes take no time, made for the first piece of a text."""
        self._charges = charges
        self.store = (retries or Retries.once()).of(header.id)
        """Calls the store for this run, again while the store is unavailable."""
        self.unstored: Finish | None = None
        """The end of the run until the store accepts the write."""
        self.tells = claim.request is not None and fields.is_asked(claim.request)
        """True if the task's metadata reports the usage of the run."""
        self.usage: Any = None if claim.checkpoint is None else claim.checkpoint.usage
        """Usage of the run over all attempts, a `RunUsage` that grows during the run."""
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

    def _new_flush(self) -> Flush | None:
        delay = max(self._flush_delay, self._results.interval)
        return Flush(self._store, self._chunk, delay, self._results) if delay else None

    def _note(self, note: Note) -> tuple[EventBody, Status]:
        status = Status('working', self._now(), self._message(stored.text_parts(note.text)))
        return self._status_event(status), status

    async def complete(
        self,
        artifacts: Sequence[Artifact],
        *,
        answer: str | None,
        streamed: str | None,
        messages: Sequence[Any],
        usage: Any,
    ) -> Claim | None:
        """End the run with its results. Return the claim of the task's next message, if any.

        Args:
            artifacts: The answer.
            answer: Text of the answer, if the answer is plain text: added to the history as a message of the agent.
            streamed: Streamed text of the answer, if any; needed if the end of the text is marked.
            messages: The run's new model messages.
            usage: Usage of the run.
        """
        bodies = [(artifact['artifact_id'], stored.dump_artifact(artifact)) for artifact in artifacts]
        closing = self._closing(artifacts, bodies, streamed)
        history: list[tuple[str, bytes]] = []
        if answer is not None:
            message_id = f'{self._claim.header.id}.{self._claim.turn}.answer'
            history = [(message_id, self._message(stored.text_parts(answer), message_id))]
        status = Status('completed', self._now(), None)
        return await self._finish(
            status,
            events=closing,
            history=history,
            artifacts=[*self.tool_artifacts.items(), *bodies],
            messages=messages,
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
        events: list[EventBody] = []
        if self._marks_end and streamed is not None and artifacts and _is_text(artifacts[0], streamed):
            bodies = bodies[1:]
            events.append(self._chunk(TextDelta('', first=False), last=True))
        header = self._claim.header
        events += [(None, stored.artifact_update(header.id, header.context_id, body)) for _, body in bodies]
        return events

    def _chunk(self, delta: TextDelta, *, last: bool = False) -> EventBody:
        if self._text is None:
            header = self._claim.header
            self._text = stored.TextArtifact(header.id, header.context_id, self.artifact_id, 'result')
        return None, self._text.chunk(delta.text, first=delta.first, last=last)

    def _metadata(self, *, usage: Any = None, messages: Sequence[Any] = (), **_: object) -> bytes:
        claim = self._claim
        run_id = f'{claim.header.id}.{claim.run}' if claim.checkpoint is None else claim.checkpoint.run
        used = self.usage if usage is None else usage
        return fields.task_metadata(claim.header.metadata, run_id=run_id, usage=used, messages=messages)

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
