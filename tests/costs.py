"""The harness of the gates of costs: repeated work, the least that it takes, and what is counted.

What a task costs is counted in things that are the same on every machine: calls of functions, callbacks of the event
loop, passes of JSON, statements, and bytes. The agents are those of the benchmarks, which measure the rest.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from cProfile import Profile
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, TextPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from starlette.types import ASGIApp, Message

import pydantic_ai_a2a
from benchmarks.agents import answer, prompt

from .app_client import message

WARM_UP, REPEATS = 4, 9
PACKAGE = f'{Path(pydantic_ai_a2a.__file__).parent}{os.sep}'

Work = Callable[[], Awaitable[object]]
"""Done once, it is counted once."""


class Repeats:
    """Repetitions of some work, and the least that one takes: timers of the server may come between some.

    The work is awaited where it is counted: a coroutine between both would be counted each time that it resumes.
    """

    def __init__(self, counts: Counter[str] | None = None) -> None:
        self._counts = Counter[str]() if counts is None else counts
        self._taken: list[Counter[str]] = []

    def __iter__(self) -> Iterator[Counter[str]]:
        """Begin the repetitions, each with empty counts."""
        for _ in range(WARM_UP + REPEATS):
            self._counts.clear()
            yield self._counts
            self._taken.append(self._counts.copy())

    def least(self) -> Counter[str]:
        """Return the least of each count."""
        return Counter({name: min(counts[name] for counts in self._taken[WARM_UP:]) for name in self._taken[-1]})


async def least(work: Work, counts: Counter[str]) -> Counter[str]:
    """Return the least that one repetition adds to counts."""
    repeats = Repeats(counts)
    for _ in repeats:
        await work()
    return repeats.least()


async def calls(work: Work) -> int:
    """Return the number of functions, of Python and of C, that one repetition calls."""
    repeats = Repeats()
    for counts in repeats:
        profile = Profile()
        profile.enable()
        try:
            await work()
        finally:
            profile.disable()
        counts['calls'] = sum(entry.callcount for entry in profile.getstats())
    return repeats.least()['calls']


def counter_of_calls(counts: Counter[str], *folders: str) -> Callable[[FrameType, str, object], None]:
    """Return a profile function that counts the calls of Python functions in some folders."""

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == 'call' and frame.f_code.co_filename.startswith(folders):
            counts['calls'] += 1

    return count


async def own_calls(work: Work) -> int:
    """Return the number of functions of the package that one repetition calls in this thread.

    From Python 3.12 on, cProfile counts the calls of all threads.
    """
    repeats = Repeats()
    for counts in repeats:
        sys.setprofile(counter_of_calls(counts, PACKAGE))
        try:
            await work()
        finally:
            sys.setprofile(None)
    return repeats.least()['calls']


async def scheduled(work: Work, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return what one repetition asks of the event loop, by the name of the loop's method."""
    loop = asyncio.get_running_loop()
    counts: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        method = getattr(loop, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return method(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in ('call_soon', 'create_task', 'call_soon_threadsafe', 'run_in_executor'):
            patch.setattr(loop, name, counted(name))
        return await least(work, counts)


def replace_in_package(
    monkeypatch: pytest.MonkeyPatch, functions: Collection[Any], wrap: Callable[[Any], Callable[..., Any]]
) -> None:
    """Wrap functions in `json`, and wherever the package has imported them."""
    ours = [module for name, module in sys.modules.items() if name.startswith('pydantic_ai_a2a.')]
    for module in (json, *ours):
        for name, value in list(vars(module).items()):
            if value in functions:
                monkeypatch.setattr(module, name, wrap(value))


# --- an agent, and requests by the shortest way


async def text(messages: list[ModelMessage], info: AgentInfo) -> Any:
    return answer(TextPart('The answer.'))


async def deltas(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """As many deltas as the prompt says."""
    for n in range(int(prompt(messages))):
        yield f'delta {n} '


AGENT = Agent(FunctionModel(text, stream_function=deltas), name='agent')


def store(place: str, folder: Path, name: str = 'tasks') -> str:
    """Return the backend of an app: in memory, or in a file."""
    return 'memory' if place == 'memory' else f'sqlite:///{folder / name}.db'


async def get(app: ASGIApp, path: str) -> bytes:
    """Return the response to a GET request."""
    return await _exchange(app, {'method': 'GET', 'path': path, 'raw_path': path.encode()}, b'')


async def post(app: ASGIApp, body: bytes) -> bytes:
    """Return the response to a JSON-RPC request, in the caller's task."""
    return await _exchange(app, {'method': 'POST', 'path': '/'}, body)


async def _exchange(app: ASGIApp, request: dict[str, Any], body: bytes) -> bytes:
    headers = [(b'host', b'testserver'), (b'content-type', b'application/json'), (b'a2a-version', b'1.0')]
    scope = {'type': 'http', 'query_string': b'', 'headers': headers, **request}
    over = asyncio.Event()
    messages: list[Message] = [{'type': 'http.request', 'body': body}]
    parts: list[bytes] = []

    async def receive() -> Message:
        if not messages:
            await over.wait()
            return {'type': 'http.disconnect'}
        return messages.pop()

    async def send(sent: Message) -> None:
        if sent['type'] == 'http.response.body':
            parts.append(sent['body'])
            if not sent.get('more_body'):
                over.set()

    await app(scope, receive, send)
    return b''.join(parts)


def request(method: str, params: Any) -> bytes:
    return json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode()


def sends(method: str, text: str = 'hello', *, repeats: int = WARM_UP + REPEATS, **fields: Any) -> Iterator[bytes]:
    """Requests made beforehand, each with a message of its own."""
    return iter([request(method, {'message': message(text, **fields)}) for _ in range(repeats)])


def served(app: ASGIApp, bodies: Iterator[bytes], shows: bytes = b'TASK_STATE_COMPLETED') -> Work:
    """Return the work of a server for the next of some requests."""

    async def work() -> None:
        assert shows in await post(app, next(bodies))

    return work
