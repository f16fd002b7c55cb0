"""The only writer of a running task's state: what happened -> stored form -> queue. Knows neither agent nor binding.

One recorder belongs to one claim. It numbers the events, since nobody else writes while the claim is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pydantic_core import to_json

from .ports import Claim, Finish, Status, TaskQueue
from .protocol import stored
from .types import Artifact, Note, Part, TaskEvent, TaskState, TextDelta

__all__ = ('Recorder',)

_Event: TypeAlias = tuple[TaskState | None, bytes]
"""A `TaskEvent` without its number."""


class Recorder:
    """Records one run of a task."""

    def __init__(self, claim: Claim, queue: TaskQueue, now: Callable[[], int]) -> None:
        header = claim.header
        self.artifact_id = f'{header.id}.result'
        """Id of the artifact that holds the answer; the same while it is streamed and after."""
        self._claim = claim
        self._queue = queue
        self._now = now
        self._n = header.last_event
        self._text: stored.TextArtifact | None = None

    async def write(self, event: TextDelta | Note) -> None:
        """Store and publish what the running agent says.

        Raises:
            LeaseLost: The task is no longer ours.
        """
        if isinstance(event, TextDelta):
            await self._emit(self._chunk(event.text, first=event.first))
            return
        status = Status('working', self._now(), self._message(_text(event.text)))
        await self._emit(self._status_event(status), status)

    async def complete(
        self,
        artifacts: Sequence[Artifact],
        *,
        answer: str | None,
        streamed: str | None,
        messages: Sequence[Any],
        usage: Any,
    ) -> Claim | None:
        """End the run with its results, or go on with another message of the task.

        Args:
            artifacts: The answer.
            answer: Its text, if that is what it is: goes into the history as a message of the agent's.
            streamed: The text that was streamed as the answer, if any was.
            messages: The run's new model messages.
            usage: What the run used.
        """
        bodies = [(artifact['artifact_id'], stored.dump_artifact(artifact)) for artifact in artifacts]
        closing = self._closing(artifacts, [body for _, body in bodies], streamed)
        history: list[tuple[str, bytes]] = []
        if answer is not None:
            message_id = stored.new_id()
            history.append((message_id, self._message(_text(answer), message_id)))
        status = Status('completed', self._now(), None)
        return await self._finish(
            status, events=closing, history=history, artifacts=bodies, messages=messages, usage=usage
        )

    async def cancel(self, messages: Sequence[Any], usage: Any) -> None:
        """The run was cancelled; its context keeps what it had done."""
        await self._finish(Status('canceled', self._now(), None), messages=messages, usage=usage)

    async def fail(self, kind: str, sentence: str, correlation_id: str) -> None:
        """The run failed; its context stays as it was before."""
        metadata = {'failure': kind, 'correlationId': correlation_id}
        message = self._message(_text(sentence), metadata=metadata)
        await self._finish(Status('failed', self._now(), message), failure=kind)

    async def interrupt(self, state: TaskState, parts: Sequence[Part], messages: Sequence[Any]) -> None:
        """The task waits for its client; its model messages stay with it until it ends."""
        await self._finish(Status(state, self._now(), self._message(stored.dump_parts(parts))), messages=messages)

    async def _emit(self, event: _Event, status: Status | None = None) -> None:
        await self._queue.emit(self._claim, [TaskEvent(self._n + 1, *event)], status)
        self._n += 1  # only now: the number of an event that could not be stored goes to the next one

    async def _finish(self, status: Status, *, events: Sequence[_Event] = (), **rest: Any) -> Claim | None:
        numbered = enumerate([*events, self._status_event(status)], self._n + 1)
        *before, final = [TaskEvent(n, *event) for n, event in numbered]
        return await self._queue.finish(self._claim, Finish(status=status, events=before, final=final, **rest))

    def _closing(self, artifacts: Sequence[Artifact], bodies: Sequence[bytes], streamed: str | None) -> list[_Event]:
        """What a stream still lacks of the artifacts: at least the last chunk's mark (§4.2.2)."""
        whole = list(bodies)
        events: list[_Event] = []
        if streamed is not None and _is_text(artifacts[0], streamed):
            whole = whole[1:]
            events.append(self._chunk('', first=False, last=True))
        header = self._claim.header
        events += [(None, stored.artifact_update(header.id, header.context_id, body)) for body in whole]
        return events

    def _chunk(self, text: str, *, first: bool, last: bool = False) -> _Event:
        if self._text is None:
            header = self._claim.header
            self._text = stored.TextArtifact(header.id, header.context_id, self.artifact_id, 'result')
        return None, self._text.chunk(text, first=first, last=last)

    def _status_event(self, status: Status) -> _Event:
        header = self._claim.header
        body = stored.status(status.state, status.at, status.message)
        return status.state, stored.status_update(header.id, header.context_id, body)

    def _message(self, parts: bytes, message_id: str | None = None, metadata: dict[str, Any] | None = None) -> bytes:
        rest = b'' if metadata is None else b',"metadata":' + to_json(metadata)
        body = stored.message(message_id or stored.new_id(), b'ROLE_AGENT', parts, rest)
        return stored.with_ids(body, self._claim.header.id, self._claim.header.context_id)


def _text(text: str) -> bytes:
    """Text as the parts of a message."""
    return b'[' + stored.text_part(text) + b']'


def _is_text(artifact: Artifact, text: str) -> bool:
    parts = artifact['parts']
    return len(parts) == 1 and parts[0].get('text') == text
