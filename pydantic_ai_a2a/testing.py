"""Helps to test agents: a client for apps in the process, scripted answers, recordings and snapshots."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import timedelta
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, cast

import httpx2
from pydantic_ai.agent import AbstractAgent
from pydantic_core import from_json
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AppMessage
from typing_extensions import Unpack

from .app.serve import serve
from .arguments import seconds
from .client.agent_finder import Target
from .client.answer_content import status_message
from .client.client import A2AClient
from .client.message_content import Content
from .client.questions import PendingRemoteCall, RemoteQuestion, answer_to
from .client.results import OutputT, RemoteResult, answering
from .client.send_options import SendOptions, WaitOptions
from .client.updates import Update
from .conversion.remote_calls import open_calls
from .protocol.stored import json_of
from .service.refusals import REASONS
from .types import STOPPED, Message, StreamResponse, Task, TaskState

# --- the client of tests ----------------------------------------------------------------------------------------------


class A2ATestClient(A2AClient):
    """An `A2AClient` for tests, which answers questions by a script, waits for states, and records.

    Context variables of the test reach an app in this process, so `agent.override` works. The arguments are those of
    `A2AClient`. The requests of an `http_client` are not recorded. If the agent in this process cannot be entered, such
    as without the key of its model, requests raise the reason.
    """

    recorder: RecordingTransport
    """The recordings of this client."""

    def _transport_to(self, app: ASGIApp | None) -> httpx2.AsyncBaseTransport:
        raising = None if app is None else _RaisingApp(app)
        self.recorder = RecordingTransport(super()._transport_to(raising) or httpx2.AsyncHTTPTransport())
        return self.recorder

    def _context(self) -> Context:
        return copy_context()

    async def send(  # pyright: ignore[reportIncompatibleMethodOverride] - WaitOptions has no `answers`
        self,
        content: Content,
        *,
        output_type: type[OutputT] | None = None,
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
        output_type: type[Any] | None = None,
        answers: Answers | None = None,
        **options: Unpack[SendOptions],
    ) -> AsyncGenerator[Update, None]:
        """Send a message, answer the questions of the task, and yield all events. Arguments and errors: see `send`."""
        script = None if answers is None else Script(answers)
        last: Update | None = None
        while True:
            async with aclosing(super().stream(content, output_type=output_type, **options)) as updates:
                async for last in updates:
                    self.recorder.add(last.event)
                    yield last
            if script is None or last is None or (value := script.answer(result := last.result)) is None:
                return
            waiting = cast('RemoteQuestion', result.waiting)
            content, options = answer_to(waiting, value).get('parts', []), answering(waiting, options)

    async def subscribe(self, task_id: str, *, last_event_id: int | None = None) -> AsyncGenerator[Update, None]:
        """Yield the events of a task from now on: see `A2AClient.subscribe`."""
        async with aclosing(super().subscribe(task_id, last_event_id=last_event_id)) as updates:
            async for update in updates:
                self.recorder.add(update.event)
                yield update

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
    """An app of this process. If its agent cannot be entered, a request raises the reason, which no client gets."""

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


# --- scripted answers to the approvals, questions and sign-ins of an agent --------------------------------------------

_MOST_ROUNDS = 100
"""Most answers to one task."""


class Answers:
    """The answers of a person to an agent, written in advance.

    The test fails if the agent asks about another call, or never asks about one of these calls.

    Args:
        calls: The answer to each call that waits, by the name of the tool: True or False, or `ToolApproved` or
            `ToolDenied`, for an approval; text or data for a question; True for a sign-in. A function takes the
            `PendingRemoteCall` and returns the answer.
        question: The answer to a question of the agent itself, outside of tools. Default: the agent must not ask.
    """

    def __init__(self, calls: Mapping[str, Any] | None = None, *, question: Any = None) -> None:
        self.calls: Mapping[str, Any] = dict(calls or {})
        self.question = question

    async def complete(self, result: RemoteResult[OutputT]) -> RemoteResult[OutputT]:
        """Answer the questions of a task until the task ends, also for results of an `A2AClient`.

        Raises:
            AssertionError: The agent asks about a call without an answer, or does not ask about a call.
        """
        script = Script(self)
        while (value := script.answer(result)) is not None:
            result = await result.answer(value)
        return result


class Script:
    """Answers the questions of one task.

    Args:
        answers: The answers.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._asked: set[str] = set()
        self._rounds = 0

    def answer(self, result: RemoteResult) -> Any:
        """Return the answer to a task that waits; None if the task does not wait.

        Raises:
            AssertionError: An answer is missing, or the task has ended without a question.
        """
        if (waiting := result.waiting) is None:
            if (result.state is None or result.state in STOPPED) and (
                unasked := self._answers.calls.keys() - self._asked
            ):
                raise AssertionError(f'The agent has not asked about {", ".join(sorted(unasked))}. {status_of(result)}')
            return None
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            raise AssertionError(f'The agent still asks after {_MOST_ROUNDS} answers: {waiting["text"]!r}.')
        calls: list[PendingRemoteCall] = open_calls(waiting) or waiting['pending']
        values = {call['id']: self._answer_of_call(call) for call in calls}
        value = values if open_calls(waiting) else all(values.values()) if calls else self._answer_of_question(waiting)
        if 'denied' in answer_to(waiting, value):
            raise AssertionError(f'{value!r} is no answer to {waiting["text"]!r}. Cancel the task with `cancel`.')
        return value

    def _answer_of_question(self, waiting: RemoteQuestion) -> Any:
        if self._answers.question is None:
            raise AssertionError(f'No answer to the question {waiting["text"]!r}. Add `question=` to Answers.')
        return self._answers.question

    def _answer_of_call(self, call: PendingRemoteCall) -> Any:
        tool = call['tool']
        if tool not in self._answers.calls:
            unused = sorted(self._answers.calls.keys() - self._asked)
            raise AssertionError(
                f'No answer to the {call["kind"]} {tool!r} with the arguments {call.get("args")}. Add {tool!r} to'
                f' Answers.{f" Not used so far: {unused}." if unused else ""}'
            )
        self._asked.add(tool)
        answer = self._answers.calls[tool]
        return answer(call) if callable(answer) else answer


