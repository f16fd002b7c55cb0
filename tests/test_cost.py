"""Gates that keep the hot path short: calls of functions, callbacks of the event loop, asyncio tasks, JSON passes.

A JSON pass is a text that goes through a JSON parser or writer, be it `json`, `pydantic_core` or a `TypeAdapter`. What
the agent itself takes is counted beside it and taken off.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from threading import get_ident
from typing import Any

import pydantic_core
import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from benchmarks.agents import answer
from pydantic_ai_a2a import Messages, Progress, Results, to_a2a

from .app_client import LIMIT, Client, lifespan, message, texts
from .behaviour.pending_calls import answer_message, approve
from .costs import (
    AGENT,
    PACKAGE,
    REPEATS,
    WARM_UP,
    Work,
    deltas,
    get,
    own_calls,
    post,
    replace_in_package,
    request,
    store,
)
from .costs import calls as count_calls
from .costs import scheduled as count_callbacks
from .costs import sends as send_requests
from .costs import served as request_work
from .serving import running_app

# Beside what the agent takes itself; newer Pythons than 3.11 take less, because they inline comprehensions. Each gate
# has room for the calls that depend on the clock: a time of the same millisecond is written once.
SEND_CALLS = 650
STRUCTURED_CALLS = 815
SEND_CALLBACKS = 3
SEND_TASKS = 1
GET_CALLS = 148
HTTP_GET_CALLS = 204
CARD_CALLS = 42
SEND_OWN_CALLS = {'memory': 350, 'file': 355}
"""Of functions of the package, in the thread of the event loop: a tenth more than it takes."""
RESUME_OWN_CALLS = {'memory': 480, 'file': 485}
"""The same of an answer that approves a tool."""
RESUME_OVER_TOOL = 1.25
"""Calls of an answer that approves a tool, over the calls of a send whose run calls the same tool without approval.

An answer reads the pause before and the task after the run. The send has a model response more, and in a file the
checkpoint of that response. In memory it is 1.2."""
DELTA_CALLS = 45
DELTA_CALLBACKS = 1
HISTORY_CALLS = 0.5
"""For each message of the conversation that a run continues: none, as exactly as they can be counted."""

PARTIAL_CALLS = 10
"""Of a structured run without readers: the settings of partial data are made, and no output is validated."""

CLIENT_TOOLS_CALLS = 10
"""Of a send without tools, where clients may declare tools: no message is read again, and no toolset is added."""


class JsonPasses:
    """The JSON that is read and written while it is installed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._read: list[str] = []
        self._written: list[str] = []
        readers = (json.loads, pydantic_core.from_json)
        writers = (json.dumps, pydantic_core.to_json)
        replace_in_package(monkeypatch, readers, self._reader)
        replace_in_package(monkeypatch, writers, self._writer)
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


class Weather(BaseModel):
    sunny: bool


