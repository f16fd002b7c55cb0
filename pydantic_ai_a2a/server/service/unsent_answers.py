"""Memory of long answers on the way to clients, and the cut of slow readers above `Limits.unsent`.

All apps of a process share its memory, and count unsent bytes in `UNSENT`. An answer is

1. *counted* (`Readers.answer`) with its size before it is written. Without room it is refused, unless a cut of slow
   readers makes enough room. Only a client that has stalled, or that reads too slowly to end in time, can be cut. If
   the cut of all of them does not make enough room, none is cut.
2. *written* (`write`) as pieces, and *sent* (`send`) in chunks. Each piece is released once it is sent, and `left` says
   how many bytes still count.
3. *over* at the end of its block: sent, broken off by the client, by the time limit, or by a cut.

A cut may come from another thread: it asks the event loop of the answer to cancel its task. Until that task has ended,
the answer keeps its memory, and counts as `ending`. A new answer that does not fit beside the answers that are ending
is refused, and nobody else is cut for it. The task may end by itself before the cancel comes (`_over`), and a second
cancel, such as of a shutdown, is not swallowed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from math import inf
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Any, TypeAlias

from ...errors import ClientGone, OverloadedError
from ...wire.protocol.joined_bytes import joined
from .client_time_limits import SlowClients

Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
"""Sends an ASGI message."""

CHUNK = 65_536
"""Bytes of one send: servers wait for clients that do not read between two sends, and never during a send."""

STALL = 1.0
"""Seconds without progress after which a client is a slow reader."""
_CHUNKS_AT_ONCE = 8
"""Chunks to send before other requests are served, even to a fast client."""
_PIECES_AT_ONCE = 500_000
"""Bytes to write before other requests are served."""


class AnswerUnread(ClientGone):
    """The client takes too long to read its answer, which is broken off. The text is for the log."""


class Unsent:
    """Counter of unsent bytes in long answers, for any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._answers: set[UnsentAnswer] = set()
        self._ending: set[UnsentAnswer] = set()
        """Cut answers. Each keeps its memory until its event loop has ended the request."""

    @property
    def bytes(self) -> int:
        """Unsent bytes, without cut answers."""
        with self._lock:
            return _bytes_of(self._answers)

    @property
    def ending(self) -> int:
        """Unsent bytes of cut answers."""
        with self._lock:
            return _bytes_of(self._ending)

    def admit(self, answer: UnsentAnswer, limit: int) -> bool:
        """Count an answer that fits beside the other answers; cut the slowest readers to make room.

        An answer above the limit fits if no other answer is unsent. No reader is cut while the answer does not fit
        beside the cut answers: a busy event loop takes a while to end these requests.
        """
        with self._lock:
            if self._ending and _bytes_of(self._ending) + answer.left > limit:
                return False
            excess = _bytes_of(self._answers) + answer.left - limit
            if self._answers and excess > 0 and not self._make_room(excess):
                return False
            self._answers.add(answer)
        return True

    def _make_room(self, excess: int) -> bool:
        """Cut readers if the cut makes enough room; else cut no reader."""
        now = monotonic()
        slow = sorted((answer for answer in self._answers if answer.is_slow(now)), key=lambda answer: answer.pace(now))
        cut: list[UnsentAnswer] = []
        while slow and excess > 0:
            cut.append(slow.pop(0))
            excess -= cut[-1].left
        if excess > 0 and len(cut) < len(self._answers):
            return False
        for answer in cut:
            self._answers.remove(answer)
            if answer.cut():
                self._ending.add(answer)
        return True

    def forget(self, answer: UnsentAnswer) -> None:
        """Count an answer no longer."""
        with self._lock:
            self._answers.discard(answer)
            self._ending.discard(answer)


def _bytes_of(answers: Iterable[UnsentAnswer]) -> int:
    return sum(answer.left for answer in answers)


UNSENT = Unsent()
"""The count of this process."""


class UnsentAnswer:
    """A long answer, or a long piece of a stream; its block ends with `AnswerUnread` if the reader is cut."""

    def __init__(self, readers: Readers, size: int, begun: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = task.get_loop()
        self._readers = readers
        self._cut = self._over = False
        self._pieces: deque[bytes] = deque()
        self._sent = 0
        self._begun = self._moved = begun
        self.left = size
        """Unsent bytes."""

    async def write(self, pieces: Iterable[bytes]) -> None:
        """Store the pieces to send; serve other requests between many pieces."""
        batch: list[bytes] = []
        size = stored = 0
        for piece in pieces:
            batch.append(piece)
            size += len(piece)
            if size - stored > _PIECES_AT_ONCE:
                self._pieces += joined(batch, b'')
                batch.clear()
                stored = size
                await asyncio.sleep(0)
        self._pieces += joined(batch, b'')
        self.left = size

    def ready(self, size: int) -> None:
        """Set the size of an answer that the client can read from now on."""
        self._begun = self._moved = monotonic()
        self.left = size

    async def send(self, send: Send, *, more: bool = False) -> None:
        """Send the pieces as the client takes them.

        Args:
            send: Sends an ASGI message.
            more: True if the body continues after the pieces.

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
            self.left -= len(chunk)
            if n % _CHUNKS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def is_slow(self, now: float) -> bool:
        """True if the client has stalled, or is too slow to read the answer in time."""
        if now - self._moved >= STALL:
            return True
        return (now - self._begun) * (self._sent + self.left) > self._readers.seconds * self._sent > 0

    def pace(self, now: float) -> float:
        """Bytes per second to the client."""
        return self._sent / max(now - self._begun, 0.001)

    def cut(self) -> bool:
        """Break the answer off; may be called in any thread. Return False if a closed loop has ended the request."""
        self._cut = True
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            return False
        return True

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
        # The cut cancels the task of the answer. A second cancel, such as that of a shutdown, is not swallowed: then
        # `uncancel` returns more than 0.
        if self._cut and isinstance(error, asyncio.CancelledError) and not self._task.uncancel():
            raise AnswerUnread('A slow client was disconnected to free memory for other answers') from None


def _chunks(pieces: deque[bytes]) -> Iterator[bytes]:
    """Yield the pieces as chunks of at most `CHUNK` bytes; release each piece with the last chunk of the piece."""
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


class Readers:
    """The clients of an app that read long answers.

    Args:
        seconds: Time limit for reading an answer; a client may get up to twice the time.
        limit: Limit of unsent bytes in the process.
        unsent: Counter of the unsent bytes.
    """

    def __init__(self, seconds: float, limit: int, unsent: Unsent = UNSENT) -> None:
        self.seconds = seconds
        self.slow = SlowClients(seconds, lambda: AnswerUnread('A client did not read its answer in time'))
        self.unsent = unsent
        self._limit = limit

    def answer(self, size: int, *, ready: bool = True) -> UnsentAnswer:
        """Begin an answer of about `size` bytes. Nobody is slow to read an answer that is not `ready`.

        Raises:
            OverloadedError: The answer does not fit beside the unsent answers.
        """
        answer = UnsentAnswer(self, size, monotonic() if ready else inf)
        if not self.unsent.admit(answer, self._limit):
            text = 'The server holds too many unread bytes of answers; try again later.'
            raise OverloadedError(text, headers={'Retry-After': '1'})
        return answer
