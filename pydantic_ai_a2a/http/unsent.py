"""Long answers on their way to clients: what they hold in memory, and which of them end when that is too much.

An answer is sent in pieces, as they are stored, and each piece is released once it is sent. All apps of a process count
the bytes that are not yet sent in `UNSENT`, because they share the process's memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from threading import Lock
from time import monotonic
from types import TracebackType

from starlette.types import Send

from ..errors import OverloadedError
from .base import CHUNK, AnswerUnread
from .slow_clients import SlowClients

__all__ = ('UNSENT', 'Held', 'Readers', 'Unsent', 'UnsentAnswer')

_STALL = 1.0
"""Seconds after which a client that has taken nothing of its answer is a slow reader."""
_CHUNKS_AT_ONCE = 8
"""Chunks that are sent before others are served, however fast the client reads."""
_PIECES_AT_ONCE = 500_000
"""Bytes that are written before others are served."""


class Unsent:
    """Counts the bytes of long answers that clients have not taken. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._answers: set[UnsentAnswer] = set()
        self.bytes = 0

    def admit(self, answer: UnsentAnswer, limit: int) -> bool:
        """Count an answer if it fits beside the others. To make room, the slowest of the slow readers are cut.

        An answer that is longer than the limit fits if there are no others.
        """
        with self._lock:
            if self._answers and self.bytes + answer.left > limit and not self._make_room(answer.left, limit):
                return False
            self._answers.add(answer)
            self.bytes += answer.left
        return True

    def _make_room(self, size: int, limit: int) -> bool:
        """Cut readers if that makes enough room; else none of them."""
        now, excess = monotonic(), self.bytes + size - limit
        slow = sorted((answer for answer in self._answers if answer.is_slow(now)), key=lambda answer: answer.pace(now))
        cut: list[UnsentAnswer] = []
        while slow and excess > 0:
            cut.append(slow.pop(0))
            excess -= cut[-1].left
        if excess > 0 and len(cut) < len(self._answers):
            return False
        for answer in cut:
            self._forget(answer)
            answer.cut()
        return True

    def change(self, answer: UnsentAnswer, size: int) -> None:
        """Count an answer with another size."""
        with self._lock:
            if answer in self._answers:
                self.bytes += size - answer.left
            answer.left = size

    def forget(self, answer: UnsentAnswer) -> None:
        """Count an answer no longer."""
        with self._lock:
            if answer in self._answers:
                self._forget(answer)

    def _forget(self, answer: UnsentAnswer) -> None:
        self._answers.remove(answer)
        self.bytes -= answer.left


UNSENT = Unsent()
"""The count of this process."""


