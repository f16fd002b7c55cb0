"""The calls of a conversation on the command line. They load no Pydantic AI, so that `send` starts quickly."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Self

from ..client.agent_finder import AgentFinder
from ..client.followed_task import Follower
from ..client.interfaces import extensions_of
from ..client.updates import Update
from ..types.a2a_objects import AgentCard, Message, Task
from ..types.operation_params import CancelParams, GetParams, SendParams
from ..wire.extensions.pending_calls_extension import PENDING_CALLS_URI, without_question
from .remote_agent import Remote


class TaskCalls:
    """Calls a remote agent as `A2AClient` does, with values of A2A only.

    Args:
        remote: The agent.
    """

    def __init__(self, remote: Remote) -> None:
        self._connections = remote.connections()
        self._patience = remote.timeout
        self._finder = AgentFinder(
            remote.url, None, self._connections, auth=remote.token, trusted_origins=remote.trusted_origins
        )

    async def __aenter__(self) -> Self:
        """Return the calls. Connections open on first use."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._connections.close()

    async def find(self, *, patient: bool) -> None:
        """Read the card."""
        await self._finder.interface(patient=patient)

    async def card(self) -> AgentCard:
        """Return the card of the agent."""
        card, _ = await self._finder.card()
        return card

    async def get(self, task_id: str, *, history_length: int | None = None) -> Task:
        """Return a task as it is."""
        _, transport = await self._finder.interface()
        return await transport.call('GetTask', GetParams(id=task_id, history_length=history_length))

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task, and return the task."""
        _, transport = await self._finder.interface()
        return await transport.call('CancelTask', CancelParams(id=task_id))

    async def stream(self, message: Message) -> AsyncGenerator[Update, None]:
        """Send a message, and yield the events of its task until the task ends or waits."""
        card, transport = await self._finder.interface()
        if PENDING_CALLS_URI not in extensions_of(card):
            message = without_question(message)
        follower = Follower.of(card, transport, self._patience, message_id=message['message_id'])
        params = SendParams(message=message, return_immediately=not follower.streams)
        async with aclosing(follower.send(params, stream=follower.streams)) as updates:
            async for update in updates:
                yield update

    async def subscribe(self, task_id: str) -> AsyncGenerator[Update, None]:
        """Yield the events of a task from now on, until the task ends or waits."""
        card, transport = await self._finder.interface()
        async with aclosing(Follower.of(card, transport, self._patience).subscribe(task_id, None)) as updates:
            async for update in updates:
                yield update
