"""A conversation with a remote agent: messages, answers to questions, and Ctrl-C.

The event loop runs in a thread of its own. The main thread waits for answers, asks at the prompt and gets Ctrl-C.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack, aclosing
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import click
from anyio.from_thread import start_blocking_portal
from fasta2a.schema import Message, Part, Task

from ..client.client import SendOptions
from ..client.following import STOPPED, WAITING, Update
from ..errors import A2AError, InvalidParamsError, RemoteError
from ..remote.model import RemoteTasks
from ..remote.waiting import waiting_task
from .calling import INTERRUPTED, WAITS, Remote
from .deciding import decide
from .screen import Form, artifact_text, safe, screen_for
from .target import say

__all__ = ('Talk',)

T = TypeVar('T')
_WAKE = 1.0
"""Seconds after which the main thread handles a Ctrl-C that came just before the wait."""
_END = 15.0
"""Seconds for the cancellation of a task after Ctrl-C."""


class Talk:
    """A conversation with a remote agent.

    Args:
        remote: The agent.
        form: How answers are written.
        hints: True to say after each answer how to go on.
    """

    def __init__(self, remote: Remote, form: Form = 'text', *, hints: bool = True) -> None:
        self.client = remote.client()
        self._form: Form = form
        self._hints = hints
        self._asks = sys.stdin.isatty() and sys.stderr.isatty()
        self._exits = ExitStack()
        self._task: Task | None = None
        self.context_id: str | None = None
        """The conversation of the last answer."""

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            self._portal = exits.enter_context(start_blocking_portal())
            exits.enter_context(self._portal.wrap_async_context_manager(self.client))
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exits.close()

    def _run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function in the event loop. After Ctrl-C, cancel the function and wait for the end."""
        ended = threading.Event()

        async def call() -> T:
            try:
                return await function()
            finally:
                ended.set()

        future = self._portal.start_task_soon(call)
        try:
            while not ended.wait(_WAKE) and not future.done():
                pass  # an endless wait would miss a Ctrl-C that comes just before the wait
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            ended.wait(_END)
            raise

    def send(self, parts: Sequence[Part], *, task_id: str = '', context_id: str = '') -> int:
        """Send a message, show the answer, and ask the questions of the agent. Return the exit code.

        Ctrl-C cancels the task.
        """
        self._task = None
        try:
            outcome = self._follow(parts, task_id, context_id)
            while self._asks and 'status' in outcome and outcome['status']['state'] in WAITING:
                outcome = self._answered(outcome)
        except (KeyboardInterrupt, click.Abort):
            return self._interrupted()
        return self._ended(outcome)

    def watch(self, task_id: str) -> int:
        """Show the events of a task until it stops. Return the exit code. Ctrl-C ends only the command."""
        try:
            outcome = self._run(lambda: self._show(self.client.subscribe(task_id)))
        except KeyboardInterrupt:
            say(f'the task {task_id} goes on')
            return INTERRUPTED
        return self._ended(outcome)

    def _answered(self, task: Task) -> Task | Message:
        """Ask for the answers of a waiting task. Return the task after the answers, or as before if refused."""
        answer = decide(waiting_task('', task))
        if 'denied' in answer:
            return self._run(partial(self.client.cancel, task['id']))
        try:
            return self._follow(answer.get('parts', []), task['id'], task['context_id'], before=artifact_text(task))
        except InvalidParamsError as error:
            say(f'the agent refuses the answer: {safe(error.message)}')
            return task

    def _follow(self, parts: Sequence[Part], task_id: str, context_id: str, before: str = '') -> Task | Message:
        options = SendOptions(task_id=task_id, context_id=context_id)
        updates = self.client.stream(parts, **options)
        return self._run(lambda: self._show(RemoteTasks(self.client).follow(updates), before))

    async def _show(self, updates: AsyncGenerator[Update, None], before: str = '') -> Task | Message:
        screen = screen_for(self._form, before)
        try:
            update: Update | None = None
            async with aclosing(updates):
                async for update in updates:
                    self._task = update.task
                    screen.show(update)
            assert update is not None, 'a stream has an event'
            outcome = update.outcome
            screen.end(outcome, is_asked=self._asks)
            return outcome
        finally:
            screen.close()

    def _ended(self, outcome: Task | Message) -> int:
        """Say how to go on. Return the exit code."""
        self.context_id = outcome.get('context_id')
        if 'status' not in outcome:
            return 0
        state = outcome['status']['state']
        context = f'--context {safe(outcome["context_id"])}'
        if state in WAITING:
            say(f'the task waits; answer with --task {safe(outcome["id"])} {context}')
            return WAITS
        if self._hints or state != 'completed':
            say(f'the task {safe(outcome["id"])} is {state}; go on with {context}')
        return int(state != 'completed')

    def _interrupted(self) -> int:
        """Cancel the task, and say so."""
        task = self._task
        if task is None:
            say('interrupted before the agent has named its task')
            return INTERRUPTED
        self.context_id = task['context_id']
        try:
            task = self._run(partial(self._canceled, task))
        except (A2AError, RemoteError) as error:
            say(f'the task {safe(task["id"])} could not be canceled: {safe(str(error))}')
        else:
            say(f'the task {safe(task["id"])} is {task["status"]["state"]}')
        return INTERRUPTED

    async def _canceled(self, task: Task) -> Task:
        """Return the task after the cancellation. Cancel a waiting task; a running task is canceled already."""
        latest = await self.client.get(task['id'], history_length=0)
        if latest['status']['state'] in STOPPED - WAITING:
            return latest
        return await self.client.cancel(task['id'])
