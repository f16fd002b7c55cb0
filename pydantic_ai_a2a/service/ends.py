"""Waiting for the end of a task, for at most some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ..types import StoredTask

__all__ = ('shortened', 'within')

T = TypeVar('T')


async def within(seconds: float | None, waiting: Awaitable[T], left: asyncio.Future[None] | None = None) -> T | None:
    """Return the result of `waiting`, or None after so many seconds, or once the client has `left`.

    None in the place of the seconds waits without limit.
    """
    if seconds is left is None:
        return await waiting
    done = asyncio.ensure_future(waiting)
    ends = [done] if left is None else [done, left]
    try:
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return done.result() if done.done() else None
    finally:
        done.cancel()


def shortened(task: StoredTask, history_length: int | None) -> StoredTask:
    """Return a whole task as `TaskReader.load` returns it: with so many of the newest messages."""
    if history_length is None or task.history is None:
        return task
    return task._replace(history=task.history[-history_length:] if history_length else None)
