"""Tells the other processes of a store which agent this process serves, as long as it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import Context

from ...base_exceptions import ends_task
from ...bounded_wait import bounded_wait
from ...clock import STOP_TIME
from ..store.ports import Backend

logger = logging.getLogger('pydantic_ai_a2a')

_START = 1.0
"""The most seconds that the start of a server waits for a store that is locked."""


@asynccontextmanager
async def present(backend: Backend, service: str, *, lease: float = 30.0) -> AsyncGenerator[None]:
    """Announce a service from the beginning of the block to its end.

    Args:
        backend: Tells the other processes. The announcement is tried again if the backend is unavailable.
        service: What this process serves, in words.
        lease: Seconds for which a process counts as living that no longer renews its announcement.
    """
    announced = asyncio.Event()
    keeping = _keep(backend, service, lease, announced)
    task = asyncio.get_running_loop().create_task(keeping, context=Context())
    try:
        await bounded_wait(_START, announced.wait())
        yield
    finally:
        task.cancel()
        await bounded_wait(STOP_TIME, _announce(backend, service, 0))


async def _keep(backend: Backend, service: str, lease: float, announced: asyncio.Event) -> None:
    while True:
        await _announce(backend, service, lease)
        announced.set()
        await asyncio.sleep(lease / 3)


async def _announce(backend: Backend, service: str, lease: float) -> None:
    current = asyncio.current_task()
    try:
        await backend.announce(service, lease=round(1000 * lease))
    except BaseException as error:  # the log names an unavailable store already, and only warnings need the call
        if ends_task(error, current):
            raise
        logger.debug('The store was not told what this process serves.', exc_info=True)
