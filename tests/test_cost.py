"""What a task costs in countable things, which are the same on every machine: the gates that keep the hot path short.

Counted are calls of Python and C functions (cProfile), callbacks of the event loop, asyncio tasks, and JSON passes: how
often a text goes through a JSON parser or writer, be it `json`, `pydantic_core` or a `TypeAdapter`. What the agent
itself takes is counted beside it and taken off.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from cProfile import Profile
from hashlib import sha256
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any

import pydantic_core
import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage
from starlette.types import ASGIApp, Message

import pydantic_ai_a2a
from pydantic_ai_a2a import A2AApp, Messages, Progress, Results, to_a2a

from .app_client import LIMIT, Client, lifespan, message, texts
from .behaviour.asking import answers, approve

# Beside what the agent takes itself; newer Pythons than 3.11 take less, because they inline comprehensions.
SEND_CALLS = 640
STRUCTURED_CALLS = 800
SEND_CALLBACKS = 3
SEND_TASKS = 1
GET_CALLS = 148
HTTP_GET_CALLS = 204
CARD_CALLS = 42
SEND_OWN_CALLS = {'memory': 350, 'file': 355}
"""Of functions of the package, in the thread of the event loop: a tenth more than it takes."""
RESUME_OWN_CALLS = {'memory': 480, 'file': 485}
"""The same of an answer that approves a tool."""
RESUME_OVER_TOOL = 1.2
"""Calls of an answer that approves a tool, over the calls of a send whose run calls the same tool without approval.

An answer reads the pause before and the task after the run. The send has a model response more, and in a file the
checkpoint of that response."""
DELTA_CALLS = 52
DELTA_CALLBACKS = 1
HISTORY_CALLS = 0.5
"""For each message of the conversation that a run continues: none, as exactly as they can be counted."""

PARTIAL_CALLS = 10
"""Of a structured run without readers: the settings of partial data are made, and no output is validated."""

CLIENT_TOOLS_CALLS = 10
"""Of a send without tools, where clients may declare tools: no message is read again, and no toolset is added."""

WARM_UP, REPEATS = 4, 9
PACKAGE = f'{Path(pydantic_ai_a2a.__file__).parent}{os.sep}'


def said(messages: list[ModelMessage]) -> str:
    [*_, last] = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    return str(last.content)


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    # The usage is stated, because it would be estimated from the whole history.
    return ModelResponse(parts=[TextPart('The answer.')], usage=RequestUsage(input_tokens=1, output_tokens=1))


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """As many deltas as the prompt says."""
    for n in range(int(said(messages))):
        yield f'delta {n} '


AGENT = Agent(FunctionModel(answer, stream_function=stream), name='agent')


async def get(app: ASGIApp, path: str) -> bytes:
    """A GET request by the shortest way."""
    return await _exchange(app, {'method': 'GET', 'path': path, 'raw_path': path.encode()}, b'')


async def post(app: ASGIApp, body: bytes) -> bytes:
    """A JSON-RPC request by the shortest way, in the caller's task."""
    return await _exchange(app, {'method': 'POST', 'path': '/'}, body)


async def _exchange(app: ASGIApp, request: dict[str, Any], body: bytes) -> bytes:
    headers = [(b'host', b'testserver'), (b'content-type', b'application/json'), (b'a2a-version', b'1.0')]
    scope = {'type': 'http', 'query_string': b'', 'headers': headers, **request}
    over = asyncio.Event()
    inbox: list[Message] = [{'type': 'http.request', 'body': body}]
    parts: list[bytes] = []

    async def receive() -> Message:
        if not inbox:
            await over.wait()
            return {'type': 'http.disconnect'}
        return inbox.pop()

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


Work = Callable[[], Awaitable[object]]


def served(app: ASGIApp, bodies: Iterator[bytes], shows: bytes = b'TASK_STATE_COMPLETED') -> Work:
    async def work() -> None:
        assert shows in await post(app, next(bodies))

    return work


async def calls(work: Work) -> int:
    """How many functions one repetition calls at least: beside a load, timers of the server come between some."""
    counts: list[int] = []
    for _ in range(WARM_UP + REPEATS):
        profile = Profile()
        profile.enable()
        try:
            await work()
        finally:
            profile.disable()
        counts.append(sum(entry.callcount for entry in profile.getstats()))
    return min(counts[WARM_UP:])