class UnsentAnswer:
    """A long answer, or a long piece of a stream; its block ends with `AnswerUnread` if the reader is cut."""

    def __init__(self, readers: Readers, size: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = task.get_loop()
        self._readers = readers
        self._cut = self._over = False
        self._pieces: deque[bytes] = deque()
        self._sent = 0
        self._begun = self._moved = monotonic()
        self.left = size
        """Bytes that are not yet sent."""

    async def write(self, pieces: Iterable[bytes]) -> None:
        """Write the pieces to send. Other requests are served in between if that takes long."""
        size, paused = 0, 0
        for piece in pieces:
            self._pieces.append(piece)
            size += len(piece)
            if size - paused > _PIECES_AT_ONCE:
                paused = size
                await asyncio.sleep(0)
        self._readers.unsent.change(self, size)

    async def send(self, send: Send, *, more: bool = False) -> None:
        """Send the pieces as the client takes them.

        Args:
            send: Sends an ASGI message.
            more: Whether something follows in the same body.

        Raises:
            AnswerUnread: The client takes too long.
        """
        await self._readers.slow.wait(self._send(send))
        if not more:
            await send({'type': 'http.response.body', 'body': b''})

    async def _send(self, send: Send) -> None:
        for n, chunk in enumerate(_chunks(self._pieces), 1):
            await send({'type': 'http.response.body', 'body': chunk, 'more_body': True})
            self._sent += len(chunk)
            self._moved = monotonic()
            self._readers.unsent.change(self, self.left - len(chunk))
            if n % _CHUNKS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def resize(self, size: int) -> None:
        """Have another size; the answer must not be counted meanwhile."""
        self.left = size
        self._moved = monotonic()

    def is_slow(self, now: float) -> bool:
        """True if the client has stalled, or takes so little that it will not read the answer in time."""
        if now - self._moved >= _STALL:
            return True
        return (now - self._begun) * (self._sent + self.left) > self._readers.seconds * self._sent > 0

    def pace(self, now: float) -> float:
        """Bytes that the client has taken in a second."""
        return self._sent / max(now - self._begun, 0.001)

    def cut(self) -> None:
        """Break the answer off; may be called in any thread."""
        self._cut = True
        with suppress(RuntimeError):  # its loop is closed, and has ended the request
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if not self._over:
            self._task.cancel()

    def __enter__(self) -> UnsentAnswer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over = True
        self._pieces.clear()
        self._readers.unsent.forget(self)
        if self._cut and isinstance(error, asyncio.CancelledError) and not self._task.uncancel():
            raise AnswerUnread('A slow reader was cut to make room for other answers') from None


def _chunks(pieces: deque[bytes]) -> Iterator[bytes]:
    """Take the pieces as chunks of `CHUNK` bytes, the last one shorter; each piece is released with its last chunk."""
    parts: list[memoryview] = []
    room = CHUNK
    while pieces:
        piece = memoryview(pieces.popleft())
        while piece:
            parts.append(piece[:room])
            piece = piece[room:]
            room -= len(parts[-1])
            if not room:
                chunk = b''.join(parts)
                parts.clear()
                yield chunk
                room = CHUNK
    if parts:
        yield b''.join(parts)


class Held:
    """Bytes that a stream holds for its later events, counted like a long answer while its block runs.

    The block ends with `AnswerUnread` if the stream is cut to make room for others.
    """

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._answer: UnsentAnswer | None = None
        self._is_counted = False
        self._size = 0

    def __call__(self, size: int) -> None:
        """Hold so many bytes from now on.

        Raises:
            OverloadedError: There is no room for them.
        """
        self._size = size
        if self._answer is not None:
            self._readers.resize(self._answer, size)
        elif self._is_counted and size > CHUNK:
            self._answer = self._readers.answer(size)

    def __enter__(self) -> None:
        self._is_counted = True
        self(self._size)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._answer is not None:
            self._answer.__exit__(kind, error, traceback)


class Readers:
    """The clients of an app that read long answers.

    Args:
        seconds: Seconds that a client may take to read an answer, and at most twice as long.
        limit: Bytes of long answers that may be unsent in the process.
        unsent: Counts them.
    """

    def __init__(self, seconds: float, limit: int, unsent: Unsent = UNSENT) -> None:
        self.seconds = seconds
        self.slow = SlowClients(seconds, lambda: AnswerUnread('An answer was not read in time'))
        self.unsent = unsent
        self._limit = limit

    def answer(self, size: int) -> UnsentAnswer:
        """Begin an answer of about so many bytes.

        Raises:
            OverloadedError: There is no room for it beside the answers that clients have not read.
        """
        answer = UnsentAnswer(self, size)
        self._admit(answer)
        return answer

    def resize(self, answer: UnsentAnswer, size: int) -> None:
        """Count an answer with another size, as one whose client has just read.

        Raises:
            OverloadedError: There is no room for it; it is not counted any more.
        """
        self.unsent.forget(answer)
        answer.resize(size)
        self._admit(answer)

    def _admit(self, answer: UnsentAnswer) -> None:
        if not self.unsent.admit(answer, self._limit):
            text = 'Too many long answers have not been read yet; try again later.'
            raise OverloadedError(text, headers={'Retry-After': '1'})