async def forecast(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return answer(ToolCallPart('final_result', {'sunny': True}))


FORECAST = Agent(FunctionModel(forecast, stream_function=deltas), output_type=Weather, name='agent')


@pytest.mark.parametrize(
    ('agent', 'most'), [(AGENT, SEND_CALLS), (FORECAST, STRUCTURED_CALLS)], ids=['text', 'structured output']
)
async def test_send_adds_few_calls_to_agent_run(agent: Agent[None, Any], most: int) -> None:
    async with running_app(agent) as app:
        alone = await count_calls(lambda: agent.run('hello'))
        sent = await count_calls(request_work(app, send_requests('SendMessage')))
    assert sent - alone <= most


@pytest.mark.parametrize(
    ('agent', 'option', 'most'),
    [
        (FORECAST, {'results': Results(progress=Progress(partial_data=True))}, PARTIAL_CALLS),
        (AGENT, {'messages': Messages(client_tools=True)}, CLIENT_TOOLS_CALLS),
    ],
    ids=['partial data', 'client tools'],
)
async def test_option_without_use_adds_few_calls_to_send(
    agent: Agent[None, Any], option: dict[str, Any], most: int
) -> None:
    counts: list[int] = []
    for options in ({}, option):
        async with running_app(agent, **options) as app:
            counts.append(await count_calls(request_work(app, send_requests('SendMessage'))))
    without, with_option = counts
    assert with_option - without <= most


@pytest.mark.parametrize('place', ['memory', 'file'])
async def test_plain_send_makes_few_package_calls(place: str, tmp_path: Path) -> None:
    async with running_app(AGENT, backend=store(place, tmp_path)) as app:
        assert await own_calls(request_work(app, send_requests('SendMessage'))) <= SEND_OWN_CALLS[place]


@pytest.mark.parametrize('place', ['memory', 'file'])
async def test_approval_answer_makes_few_package_calls(place: str, tmp_path: Path) -> None:
    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 2:
            return answer(TextPart('The answer.'))
        return answer(ToolCallPart('delete', {'path': 'a'}, 'c1'))

    async def delete(path: str) -> str:
        return f'deleted {path}'

    plain, asking = (
        Agent(FunctionModel(model), tools=[Tool(delete, requires_approval=asks)], name='agent')
        for asks in (False, True)
    )
    async with running_app(plain, backend=store(place, tmp_path, 'plain')) as app:
        sent = await own_calls(request_work(app, send_requests('SendMessage', 'delete')))
    async with running_app(asking, backend=store(place, tmp_path, 'asking')) as app:
        tasks = [await Client(app).send('delete') for _ in range(WARM_UP + REPEATS)]
        bodies = [request('SendMessage', {'message': answer_message(task, approve('c1'))}) for task in tasks]
        resumed = await own_calls(request_work(app, iter(bodies)))
    assert resumed <= RESUME_OWN_CALLS[place]
    assert resumed <= RESUME_OVER_TOOL * sent


async def test_plain_send_schedules_few_event_loop_callbacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_app(AGENT) as app:
        alone = await count_callbacks(lambda: AGENT.run('hello'), monkeypatch)
        sent = await count_callbacks(request_work(app, send_requests('SendMessage')), monkeypatch)
    more = sent - alone
    assert more.pop('call_soon') <= SEND_CALLBACKS
    assert more == {'create_task': SEND_TASKS}


async def test_stored_task_is_sent_without_json_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_app(AGENT) as app:
        task = await Client(app).send('a question')
        get = [request('GetTask', {'id': task['id']})] * (WARM_UP + REPEATS)
        assert await count_calls(request_work(app, iter(get))) <= GET_CALLS
        passes = JsonPasses(monkeypatch)
        found = await post(app, get[0])
        assert passes.of('a question') == passes.of('The answer.') == {'read': 0, 'written': 0}
    assert b'a question' in found
    assert b'The answer.' in found


async def test_http_get_of_card_and_task_takes_few_calls() -> None:
    async with running_app(AGENT) as app:
        task = await Client(app).send('a question')
        assert await count_calls(lambda: get(app, '/.well-known/agent-card.json')) <= CARD_CALLS
        assert await count_calls(lambda: get(app, f'/tasks/{task["id"]}')) <= HTTP_GET_CALLS


async def test_message_and_answer_pass_json_fixed_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_app(AGENT) as app:
        [body, *_] = send_requests('SendMessage', 'a question')
        passes = JsonPasses(monkeypatch)
        assert b'TASK_STATE_COMPLETED' in await post(app, body)
    # Read from the request, and for the run from the store; written for the task's history and for the conversation.
    assert passes.of('a question') == {'read': 2, 'written': 2}
    # Written as artifact, as message of the task's history, and for the conversation.
    assert passes.of('The answer.') == {'read': 0, 'written': 3}


class LargeOperations:
    """The steps that read, write, hash or decode more than 256 kB, in order, with the threads that take them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[tuple[str, int]] = []
        self.decoded = 0
        """Characters of base64 that were decoded."""
        functions = (json.loads, json.dumps, pydantic_core.from_json, pydantic_core.to_json, sha256)
        replace_in_package(monkeypatch, functions, self._counted)
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
    body = request('SendMessage', {'message': sent})
    before_the_model: list[list[tuple[str, int]]] = []
    steps = LargeOperations(monkeypatch)
    agent = Agent(FunctionModel(model), name='agent')
    async with running_app(agent, backend=store(place, tmp_path)) as app:
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
        return request_work(app, send_requests('SendStreamingMessage', str(deltas)))

    async def callbacks(work: Work) -> int:
        return (await count_callbacks(work, monkeypatch))['call_soon']

    async def of_each_delta(measure: Callable[[Work], Awaitable[int]]) -> float:
        ours = await measure(streamed(60)) - await measure(streamed(20))
        bare = await measure(streamed_bare(60)) - await measure(streamed_bare(20))
        return (ours - bare) / 40

    async with lifespan(app), asyncio.timeout(LIMIT):
        assert await of_each_delta(count_calls) <= DELTA_CALLS
        assert await of_each_delta(callbacks) <= DELTA_CALLBACKS


@pytest.mark.parametrize('readers', [1, 5])
async def test_event_is_encoded_once_for_all_subscribers(readers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    everybody_reads = asyncio.Event()

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield 'delta 0 '
        await everybody_reads.wait()
        yield 'delta 1 '
        yield 'delta 2 '

    passes = JsonPasses(monkeypatch)
    agent = Agent(FunctionModel(stream_function=model))
    async with running_app(agent) as app, AsyncExitStack() as stack:
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
    async with running_app(AGENT) as app:
        context_id = (await Client(app).send())['contextId']

        async def turn() -> tuple[int, int]:
            """How many messages there are, and what a turn takes beside the run that continues them."""
            sent = await count_calls(request_work(app, send_requests('SendMessage', contextId=context_id)))
            conversation = await app.conversations().load(context_id)
            assert conversation is not None
            history = conversation.messages
            bare = await count_calls(lambda: AGENT.run('hello', message_history=history, conversation_id=context_id))
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
