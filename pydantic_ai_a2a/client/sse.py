"""Splits the bytes of an answer into server-sent events (HTML, §9.2.6)."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import NamedTuple

__all__ = ('EventTooLong', 'ServerEvent', 'events')


class EventTooLong(ValueError):
    """An event is longer than the limit."""


class ServerEvent(NamedTuple):
    """One event with data."""

    data: bytes
    id: bytes
    """Id of this event, or of the last event that had one; empty if no event had one."""


async def events(pieces: AsyncIterable[bytes], limit: int) -> AsyncIterator[ServerEvent]:
    """Yield the events in the pieces of an answer. An event that the answer does not end is left out.

    Args:
        pieces: The pieces of the answer.
        limit: Most bytes of an event.

    Raises:
        EventTooLong: An event is longer.
    """
    data: list[bytes] = []
    event_id = b''
    size = 0
    lines = _Lines(limit)
    async for piece in pieces:
        for line in lines.ended_by(piece):
            if not line:
                if data:
                    yield ServerEvent(b'\n'.join(data), event_id)
                    data, size = [], 0
            elif line.startswith(b'data:'):
                data.append(line[6:] if line.startswith(b' ', 5) else line[5:])
                size += len(line)
                if size > limit:
                    raise EventTooLong
            elif line.startswith(b'id:'):
                event_id = line[3:].removeprefix(b' ')


class _Lines:
    """Splits pieces into lines, which end with CR, LF, or both."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun: list[bytes] = []
        self._size = 0
        self._after_return = False

    def ended_by(self, piece: bytes) -> list[bytes]:
        """Return the lines that the piece ends.

        Raises:
            EventTooLong: A line that has not ended is longer than the limit.
        """
        if self._after_return or b'\r' in piece:
            piece = b'\r' * self._after_return + piece
            self._after_return = piece.endswith(b'\r')
            piece = piece.removesuffix(b'\r').replace(b'\r\n', b'\n').replace(b'\r', b'\n')
        *lines, rest = piece.split(b'\n')
        if lines and self._begun:
            lines[0] = b''.join((*self._begun, lines[0]))
            self._begun, self._size = [], 0
        if rest:
            self._begun.append(rest)
            self._size += len(rest)
            if self._size > self._limit:
                raise EventTooLong
        return lines
