"""The inbox on the screen: a table of what waits, from which a person opens a task and decides.

The event loop of the client reads the list every few seconds. The main thread gets the keys and asks the questions. The
chosen task stays chosen while others come and go; if it no longer waits, its row stays and says so. No key of the list
answers anything: an opened task is shown as a whole, and asked about at a prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import click

from ..client.client import A2AClient
from ..client.question_answers import RemoteAnswer, answer_message
from ..client.questions import RemoteQuestion
from ..client.results import RemoteResult
from ..errors import (
    A2AError,
    InternalError,
    OverloadedError,
    QuotaExceededError,
    RemoteProtocolError,
    RemoteUnavailable,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from ..wire.extensions.remote_calls import open_calls
from .answer_prompts import prompt_for_answer
from .client_thread import ClientThread
from .inbox_rows import COLUMNS, newest_tasks, row_of
from .live_table import LiveTable
from .terminal import echo, say
from .terminal_keys import Keys

PERIOD = 3.0
"""Seconds between two reads of the list."""
_HELP = 'The arrow keys choose, Enter opens, q ends.'
_GONE = 'no longer waits: somebody else has decided, or the task has ended'


class _Read(NamedTuple):
    """The list as it was last read."""

    tasks: Sequence[RemoteResult] | None = None
    """None before the first read."""
    fault: str = ''
    """Why the last read has failed."""


class InboxScreen:
    """Shows the inbox of a client until the person ends it.

    Args:
        thread: The client.
        keys: The keys of the terminal.
        limit: The most tasks in the list.
    """

    def __init__(self, thread: ClientThread[A2AClient], keys: Keys, limit: int) -> None:
        self._thread = thread
        self._keys = keys
        self._limit = limit
        self._read = _Read()
        self._choice = Choice()
        self._over: set[tuple[str, str]] = set()
        """The pauses that have ended, as answers to them have told. A list that was read before may have them."""
        self._note = ''
        """The outcome of the last decision."""

    def run(self) -> int:
        """Show the list, and ask about the tasks that the person opens. Return the exit code.

        Raises:
            A2AError: The agent refuses the list.
            RemoteError: The agent has no usable card, or the list is not A2A.
        """
        self._reads = self._thread.start(self._keep_reading)
        self._reads.add_done_callback(lambda _: self._keys.wake())
        try:
            while (task := self._opened()) is not None:
                self._note = self._decided(task)
                say(self._note)
            return 0
        finally:
            self._reads.cancel()

    async def _keep_reading(self) -> None:
        while True:
            pause = PERIOD
            try:
                self._read = _Read(await newest_tasks(self._thread.client, self._limit))
            except RemoteUnavailable as error:
                self._read = self._read._replace(fault=str(error))
                pause = max(pause, error.retry_after or 0.0)
            except (OverloadedError, QuotaExceededError, InternalError) as error:
                self._read = self._read._replace(fault=error.message)
                pause = max(pause, error.retry_after or 0.0)
            self._keys.wake()
            await asyncio.sleep(pause)

    def _opened(self) -> RemoteResult | None:
        """Show the list until the person opens a task; return None at the end."""
        with self._keys.single(), LiveTable(COLUMNS, screen=True) as table:
            while True:
                if self._reads.done():
                    self._reads.result()  # raises why the list cannot be read
                if self._read.tasks is not None:
                    self._choice.update([task for task in self._read.tasks if _pause_of(task) not in self._over])
                table.show(self._choice.rows(), *self._notes(), chosen=self._choice.at)
                for key in self._keys.read():
                    if key == 'quit':
                        return None
                    if key == 'open' and (task := self._choice.task) is not None:
                        return task
                    self._choice.move({'up': -1, 'down': 1}.get(key, 0))

    def _notes(self) -> list[str]:
        tasks, fault = self._read
        if tasks is None:
            count = 'The inbox is being read.'
        else:
            more = ' or more' if len(tasks) == self._limit else ''
            count = f'{len(tasks)}{more} in the inbox.' if tasks else 'Nothing waits for you.'
        return [*filter(None, [self._note, fault and f'The list is not new: {fault}']), f'{count} {_HELP}']

    def _decided(self, task: RemoteResult) -> str:
        """Ask about a task, and send the answer. Return the outcome for the person."""
        name = f'the task {task.task_id}'
        try:
            waiting = task.waiting
            assert waiting is not None, 'the inbox has tasks that wait'
            echo(f'The task {task.task_id} waits since {_pause_of(task)[1] or "an unknown time"}:', err=True)
            answer = prompt_for_answer(waiting)
        except RemoteProtocolError as error:
            return str(error)
        except click.Abort:
            return f'nothing is decided about {name}'
        try:
            result = self._thread.run(partial(self._send, task, waiting, answer))
        except (TaskNotFoundError, UnsupportedOperationError) as error:
            self._over.add(_pause_of(task))
            return f'{name} {_GONE} ({error.message.rstrip(".")})'
        except A2AError as error:
            return f'the answer to {name} is refused: {error.message}'
        except RemoteUnavailable as error:
            return f'it is not known if the answer has reached {name}: {error}'
        self._over.add(_pause_of(task))
        if result is None:
            return f'{name} has gone on without the answer, which is not sent'
        self._choice.remove()
        return f'{name} has the answer and is {result.state}'

    async def _send(self, task: RemoteResult, waiting: RemoteQuestion, answer: RemoteAnswer) -> RemoteResult | None:
        """Send an answer. Return None if the task has gone on while the person wrote, and the answer names no call."""
        client, task_id = self._thread.client, waiting['task']
        if not open_calls(waiting):
            now = await client.get(task_id, history_length=0)
            if (now.state, _pause_of(now)) != (task.state, _pause_of(task)):
                return None
        if 'denied' in answer:
            return await client.cancel(task_id)
        message = answer_message(waiting, answer)
        return await client.send(message, task_id=task_id, context_id=waiting['context'], return_immediately=True)


def _pause_of(task: RemoteResult) -> tuple[str, str]:
    assert task.task is not None, 'the inbox has tasks'
    return task.task_id, task.task['status'].get('timestamp', '')


class Choice:
    """The tasks of the list, and the chosen one."""

    def __init__(self) -> None:
        self._tasks: list[RemoteResult] = []
        self._gone = False
        """True if the chosen task no longer waits."""
        self.at = 0
        """Position of the chosen task."""

    @property
    def task(self) -> RemoteResult | None:
        """The chosen task; None if it no longer waits, or without tasks."""
        return self._tasks[self.at] if self._tasks and not self._gone else None

    def rows(self) -> list[list[str]]:
        """Return the rows of the table."""
        rows = [row_of(task) for task in self._tasks]
        if self._gone:
            rows[self.at][-1] = _GONE
        return rows

    def update(self, tasks: Sequence[RemoteResult]) -> None:
        """Take the tasks of a newer list. The chosen one stays chosen, and in its place if it is missing."""
        chosen, self._tasks = self._tasks[self.at : self.at + 1], [*tasks]
        ids = [task.task_id for task in tasks]
        self._gone = bool(chosen) and chosen[0].task_id not in ids
        if self._gone:
            self.at = min(self.at, len(tasks))
            self._tasks[self.at : self.at] = chosen
        else:
            self.at = ids.index(chosen[0].task_id) if chosen else 0

    def remove(self) -> None:
        """Remove the chosen task, after its decision."""
        del self._tasks[self.at : self.at + 1]
        self._gone = False
        self.at = max(0, min(self.at, len(self._tasks) - 1))

    def move(self, step: int) -> None:
        """Choose the task so many rows below. A chosen one that no longer waits leaves the list."""
        if step and self._gone:
            del self._tasks[self.at]
            self._gone = False
            step = min(step, 0)
        self.at = max(0, min(self.at + step, len(self._tasks) - 1))
