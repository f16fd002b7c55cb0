"""Splits the bytes of an answer into server-sent events (HTML, §9.2.6)."""

from __future__ import annotations


class EventTooLong(ValueError):
    """An event is longer than the limit."""


class EventReader:
    """Reads the events in the pieces of an answer. An event that the answer does not end is left out.

    Args:
        limit: Most bytes of an event.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data: list[bytes] = []
        """Lines of data of the event that has not ended."""
        self._data_size = 0
        self._event_id = b''
        self._line: list[bytes] = []
        """Pieces of the line that has not ended."""
        self._line_size = 0
        self._after_return = False

    def read(self, piece: bytes) -> list[tuple[bytes, bytes]]:
        """Return the events that the piece ends: data, and the id of this or of the last event that had one.

        Raises:
            EventTooLong: An event is longer than the limit, also before its end.
        """
        events: list[tuple[bytes, bytes]] = []
        for line in self._lines(piece):
            if not line:
                if self._data:
                    events.append((b'\n'.join(self._data), self._event_id))
                    self._data, self._data_size = [], 0
            elif line.startswith(b'data:'):
                self._data.append(line[6:] if line.startswith(b' ', 5) else line[5:])
                self._data_size += len(line)
                if self._data_size > self._limit:
                    raise EventTooLong
            elif line.startswith(b'id:'):
                self._event_id = line[3:].removeprefix(b' ')
        return events

    def _lines(self, piece: bytes) -> list[bytes]:
        """Return the lines that the piece ends. Lines end with CR, LF, or both."""
        if piece and self._after_return:
            piece, self._after_return = piece.removeprefix(b'\n'), False
        if b'\r' in piece:
            self._after_return = piece.endswith(b'\r')
            piece = piece.replace(b'\r\n', b'\n').replace(b'\r', b'\n')
        lines = piece.split(b'\n')
        rest = lines.pop()
        if lines and self._line:
            lines[0] = b''.join((*self._line, lines[0]))
            self._line, self._line_size = [], 0
        if rest:
            self._line.append(rest)
            self._line_size += len(rest)
            if self._line_size > self._limit:
                raise EventTooLong
        return lines
