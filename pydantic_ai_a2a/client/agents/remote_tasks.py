"""The remote tasks of a run.

A run that stops early cancels its remote tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import anyio

from ...errors import A2AError, RemoteError, RemoteUnavailable, UnsupportedOperationError
from ...task_states import STOPPED
from ..updates import Update

if TYPE_CHECKING:
    from ..client import A2AClient

logger = logging.getLogger('pydantic_ai_a2a')

FIRST_LIMIT = 3.0
"""Seconds in which the agent names the task of a run that stops before the first event."""
CANCEL_LIMIT = 10.0
"""Seconds for the request that cancels a task."""


class _Canceler(Protocol):
    """A client of the agent."""

    async def cancel(self, task_id: str) -> object:
        """Cancel a task."""
        ...


@dataclass(eq=False)
class _Followed:
    """A remote task whose events a run reads."""

    first: asyncio.Task[Update]
    """Reads the first event, and goes on if the run stops."""
    last: Update | None = None
    """The last event; None before the first event, and after the agent has failed to answer."""
    canceling: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """True if the task may run, and the agent answers: it has not answered yet, or the task has not stopped."""
        return not self.first.done() if self.last is None else _is_running(self.last)


class RemoteTasks:
    """Follows the remote tasks of a run.

    A request to cancel a task has an asyncio task of its own: a second cancellation of the run does not end it.

    Args:
        client: The client of the agent.
    """

    def __init__(self, client: _Canceler) -> None:
        self._client = client
        self._open: set[_Followed] = set()
        self._canceling: set[asyncio.Task[None]] = set()

    async def follow(self, updates: AsyncGenerator[Update, None]) -> AsyncGenerator[Update, None]:
        """Yield the events of a task. If the caller stops before the task, the task is canceled.

        A task of an agent that no longer answers, or refuses to show the task, may go on: a cancel would fail as well.
        """
        followed = _Followed(asyncio.create_task(_first(updates)))
        self._open.add(followed)
        try:
            update = await asyncio.shield(followed.first)
            followed.last = update
            yield update
            async for update in updates:
                followed.last = update
                yield update
        except (A2AError, RemoteUnavailable):
            followed.last = None
            raise
        finally:
            self._open.discard(followed)
            with anyio.CancelScope(shield=True):  # a cancelled scope of anyio would cancel each of these waits again
                if followed.is_open:
                    await asyncio.shield(self._cancel_soon(followed))
                await updates.aclose()

    async def cancel(self, task_id: str) -> None:
        """Cancel a task, within ten seconds. A failure is logged."""
        try:
            async with asyncio.timeout(CANCEL_LIMIT):
                await self._client.cancel(task_id)
        except (A2AError, RemoteError, TimeoutError) as error:
            logger.warning('The remote task %s was not canceled: %s', task_id, str(error) or 'the agent is silent')

    async def aclose(self) -> None:
        """Cancel the tasks that have not stopped, and wait for the cancellations."""
        for followed in self._open:
            self._cancel_soon(followed)
        if self._canceling:
            await asyncio.wait(self._canceling)

    def _cancel_soon(self, followed: _Followed) -> asyncio.Task[None]:
        if followed.canceling is None:
            followed.canceling = asyncio.create_task(self._cancel(followed))
            self._canceling.add(followed.canceling)
            followed.canceling.add_done_callback(self._canceling.discard)
        return followed.canceling

    async def _cancel(self, followed: _Followed) -> None:
        update = followed.last
        if update is None:
            try:
                async with asyncio.timeout(FIRST_LIMIT):
                    update = await followed.first
            except (A2AError, RemoteError, TimeoutError) as error:
                logger.warning(
                    'A run was cancelled before the remote agent named its task, so the task was not canceled: %s',
                    str(error) or 'the agent is silent',
                )
        if update is not None and update.task_id is not None and _is_running(update):
            await self.cancel(update.task_id)


async def after_sign_in(
    client: A2AClient, task_id: str, updates: AsyncGenerator[Update, None]
) -> AsyncGenerator[Update, None]:
    """Yield the events of a message that says that a sign-in is done.

    The page of the sign-in may have continued the task. Then the agent refuses the message, and the task is followed.
    """
    try:
        async with aclosing(updates):
            async for update in updates:
                yield update
        return
    except UnsupportedOperationError:
        updates = client.subscribe(task_id)
    async with aclosing(updates):
        async for update in updates:
            yield update


async def _first(updates: AsyncGenerator[Update, None]) -> Update:
    return await anext(updates)


def _is_running(update: Update) -> bool:
    return update.state is not None and update.state not in STOPPED
