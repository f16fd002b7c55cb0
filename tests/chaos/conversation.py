"""One context's client: sends its messages one after the other, reads all their tasks, and cancels some."""

from __future__ import annotations

import asyncio
from typing import Any

from .clients import Client, Reader, Refused
from .facts import Sent
from .ledger import Ledger
from .plan import Turn

__all__ = ('Conversation',)

_NOT_CANCELABLE = -32002


class Conversation:
    """All messages of one context.

    Args:
        client: Asks the servers.
        ledger: Tells when a task has begun.
        prefix: Makes the ids of messages those of this run.
    """

    def __init__(self, client: Client, ledger: Ledger, prefix: str) -> None:
        self.client = client
        self._ledger = ledger
        self._prefix = prefix
        self.sent: list[Sent] = []
        self.readers: list[Reader] = []
        self.refusals: list[tuple[str, str]] = []

    async def send(self, *turns: Turn) -> None:
        """Send each message until it is accepted, and then the next one; returns when all tasks have been read."""
        async with asyncio.TaskGroup() as reading:
            for turn in turns:
                message = f'chaos-{self._prefix}-message-{turn.name}'
                tasks: list[str] = []
                self.sent.append(Sent(message, turn.context, turn.number, turn.steps, turn.cancel is not None, tasks))
                async with asyncio.TaskGroup() as sending:
                    for _ in range(1 + turn.twice):
                        sending.create_task(self._try(message, self._send(turn, message, tasks, reading)))

    async def _try(self, message: str, work: Any) -> None:
        try:
            await work
        except Refused as refused:
            self.refusals.append((message, str(refused)))

    async def _send(self, turn: Turn, message_id: str, tasks: list[str], reading: asyncio.TaskGroup) -> None:
        """Send a message until it is accepted; go on reading its task in the group."""
        message = {
            'messageId': message_id,
            'contextId': turn.context,
            'role': 'ROLE_USER',
            'parts': [{'text': f'{turn.name} {turn.steps}'}],
        }
        reader = Reader()
        self.readers.append(reader)
        if turn.mode == 'streaming':
            while reader.task is None:
                await self.client.read(reader, 2, 'SendStreamingMessage', message=message)
        else:
            configuration = {'returnImmediately': turn.mode == 'at once'}
            task = await self.client.task('SendMessage', message=message, configuration=configuration)
            reader.task = task['id']
        assert reader.task is not None
        tasks.append(reader.task)
        following = reading.create_task(self._try(message_id, reader.follow(self.client)))
        if turn.cancel is not None:
            reading.create_task(self._try(message_id, self._cancel(turn, reader.task, following)))

    async def _cancel(self, turn: Turn, task: str, following: asyncio.Task[None]) -> None:
        if turn.cancel == 'running':
            begun = asyncio.create_task(self._ledger.find(lambda row: row.task == task))
            await asyncio.wait([begun, following], return_when=asyncio.FIRST_COMPLETED)
            begun.cancel()
        try:
            await self.client.task('CancelTask', id=task)
        except Refused as refused:
            if refused.code != _NOT_CANCELABLE:  # it was too late, or an answer was lost
                raise
