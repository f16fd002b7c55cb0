"""Long texts stored once.

The text of an answer is in the artifact, in the events of the artifact, in the message of the agent and in the model
message. All but the artifact refer to the bytes of the artifact, and hold only the bytes before and behind the piece.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from ...types import TaskEvent, TaskState

LONG = 65_536
"""Bytes of an artifact to which other values refer."""
_EDGE = 4_096
"""Bytes at both ends of an artifact that other values need not share, such as the id. Shorter deltas share nothing."""
_TEXT, _END = b'"parts":[{"text":"', b'","mediaType":"text/plain"}]}'
"""JSON before and behind the text of an artifact or of a delta."""
_APPENDS = b',"append":true'


class Spliced:
    """JSON with a piece of an artifact. `bytes` returns the whole JSON, and `len` its length."""

    __slots__ = ('_pieces',)

    def __init__(self, before: bytes, piece: memoryview, after: bytes) -> None:
        self._pieces = before, piece, after

    def __bytes__(self) -> bytes:
        return b''.join(self._pieces)

    def __len__(self) -> int:
        return sum(map(len, self._pieces))


Body: TypeAlias = bytes | Spliced


class SplicedEvent(NamedTuple):
    """A `TaskEvent` whose payload has a piece of an artifact."""

    n: int
    state: TaskState | None
    payload: Spliced

    def whole(self) -> TaskEvent:
        """Return the event."""
        return TaskEvent(self.n, self.state, bytes(self.payload))


def splice(body: Body, artifact: bytes) -> Body:
    """Return JSON that refers to a long artifact, or the same value if the JSON lacks the text of the artifact."""
    piece = memoryview(artifact)[_EDGE:-_EDGE]
    if isinstance(body, Spliced) or (begin := body.find(piece)) < 0:
        return body
    return Spliced(body[:begin], piece, body[begin + len(piece) :])


def splice_event(event: TaskEvent | SplicedEvent, artifact: bytes) -> TaskEvent | SplicedEvent:
    """Return an event that refers to a long artifact, or the same event, as `splice`."""
    payload = splice(event.payload, artifact)
    return SplicedEvent(event.n, event.state, payload) if isinstance(payload, Spliced) else event


def splice_deltas(events: Iterable[TaskEvent | SplicedEvent], artifact: bytes) -> list[TaskEvent | SplicedEvent]:
    """Return events whose long pieces of a streamed text refer to the artifact of the whole text."""
    spliced: list[TaskEvent | SplicedEvent] = []
    start = place = artifact.find(_TEXT) + len(_TEXT)
    for event in events:
        spliced.append(event)
        payload = event.payload
        if event.state is not None or not isinstance(payload, bytes):
            continue
        begin, end = payload.find(_TEXT) + len(_TEXT), payload.rfind(_END)
        if not payload.startswith(_APPENDS, end + len(_END)):
            place = start  # the first piece, which replaces earlier pieces
        if artifact.startswith(payload[begin:end], place):
            piece = memoryview(artifact)[place : place + end - begin]
            place += len(piece)
            if len(piece) >= _EDGE:
                spliced[-1] = SplicedEvent(event.n, None, Spliced(payload[:begin], piece, payload[end:]))
    return spliced
