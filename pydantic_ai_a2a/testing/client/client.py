"""The client of tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from contextvars import Context, copy_context
from datetime import timedelta
from typing import cast

import httpx2
from fasta2a.schema import Message, Task, TaskState
from starlette.types import ASGIApp
from typing_extensions import Unpack

from ...arguments import seconds
from ...client.client import A2AClient, Content, SendOptions
from ...client.following import STOPPED, Update
from .answers import Answers, Script, status_of
from .recording import Recorder

__all__ = ('A2ATestClient',)


class A2ATestClient(A2AClient):
    """An `A2AClient` for tests, which answers questions by a script, waits for states, and records.

    Context variables of the test reach an app in this process, so `agent.override` works. The arguments are those of
    `A2AClient`. The requests of an `http_client` are not recorded.
    """

    recorder: Recorder
    """The recordings of this client."""

    def _transport_to(self, app: ASGIApp | None) -> httpx2.AsyncBaseTransport:
        self.recorder = Recorder(super()._transport_to(app) or httpx2.AsyncHTTPTransport())
        return self.recorder

    def _context(self) -> Context:
        return copy_context()

    async def send(  # pyright: ignore[reportIncompatibleMethodOverride] - SendOptions has no `answers`
        self,
        content: Content,
        *,
        history_length: int | None = None,
        return_immediately: bool = False,
        max_wait: float | timedelta | None = None,
        answers: Answers | None = None,
        **options: Unpack[SendOptions],
    ) -> Task | Message:
        """Send a message, and answer the questions of the task.

        Args:
            content: The message.
            history_length: Most messages in the returned task. Default: as the agent decides.
            return_immediately: True to get the task as soon as the agent has stored the task. Default False.
            max_wait: Seconds after which the task is returned as it is. Default: no limit.
            answers: The answers. Default: the waiting task is returned.
            options: See `SendOptions`.

        Raises:
            AssertionError: The agent asks about a call without an answer, or does not ask about a call of `answers`.
        """
        script = Script(answers)
        while True:
            outcome = await super().send(
                content,
                history_length=history_length,
                return_immediately=return_immediately,
                max_wait=max_wait,
                **options,
            )
            if (parts := script.parts(outcome)) is None:
                return outcome
            content, options = parts, _answering(outcome, options)

    async def stream(  # pyright: ignore[reportIncompatibleMethodOverride] - as above
        self, content: Content, *, answers: Answers | None = None, **options: Unpack[SendOptions]
    ) -> AsyncGenerator[Update, None]:
        """Send a message, answer the questions of the task, and yield all events. Arguments and errors: see `send`."""
        script = Script(answers)
        while True:
            outcome: Task | Message | None = None
            async with aclosing(super().stream(content, **options)) as updates:
                async for update in updates:
                    self.recorder.add(update.event)
                    outcome = update.task
                    yield update
            if (parts := script.parts(outcome)) is None:
                return
            content, options = parts, _answering(outcome, options)

    async def subscribe(self, task_id: str, *, last_event_id: int | None = None) -> AsyncGenerator[Update, None]:
        """Yield the events of a task from now on: see `A2AClient.subscribe`."""
        async with aclosing(super().subscribe(task_id, last_event_id=last_event_id)) as updates:
            async for update in updates:
                self.recorder.add(update.event)
                yield update

    async def until(self, task_id: str, *states: TaskState, max_wait: float | timedelta = 30.0) -> Task:
        """Wait until a task is in one of the states, and return the task.

        Args:
            task_id: The task.
            states: The states.
            max_wait: Most seconds. Default 30.

        Raises:
            AssertionError: The task ends or waits in another state, or the time is over.
        """
        limit = seconds(max_wait)
        task: Task | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(limit), aclosing(self.subscribe(task_id)) as updates:
                async for _, task in updates:
                    if task is not None and task['status']['state'] in states:
                        return task
        end = 'No event has come.' if task is None else status_of(task)
        if task is None or task['status']['state'] not in STOPPED:
            end = f'{end} {limit:g} seconds are over.'
        raise AssertionError(f'The task has not become {" or ".join(states)}. {end}')


def _answering(outcome: Task | Message | None, options: SendOptions) -> SendOptions:
    """Return the options of an answer to a task. The webhook is registered already."""
    task = cast('Task', outcome)
    ids = SendOptions(task_id=task['id'], context_id=task['context_id'])
    return cast('SendOptions', {name: value for name, value in options.items() if name != 'push'} | ids)