def status_of(result: RemoteResult) -> str:
    """Return the state and the status message of a task, as a sentence."""
    if result.task is None:
        return 'The agent has answered without a task.'
    text, _ = status_message(result.task)
    return f'The task is {result.state}{f": {text!r}" if text else ""}.'


# --- the values of the fixtures `a2a_client` and `a2a_server` ---------------------------------------------------------


class ClientFactory:
    """Makes clients that are closed at the end of the test: the value of the fixture `a2a_client`.

    Args:
        name: Name of the test.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._exits: AsyncExitStack | None = None

    def closed_by(self, test: Callable[..., Any]) -> Callable[..., Any]:
        """Return the test with an end that closes the clients: fixtures end after the event loop of the test."""
        if not iscoroutinefunction(test):
            return test
        exits = self._exits = AsyncExitStack()

        @wraps(test)
        async def closing(*args: Any, **kwargs: Any) -> None:
            async with exits:
                await test(*args, **kwargs)

        return closing

    async def __call__(self, target: Target, **options: Any) -> A2ATestClient:
        """Return a client that has been started.

        Args:
            target: An agent or an app in this process, or a URL.
            options: Arguments of `A2AClient`.

        Raises:
            RuntimeError: The test is no async function.
        """
        if self._exits is None:
            raise RuntimeError(f'a2a_client needs an async test, and {self._name} is none. Write `async def`.')
        return await self._exits.enter_async_context(A2ATestClient(target, **options))


class ServerFactory:
    """Serves agents and apps until the end of the test: the value of the fixture `a2a_server`.

    Args:
        exits: Closes the servers.
    """

    def __init__(self, exits: ExitStack) -> None:
        self._exits = exits

    def __call__(self, app: ASGIApp | AbstractAgent[Any, Any], **options: Any) -> str:
        """Return the URL of an agent or app on a free port. Options: see `serve`."""
        return self._exits.enter_context(serve(app, **options)).url


# --- recordings of the events and the JSON between a client and an agent ----------------------------------------------


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer."""

    method: str
    """Method of HTTP."""
    path: str
    """Path and query of the request."""
    request: Any
    """JSON of the request; None for a request without a body."""
    response: httpx2.Response = field(repr=False)
    """Status and headers of the answer."""
    _body: bytearray = field(repr=False)

    @property
    def answer(self) -> Any:
        """JSON of the answer; of a stream, the list of its events until now. None for an answer without a body."""
        body = httpx2.Response(200, headers=self.response.headers, content=bytes(self._body)).content
        if self.response.headers.get('content-type', '').startswith('text/event-stream'):
            return [from_json(line[5:]) for line in body.splitlines(keepends=True) if _is_data(line)]
        return from_json(body) if body else None


