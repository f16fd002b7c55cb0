"""The client of a command, with an event loop in a thread: the main thread gets keys, prompts and Ctrl-C."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from anyio.from_thread import start_blocking_portal

T = TypeVar('T')
WAKE = 1.0
"""Seconds after which the main thread handles a Ctrl-C that came just before the wait."""
_END = 15.0
"""Seconds for the end of a function after Ctrl-C."""


class _Client(AbstractAsyncContextManager[object], Protocol):
    async def find(self, *, patient: bool) -> object:
        """Read the card of the agent; fail at once without patience."""
        ...


C = TypeVar('C', bound=_Client)


class ClientThread(Generic[C]):
    """A client, and the thread of its event loop.

    Args:
        client: The client.
    """

    def __init__(self, client: C) -> None:
        self.client = client
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            self._portal = exits.enter_context(start_blocking_portal())
            exits.enter_context(self._portal.wrap_async_context_manager(self.client))
            self.run(partial(self.client.find, patient=False))
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def start(self, function: Callable[[], Awaitable[T]]) -> Future[T]:
        """Start a function in the event loop. The end of the thread waits for it, unless its future is canceled."""
        return self._portal.start_task_soon(function)

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function in the event loop. After Ctrl-C, cancel the function and wait for the end."""
        ended, begun = threading.Event(), list[asyncio.Task[Any]]()

        async def call() -> T:
            begun.append(cast('asyncio.Task[Any]', asyncio.current_task()))
            try:
                return await function()
            finally:
                ended.set()

        def cancel() -> None:
            for task in begun:
                task.cancel()
            if not begun:
                ended.set()

        try:  # around the start too: a Ctrl-C may come before it has returned the future
            future = self.start(call)
            while not ended.wait(WAKE) and not future.done():
                pass  # an endless wait would miss a Ctrl-C that comes just before the wait
            return future.result()
        except KeyboardInterrupt:
            self._portal.start_task_soon(cancel)  # after a call that was started
            ended.wait(_END)
            raise
