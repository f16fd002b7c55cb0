"""A client for tests: of apps in the process or elsewhere, with scripted answers and recordings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from contextvars import Context, copy_context
from datetime import timedelta
from typing import cast

import httpx2
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AppMessage
from typing_extensions import Unpack

from ..client.client import A2AClient
from ..client.http_connections import CONNECTIONS
from ..client.message_content import Content
from ..client.question_answers import answer_message, answer_to
from ..client.questions import RemoteQuestion
from ..client.results import RemoteResult, answering
from ..client.send_options import NO_TYPE, OutputT, OutputType, SendOptions, WaitOptions
from ..client.updates import Update
from ..server.service.refusals import REASONS
from ..task_states import STOPPED
from ..time_spans import seconds
from ..types.a2a_objects import TaskState
from .answers import Answers, Script, status_of
from .recordings import Recording, RecordingTransport


class A2ATestClient(A2AClient):
    """An `A2AClient` for tests, which answers questions by a script, waits for states, and records.

    Context variables of the test reach an app in this process, so `agent.override` works. The arguments are those of
    `A2AClient`. The requests of an `http_client` are not recorded. If the agent in this process cannot be started, such
    as without the key of its model, requests raise the reason.
    """

    recorder: RecordingTransport
    """The recordings of this client."""

    def _transport_to(self, app: ASGIApp | None) -> httpx2.AsyncBaseTransport:
        raising = None if app is None else _RaisingApp(app)
        network = httpx2.AsyncHTTPTransport(limits=CONNECTIONS)
        self.recorder = RecordingTransport(super()._transport_to(raising) or network)
        return self.recorder

    def _context(self) -> Context:
        return copy_context()

    async def send(  # pyright: ignore[reportIncompatibleMethodOverride] - WaitOptions has no `answers`
        self,
        content: Content,
        *,
        output_type: OutputType[OutputT] | None = NO_TYPE,
        answers: Answers | None = None,
        **options: Unpack[WaitOptions],
    ) -> RemoteResult[OutputT]:
        """Send a message, and answer the questions of the task.

        Args:
            content: The message, as for `A2AClient.send`.
            output_type: Type of the output. Default: as the agent answers.
            answers: The answers. Default: the waiting task is returned.
            options: See `WaitOptions`.

        Raises:
            AssertionError: The agent asks about a call without an answer, or does not ask about a call of `answers`.
        """
        result = await super().send(content, output_type=output_type, **options)
        return result if answers is None else await answers.complete(result)

    async def stream(  # pyright: ignore[reportIncompatibleMethodOverride] - as above
        self,
        content: Content,
        *,
        output_type: OutputType[OutputT] | None = NO_TYPE,
        answers: Answers | None = None,
        **options: Unpack[SendOptions],
    ) -> AsyncGenerator[Update[OutputT], None]:
        """Send a message, answer the questions of the task, and yield all events. Arguments and errors: see `send`."""
        script = None if answers is None else Script(answers)
        last: Update | None = None
        while True:
            async with aclosing(super().stream(content, output_type=output_type, **options)) as updates:
                async for last in updates:
                    self.recorder.add(last.event)
                    yield last
            if script is None or last is None:
                return
            if (value := script.answer(result := last.result)) is None:
                script.check(result)
                return
            waiting = cast('RemoteQuestion', result.waiting)
            content = answer_message(waiting, answer_to(waiting, value))
            options = answering(waiting, options)

    async def subscribe(self, task_id: str, *, last_event_id: int | None = None) -> AsyncGenerator[Update, None]:
        """Yield the events of a task from now on: see `A2AClient.subscribe`."""
        async with aclosing(super().subscribe(task_id, last_event_id=last_event_id)) as updates:
            async for update in updates:
                self.recorder.add(update.event)
                yield update

    async def answer_inbox(self, answers: Answers) -> list[RemoteResult]:
        """Answer what waits for the caller, such as an approver: see `inbox`. Return the tasks after the answers.

        Args:
            answers: The answers to the calls of all these tasks.

        Raises:
            AssertionError: Nothing waits, or a task asks about a call without an answer, or no task asks about a call
                of `answers`.
        """
        script = Script(answers)
        results = [await script.complete(result) async for result in self.inbox()]
        if not results:
            raise AssertionError('The inbox is empty: no task waits for the caller.')
        script.check(results[-1])
        return results

    async def until(self, task_id: str, *states: TaskState, max_wait: float | timedelta = 30.0) -> RemoteResult:
        """Wait until a task is in one of the states, and return the task.

        Args:
            task_id: The task.
            states: The states.
            max_wait: Most seconds. Default 30.

        Raises:
            AssertionError: The task ends or waits in another state, or the time is over.
        """
        limit = seconds(max_wait)
        last: Update | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(limit), aclosing(self.subscribe(task_id)) as updates:
                async for last in updates:
                    if last.state in states:
                        return last.result
        result = None if last is None else last.result
        end = 'No event has come.' if result is None else status_of(result)
        if result is None or result.state not in STOPPED:
            end = f'{end} {limit:g} seconds are over.'
        raise AssertionError(f'The task has not become {" or ".join(states)}. {end}')


class _RaisingApp:
    """An app of this process. If its agent cannot be started, a request raises the reason, which no client gets."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        reasons: list[BaseException] = []

        async def send_or_raise(message: AppMessage) -> None:
            if reasons:
                raise reasons[0]
            await send(message)

        await self._app({**scope, REASONS: reasons}, receive, send_or_raise)


def record(client: A2ATestClient) -> Recording:
    """Record the events and the JSON of a client from now on."""
    recording = Recording()
    client.recorder.recordings.append(recording)
    return recording