def _is_data(line: bytes) -> bool:
    return line.startswith(b'data:') and line.endswith(b'\n')


@dataclass(frozen=True, slots=True)
class Recording:
    """The events and the exchanges of a client."""

    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The events of `stream`, `subscribe` and `until`, as JSON of A2A 1.0."""
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    """The requests and their answers, as the JSON that was sent."""


def record(client: A2ATestClient) -> Recording:
    """Record the events and the JSON of a client from now on."""
    recording = Recording()
    client.recorder.recordings.append(recording)
    return recording


class RecordingTransport(httpx2.AsyncBaseTransport):
    """Passes requests on, and records them."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport
        self.recordings: list[Recording] = []

    def add(self, event: StreamResponse) -> None:
        """Record an event."""
        for recording in self.recordings:
            recording.events.append(json_of(event))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and record the request and the answer."""
        response = await self._transport.handle_async_request(request)
        body = bytearray()
        response.stream = _Copied(cast('httpx2.AsyncByteStream', response.stream), body)
        sent = from_json(request.content) if request.content else None
        exchange = Exchange(request.method, request.url.raw_path.decode(), sent, response, body)
        for recording in self.recordings:
            recording.exchanges.append(exchange)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


class _Copied(httpx2.AsyncByteStream):
    """A body that is copied while it is read."""

    def __init__(self, stream: httpx2.AsyncByteStream, copy: bytearray) -> None:
        self._stream = stream
        self._copy = copy

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._copy.extend(piece)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


# --- tasks and events for snapshots -----------------------------------------------------------------------------------

_ID = r'[0-9a-f]{32}|[0-9a-f]{16}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
_TIME = r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)'
_CHANGING = re.compile(rf'(?<![0-9a-f])(?:(?P<id>{_ID})|(?P<time>{_TIME}))(?![0-9a-f])')
"""Generated ids and times, in any text."""


def dump(value: RemoteResult | Task | Message | Any) -> Any:
    """Return a result, a task, a message or JSON for a snapshot, with the same values in each run.

    Generated ids become `<id 1>`, `<id 2>` and so on, in the order of the value. Times become `<time>`. Ids that the
    test has chosen stay.

    Args:
        value: A result, a task or a message, which becomes JSON of A2A 1.0, or JSON of a recording.
    """
    return _Names().replaced(_json(value.outcome if isinstance(value, RemoteResult) else value))


def _json(value: Any) -> Any:
    names = cast('Mapping[str, Any]', value).keys() if isinstance(value, Mapping) else frozenset[str]()
    is_typed = {'id', 'context_id', 'status'} <= names or {'message_id', 'role', 'parts'} <= names
    return json_of(cast('Task | Message', value)) if is_typed else cast('Any', value)


class _Names:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def replaced(self, value: Any) -> Any:
        """Return JSON with other ids and times."""
        match value:
            case str():
                return _CHANGING.sub(self._name, value)
            case dict():
                items = cast('dict[str, Any]', value).items()
                return {self.replaced(key): self.replaced(member) for key, member in items}
            case list():
                return [self.replaced(member) for member in cast('list[Any]', value)]
            case _:
                return value

    def _name(self, match: re.Match[str]) -> str:
        return '<time>' if match['time'] else self._names.setdefault(match[0], f'<id {len(self._names) + 1}>')