async def own_calls(work: Work) -> int:
    """How many functions of the package one repetition calls at least in this thread.

    From Python 3.12 on, cProfile counts the calls of all threads.
    """
    counts: list[int] = []

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == 'call' and frame.f_code.co_filename.startswith(PACKAGE):
            counts[-1] += 1

    for _ in range(WARM_UP + REPEATS):
        counts.append(0)
        sys.setprofile(count)
        try:
            await work()
        finally:
            sys.setprofile(None)
    return min(counts[WARM_UP:])


async def scheduled(work: Work, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What one repetition asks of the event loop, by the name of the loop's method."""
    loop = asyncio.get_running_loop()
    counts: list[Counter[str]] = []

    def counted(name: str) -> Callable[..., Any]:
        method = getattr(loop, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            counts[-1][name] += 1
            return method(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in ('call_soon', 'create_task', 'call_soon_threadsafe', 'run_in_executor'):
            patch.setattr(loop, name, counted(name))
        for _ in range(WARM_UP + REPEATS):
            counts.append(Counter())
            await work()
    return Counter({name: min(count[name] for count in counts[WARM_UP:]) for name in counts[-1]})


class Passes:
    """The JSON that is read and written while it is installed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._read: list[str] = []
        self._written: list[str] = []
        readers = (json.loads, pydantic_core.from_json)
        writers = (json.dumps, pydantic_core.to_json)
        ours = [module for name, module in sys.modules.items() if name.startswith('pydantic_ai_a2a.')]
        for module in (json, *ours):
            for name, value in list(vars(module).items()):
                if value in readers:
                    monkeypatch.setattr(module, name, self._reader(value))
                if value in writers:
                    monkeypatch.setattr(module, name, self._writer(value))
        monkeypatch.setattr(TypeAdapter, 'validate_json', self._reader(TypeAdapter[Any].validate_json, 1))
        monkeypatch.setattr(TypeAdapter, 'dump_json', self._writer(TypeAdapter[Any].dump_json))

    def _reader(self, real: Callable[..., Any], position: int = 0) -> Callable[..., Any]:
        def read(*args: Any, **kwargs: Any) -> Any:
            self._read.append(_text(args[position]))
            return real(*args, **kwargs)

        return read

    def _writer(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **kwargs: Any) -> Any:
            written = real(*args, **kwargs)
            self._written.append(_text(written))
            return written

        return write

    def of(self, text: str) -> dict[str, int]:
        """How often a text was read and written."""
        return {
            'read': sum(text in document for document in self._read),
            'written': sum(text in document for document in self._written),
        }


def _text(document: str | bytes) -> str:
    return document if isinstance(document, str) else document.decode()


async def test_plain_send_adds_few_calls_to_agent_run() -> None:
    app = to_a2a(AGENT)
    async with lifespan(app), asyncio.timeout(LIMIT):
        alone = await calls(lambda: AGENT.run('hello'))
        sent = await calls(served(app, sends('SendMessage')))
    assert sent - alone <= SEND_CALLS


class Weather(BaseModel):
    sunny: bool


async def forecast(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart('final_result', {'sunny': True})], usage=RequestUsage(input_tokens=1))


async def test_structured_output_adds_few_calls_to_agent_run() -> None:
    agent = Agent(FunctionModel(forecast), output_type=Weather, name='agent')
    app = to_a2a(agent)
    async with lifespan(app), asyncio.timeout(LIMIT):
        alone = await calls(lambda: agent.run('hello'))
        sent = await calls(served(app, sends('SendMessage')))
    assert sent - alone <= STRUCTURED_CALLS


async def test_partial_data_without_readers_adds_few_calls() -> None:
    counts: list[int] = []
    for partial_data in (False, True):
        agent = Agent(FunctionModel(forecast, stream_function=stream), output_type=Weather)
        app = to_a2a(agent, results=Results(progress=Progress(partial_data=partial_data)))
        async with lifespan(app), asyncio.timeout(LIMIT):
            counts.append(await calls(served(app, sends('SendMessage'))))
    without, with_partial_data = counts
    assert with_partial_data - without <= PARTIAL_CALLS


async def test_client_tools_option_adds_few_calls_to_send() -> None:
    counts: list[int] = []
    for client_tools in (False, True):
        app = to_a2a(AGENT, messages=Messages(client_tools=client_tools))
        async with lifespan(app), asyncio.timeout(LIMIT):
            counts.append(await calls(served(app, sends('SendMessage'))))
    without, where_allowed = counts
    assert where_allowed - without <= CLIENT_TOOLS_CALLS


@pytest.mark.parametrize('place', ['memory', 'file'])
async def test_plain_send_makes_few_package_calls(place: str, tmp_path: Path) -> None:
    app = to_a2a(AGENT, backend='memory' if place == 'memory' else f'sqlite:///{tmp_path / "tasks.db"}')
    async with lifespan(app), asyncio.timeout(LIMIT):
        calls = await own_calls(served(app, sends('SendMessage')))
    assert calls <= SEND_OWN_CALLS[place]


@pytest.mark.parametrize('place', ['memory', 'file'])
async def test_approval_answer_makes_few_package_calls(place: str, tmp_path: Path) -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 2:
            return await answer(messages, info)
        return ModelResponse(parts=[ToolCallPart('delete', {'path': 'a'}, 'c1')], usage=RequestUsage(input_tokens=1))

    async def delete(path: str) -> str:
        return f'deleted {path}'

    def app_of(name: str, *, asks: bool) -> A2AApp:
        agent = Agent(FunctionModel(model), tools=[Tool(delete, requires_approval=asks)], name='agent')
        return to_a2a(agent, backend='memory' if place == 'memory' else f'sqlite:///{tmp_path / name}.db')

    app = app_of('plain', asks=False)
    async with lifespan(app), asyncio.timeout(LIMIT):
        sent = await own_calls(served(app, sends('SendMessage', 'delete')))
    app = app_of('asking', asks=True)
    async with lifespan(app), asyncio.timeout(LIMIT):
        tasks = [await Client(app).send('delete') for _ in range(WARM_UP + REPEATS)]
        bodies = [request('SendMessage', {'message': answers(task, approve('c1'))}) for task in tasks]
        resumed = await own_calls(served(app, iter(bodies)))
    assert resumed <= RESUME_OWN_CALLS[place]
    assert resumed <= RESUME_OVER_TOOL * sent


async def test_plain_send_schedules_few_event_loop_callbacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = to_a2a(AGENT)
    async with lifespan(app), asyncio.timeout(LIMIT):
        alone = await scheduled(lambda: AGENT.run('hello'), monkeypatch)
        sent = await scheduled(served(app, sends('SendMessage')), monkeypatch)
    more = sent - alone
    assert more.pop('call_soon') <= SEND_CALLBACKS
    assert more == {'create_task': SEND_TASKS}


async def test_stored_task_is_sent_without_json_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    app = to_a2a(AGENT)
    async with lifespan(app), asyncio.timeout(LIMIT):
        task = await Client(app).send('a question')
        get = [request('GetTask', {'id': task['id']})] * (WARM_UP + REPEATS)
        assert await calls(served(app, iter(get))) <= GET_CALLS
        passes = Passes(monkeypatch)
        found = await post(app, get[0])
        assert passes.of('a question') == passes.of('The answer.') == {'read': 0, 'written': 0}
    assert b'a question' in found
    assert b'The answer.' in found


async def test_http_get_of_card_and_task_takes_few_calls() -> None:
    app = to_a2a(AGENT)
    async with lifespan(app), asyncio.timeout(LIMIT):
        task = await Client(app).send('a question')
        assert await calls(lambda: get(app, '/.well-known/agent-card.json')) <= CARD_CALLS
        assert await calls(lambda: get(app, f'/tasks/{task["id"]}')) <= HTTP_GET_CALLS


async def test_message_and_answer_pass_json_fixed_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    app = to_a2a(AGENT)
    async with lifespan(app), asyncio.timeout(LIMIT):
        [body, *_] = sends('SendMessage', 'a question')
        passes = Passes(monkeypatch)
        assert b'TASK_STATE_COMPLETED' in await post(app, body)
    # Read from the request, and for the run from the store; written for the task's history and for the conversation.
    assert passes.of('a question') == {'read': 2, 'written': 2}
    # Written as artifact, as message of the task's history, and for the conversation.
    assert passes.of('The answer.') == {'read': 0, 'written': 3}


class LongSteps:
    """The steps that read, write, hash or decode more than 256 kB, in order, with the threads that take them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[tuple[str, int]] = []
        self.decoded = 0
        """Characters of base64 that were decoded."""
        functions = (json.loads, json.dumps, pydantic_core.from_json, pydantic_core.to_json, sha256)
        ours = [module for name, module in sys.modules.items() if name.startswith('pydantic_ai_a2a.')]
        for module in (json, *ours):
            for name, value in list(vars(module).items()):
                if value in functions:
                    monkeypatch.setattr(module, name, self._counted(value))
        for name in ('validate_json', 'dump_json'):
            monkeypatch.setattr(TypeAdapter, name, self._counted(getattr(TypeAdapter, name)))
        monkeypatch.setattr(binascii, 'a2b_base64', self._decoder(binascii.a2b_base64))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            if max(len(value) for value in (*args, result, b'') if isinstance(value, str | bytes)) > 262_144:
                self.taken.append((real.__name__, get_ident()))
            return result

        return step

    def _decoder(self, real: Callable[..., bytes]) -> Callable[..., bytes]:
        def decode(text: str, **kwargs: Any) -> bytes:
            self.decoded += len(text)
            self.taken.append(('a2b_base64', get_ident()))
            return real(text, **kwargs)

        return decode


@pytest.mark.parametrize('place', ['memory', 'file'])
async def test_long_message_is_decoded_once_outside_event_loop(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        before_the_model.append([*steps.taken])
        return ModelResponse(parts=[TextPart('The answer.')])

    # The base64 has the letters NaN, which are no number there.
    raw = base64.b64encode(b'%PDF-1.7\n\0' + bytes(5_000_000)).decode()[:-8] + 'NaNNaN=='
    sent = message('Read this.') | {'parts': [{'raw': raw, 'mediaType': 'application/pdf'}]}
    backend = 'memory' if place == 'memory' else f'sqlite:///{tmp_path / "tasks.db"}'
    app = to_a2a(Agent(FunctionModel(model), name='agent'), backend=backend)
    body = request('SendMessage', {'message': sent})
    before_the_model: list[list[tuple[str, int]]] = []
    steps = LongSteps(monkeypatch)
    async with lifespan(app), asyncio.timeout(LIMIT):
        assert b'TASK_STATE_COMPLETED' in await post(app, body)
    [taken] = before_the_model
    names = [name for name, _ in taken]
    assert [name for name in dict.fromkeys(names) if name != 'a2b_base64'] == [
        'validate_json',  # the request
        'to_json',  # its parts, to be stored
        'openssl_sha256',
        'from_json',  # the stored message, for the run
    ]
    assert steps.decoded // len(raw) == 1
    # JSON with one long string is read in a millisecond.
    assert {name for name, thread in taken if thread == get_ident()} <= {'from_json'}


async def test_stream_delta_adds_few_calls_to_agent_run(monkeypatch: pytest.MonkeyPatch) -> None:
    app = to_a2a(AGENT, results=Results(stream='replace', interval=3600))  # as many pieces on a slow machine

    def streamed_bare(deltas: int) -> Work:
        async def work() -> None:
            async with AGENT.iter(str(deltas)) as run:
                async for node in run:
                    if Agent.is_model_request_node(node):
                        async with node.stream(run.ctx) as events:
                            async for _ in events:
                                pass

        return work

    def streamed(deltas: int) -> Work:
        return served(app, sends('SendStreamingMessage', str(deltas)))

    async def callbacks(work: Work) -> int:
        return (await scheduled(work, monkeypatch))['call_soon']

    async def of_each_delta(measure: Callable[[Work], Awaitable[int]]) -> float:
        ours = await measure(streamed(60)) - await measure(streamed(20))
        bare = await measure(streamed_bare(60)) - await measure(streamed_bare(20))
        return (ours - bare) / 40

    async with lifespan(app), asyncio.timeout(LIMIT):
        assert await of_each_delta(calls) <= DELTA_CALLS
        assert await of_each_delta(callbacks) <= DELTA_CALLBACKS


@pytest.mark.parametrize('readers', [1, 5])
async def test_event_is_encoded_once_for_all_subscribers(readers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    everybody_reads = asyncio.Event()

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield 'delta 0 '
        await everybody_reads.wait()
        yield 'delta 1 '
        yield 'delta 2 '

    app = to_a2a(Agent(FunctionModel(stream_function=model)))
    passes = Passes(monkeypatch)
    async with lifespan(app), asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        first = await stack.enter_async_context(Client(app).live.send_streaming())
        snapshot, *_ = [await anext(first) for _ in ('task', 'working', 'delta 0')]
        task_id = snapshot.result['task']['id']
        others = [await stack.enter_async_context(Client(app).live.subscribe(task_id)) for _ in range(readers - 1)]
        for other in others:
            await anext(other)
        everybody_reads.set()
        rest = [await each.rest() for each in (first, *others)]
        task = await Client(app).get_task(task_id)
    assert texts(task) == ['delta 0 delta 1 delta 2 ']
    assert rest == [rest[0]] * readers
    # One event, and once more with the whole text: as artifact, as message, and for the conversation.
    assert passes.of('delta 1 ')['written'] == 1 + 3


async def test_turn_cost_does_not_grow_with_conversation() -> None:
    app = to_a2a(AGENT)
    async with lifespan(app), asyncio.timeout(LIMIT):
        context_id = (await Client(app).send())['contextId']

        async def turn() -> tuple[int, int]:
            """How many messages there are, and what a turn takes beside the run that continues them."""
            sent = await calls(served(app, sends('SendMessage', contextId=context_id)))
            conversation = await app.conversations().load(context_id)
            assert conversation is not None
            history = conversation.messages
            bare = await calls(lambda: AGENT.run('hello', message_history=history, conversation_id=context_id))
            return len(history), sent - bare

        (few, cost_of_few), (many, cost_of_many) = [await turn() for _ in range(2)]
    assert (cost_of_many - cost_of_few) / (many - few) <= HISTORY_CALLS


def loaded(code: str) -> set[str]:
    """The modules that code loads in a new process beside those of Pydantic AI and Starlette."""
    show = (
        'import sys, pydantic_ai, starlette.applications; before = set(sys.modules)'
        f"\n{code}\nprint(*(sys.modules.keys() - before), sep='\\n')"
    )
    ran = subprocess.run([sys.executable, '-c', show], capture_output=True, text=True, timeout=LIMIT, check=True)
    return set(ran.stdout.split())


def test_package_import_loads_only_agent_method() -> None:
    own = {'', '.server', '.server.app', '.server.app.agent_method'}
    assert loaded('import pydantic_ai_a2a') == {f'pydantic_ai_a2a{name}' for name in own}


def test_client_import_loads_no_server() -> None:
    modules = loaded('from pydantic_ai_a2a import A2AClient')
    server = (
        'pydantic_ai_a2a.server.app.a2a_app',
        'pydantic_ai_a2a.server.http',
        'pydantic_ai_a2a.server.runs',
        'pydantic_ai_a2a.server.service',
    )
    assert [name for name in modules if name.startswith(server)] == []


def test_app_loads_no_optional_modules() -> None:
    modules = loaded('from pydantic_ai_a2a import to_a2a; to_a2a(pydantic_ai.Agent())')
    backends = ('server.store.postgres.backend', 'server.store.sqlite.backend')
    own_parts = tuple(f'server.fasta2a.{part}_' for part in ('agent', 'broker', 'shared', 'storage', 'worker'))
    dialects = ('wire.protocol.fasta2a_dialect', 'wire.protocol.v0_3')
    authentication = tuple(f'server.auth.{way}' for way in ('api_keys', 'bearer_tokens', 'jwt', 'starlette'))
    lists = (*authentication, *backends, *dialects, *own_parts)
    rooms = ('commands', 'engines', 'server.push', 'testing', 'server.app.serve', *lists)
    files = [path.relative_to(PACKAGE).as_posix().replace('/', '.') for path in Path(PACKAGE).rglob('*.py')]
    assert [room for room in rooms if not any(file.startswith(room) for file in files)] == []
    foreign = (
        'asyncpg',
        'click',
        'dbos',
        'jwt',
        'rfc8785',
        'multiprocessing.pool',
        'uvicorn',
        'pydantic_ai.models.function',
    )
    unneeded = (*(f'pydantic_ai_a2a.{room}' for room in rooms), *foreign)
    assert [name for name in modules if name.startswith(unneeded)] == []
