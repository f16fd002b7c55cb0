"""The recorder: the only writer of a running task. From the events of a run to their stored form.

One recorder belongs to one claim. Each event and each end of the run takes the same way:

1. **Gather.** Pieces of text wait a moment for more pieces (`Flush`). Every other write takes the waiting pieces along,
   so the order stays.
2. **Make the event**, as JSON in the form of A2A 1.0. It has no number yet.
3. **Write, or owe the write.** `_store` and `_finish` number the events, and give them to the queue with the claim.
   While the store is unavailable, the call is repeated, and the run waits (`store_outages`). The end of a run whose
   worker ends before that is owed: `unstored` keeps it, and the worker tries `store_end` again.
4. **Say that it is stored**: only then the numbers are used up, and the `RunState` counts a step or an artifact. The
   queue publishes the events to the readers with the commit.

While the claim is valid, nobody else writes events of the task, so the recorder can number them. Once another worker
has the task, or a cancel has ended it, each write raises `LeaseLost` and stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ...json_values import dump_json
from ...settings.results import Results
from ...task_states import INTERRUPTED
from ...telemetry.metrics import metrics
from ...types.a2a_objects import Artifact, Message, Part, TaskState
from ...types.run_events import Note, PartialArtifact, Step, TextDelta, ToolArtifact
from ...types.stored_events import TaskEvent
from ...wire.extensions import run_metadata
from ...wire.protocol import new_ids, stored, stored_values, text_artifact
from ..conversion.failures import Failure
from ..service.slot_offers import Offer, Offers
from ..store.ports import Charge, Checkpoint, Claim, Finish, HookCall, Status
from ..store.ports.run_writes import Sink
from .pause_hook import PauseHook
from .run_state import RunState
from .store_outages import StoreRetries
from .text_flush import EventBody, Flush

Charges: TypeAlias = Callable[[str, Any], Sequence[Charge]]
"""Returns the charges of an owner for a run's usage, a `RunUsage`."""


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
        pause_hook: Calls the hook for the pause of the run; None without the hook.
        offers: Offers the slot of the run, once the run is complete, for the next queued task.
    """

    def __init__(
        self,
        claim: Claim,
        queue: Sink,
        now: Callable[[], int],
        *,
        flush_delay: float = 0.0,
        charges: Charges | None = None,
        retries: StoreRetries | None = None,
        results: Results = Results(interval=0),
        pause_hook: PauseHook | None = None,
        offers: Offers = lambda: None,
    ) -> None:
        header = claim.header
        self.state = RunState(claim)
        """The state of the run, shared with its job and its worker."""
        self.artifact_id = f'{header.id}.{claim.turn}.result'
        """Id of the artifact with the turn's answer, while streaming and after."""
        self._claim = claim
        self._queue = queue
        self._now = now
        self._n = header.last_event
        self._text: text_artifact.TextArtifact | None = None
        self._flush_delay = flush_delay
        self._results = results
        self._pause_hook = pause_hook
        self._offers = offers
        self._offer: Offer | None = None
        self._flush = self._new_flush() if flush_delay else None
        """In memory, where writes take no time, made for the first piece of a text."""
        self._charges = charges
        self.store = (retries or StoreRetries.once()).of(header.id)
        """Calls the store for this run, again while the store is unavailable."""
        self.unstored: Finish | None = None
        """The end of the run, from its first write until the store has it; None before and after."""
        self.tells = claim.request is not None and run_metadata.asks_run_metadata(claim.request)
        """True if the task's metadata reports the usage of the run."""
        self._partial = b''
        """The last partial artifact, as JSON."""

    async def write(self, event: TextDelta | Note | Step | PartialArtifact | ToolArtifact) -> None:
        """Store and publish an event of the running agent.

        Raises:
            LeaseLost: The task is no longer ours.
        """
        header = self._claim.header
        match event:
            case TextDelta():
                self._flush = self._flush or self._new_flush()
                await (self._store([self._chunk(event)]) if self._flush is None else self._flush.add(event))
            case Step():
                message = self._message(stored_values.dump_parts([event.part]), metadata=event.metadata)
                await self._emit(self._status_event(Status('working', self._now(), message)))
            case PartialArtifact():
                body = stored_values.dump_artifact(event.artifact)
                if body != self._partial:
                    self._partial = body
                    await self._emit((None, stored.artifact_update(header.id, header.context_id, body, last=False)))
            case ToolArtifact():
                body = stored_values.dump_artifact(event.artifact)
                await self._emit((None, stored.artifact_update(header.id, header.context_id, body)))
                self.state.tool_artifacts[event.artifact['artifact_id']] = body
            case _:
                await self._emit(*self._note(event))

    async def save(self, checkpoint: Checkpoint, note: Note | None) -> None:
        """Store a checkpoint, together with the agent's note about the step, after all earlier events.

        Raises:
            LeaseLost: The task is no longer ours.
        """
        event, status = (None, None) if note is None else self._note(note)
        if self.state.taken:
            checkpoint = replace(checkpoint, taken=self.state.taken)
        await self._emit(event, status, checkpoint)
        self.state.has_stored_steps = True

    async def drop_text(self) -> None:
        """Drop the text that is not stored yet."""
        if self._flush is not None:
            await self._flush.rest(store=False)

    def _new_flush(self) -> Flush | None:
        delay = max(self._flush_delay, self._results.interval)
        return Flush(self._store, self._chunk, delay, self._results) if delay else None

    # --- the end of the run -------------------------------------------------------------------------------------------

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
        bodies = [(artifact['artifact_id'], stored_values.dump_artifact(artifact)) for artifact in artifacts]
        closing = self._closing(artifacts, bodies, streamed)
        history: list[tuple[str, bytes]] = []
        if answer is not None:
            message_id = f'{self._claim.header.id}.{self._claim.turn}.answer'
            history = [(message_id, self._message(stored.text_parts(answer, self.state.text_type), message_id))]
        status = Status('completed', self._now(), None)
        self._offer = self._offers()
        return await self._finish(
            status,
            slot=None if self._offer is None else self._offer.slot,
            events=closing,
            history=history,
            artifacts=[*self.state.tool_artifacts.items(), *bodies],
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
        status = Status(state, self._now(), self._message(stored_values.dump_parts(parts)))
        artifacts = [*self.state.tool_artifacts.items()] or None
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

    # --- the events ---------------------------------------------------------------------------------------------------

    def _chunk(self, delta: TextDelta) -> EventBody:
        if self._text is None:
            header = self._claim.header
            self._text = text_artifact.TextArtifact(
                header.id, header.context_id, self.artifact_id, 'result', self.state.text_type
            )
        return None, self._text.piece(delta.text, first=delta.first)

    def _note(self, note: Note) -> tuple[EventBody, Status]:
        status = Status(
            'working',
            self._now(),
            self._message(stored.text_parts(note.text, self.state.text_type if note.of_model else stored.PLAIN)),
        )
        if note.of_model and not self._results.progress.notes:
            header = self._claim.header
            body = stored.status(status.state, status.at, status.message)
            return (status.state, stored.note(header.id, header.context_id, body)), status
        return self._status_event(status), status

    def _status_event(self, status: Status, metadata: bytes | None = None) -> EventBody:
        header = self._claim.header
        body = stored.status(status.state, status.at, status.message)
        return status.state, stored.status_update(header.id, header.context_id, body, metadata)

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

    def _message(self, parts: bytes, message_id: str | None = None, metadata: dict[str, Any] | None = None) -> bytes:
        rest = b'' if metadata is None else b',"metadata":' + dump_json(metadata)
        ids = stored.ids(self._claim.header.id, self._claim.header.context_id)
        return stored.message(message_id or new_ids.new_id(), b'ROLE_AGENT', parts, rest + b',' + ids)

    def _of_task(self, message: Message) -> bytes:
        header = self._claim.header
        return stored_values.dump_message({**message, 'task_id': header.id, 'context_id': header.context_id})

    def _metadata(self, *, usage: Any = None, messages: Sequence[Any] = (), **_: object) -> bytes:
        claim = self._claim
        run_id = f'{claim.header.id}.{claim.run}' if claim.checkpoint is None else claim.checkpoint.run
        used = self.state.usage if usage is None else usage
        return run_metadata.task_metadata(claim.header.metadata, run_id=run_id, usage=used, messages=messages)

    # --- the writes ---------------------------------------------------------------------------------------------------

    async def _emit(
        self, event: EventBody | None, status: Status | None = None, checkpoint: Checkpoint | None = None
    ) -> None:
        """Write an event, a checkpoint or both, after the waiting pieces of text."""
        if self._flush is not None:
            await self._flush.write(event, status, checkpoint)
        else:
            await self._store([] if event is None else [event], status, checkpoint)

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
        if self._charges is not None and self.state.usage is not None:
            rest['charges'] = self._charges(self._claim.header.owner, self.state.usage)
        if self._pause_hook is not None and status.state in INTERRUPTED:
            rest['hook_lease'] = self._pause_hook.lease
        self.unstored = Finish(status=status, events=before, final=final, taken=self.state.taken, **rest)
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
        if self._offer is not None and following is not None and following.header.id != self._claim.header.id:
            self._offer.settle(following)
            following = None
        # With a next message, the task goes on in the state `working`. A run without a task has no fence.
        if metrics.instruments is not None and following is None and self._claim.fence:
            metrics.instruments.enter(self.unstored.status.state, self.unstored.failure)
        if self._pause_hook is not None and self.unstored.status.state in INTERRUPTED:
            self._pause_hook.begin(HookCall(self._claim.header.id, self._claim.run))
        return following


def _is_text(artifact: Artifact, text: str) -> bool:
    parts = artifact['parts']
    return len(parts) == 1 and parts[0].get('text') == text
