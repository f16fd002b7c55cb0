"""A wait for at most some seconds, and while the client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar('T')


async def bounded_wait(
    seconds: float | None, waiting: Awaitable[T], left: asyncio.Future[None] | None = None
) -> T | None:
    """Return the result of `waiting`, or None after so many seconds, or once the client has `left`.

    None in the place of the seconds waits without limit.
    """
    if seconds is left is None:
        return await waiting
    if left is None:
        limit = asyncio.timeout(seconds)  # in Python 3.11, wait_for may swallow a cancellation
        try:
            async with limit:
                return await waiting
        except TimeoutError:
            if not limit.expired():  # raised by `waiting`
                raise
            return None
    done = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait([done, left], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return done.result() if done.done() else None
    finally:
        done.cancel()
