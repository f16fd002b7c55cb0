"""Agents that raise what ends a process: a real server goes on serving."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx
import pytest
from fasta2a.schema import Message
from pydantic_ai import Agent, RunContext, Tool, UserPromptPart
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import ToolDefinition

from pydantic_ai_a2a import CallContext, Messages, to_a2a

from ..app_client import LIVE
from ..behaviour.promised_behaviours import covers
from ..bounds import LIMIT
from .server import Process, rpc, uvicorn

V1 = {'A2A-Version': '1.0'}
PLACES = [
    'in_loop',
    'in_thread',
    'output',
    'model',
    'instructions',
    'system_prompt',
    'prepare',
    'history',
    'validator',
    'deps',
    'deps_closing',
]

# --- the agent, in a process of its own

CALLED = ('in_loop', 'in_thread', 'output')


def leave(text: Any, place: str) -> None:
    """Raise the exception that the message names, as in `model SystemExit`, if it names the place."""
    named, _, kind = str(text).partition(' ')
    if named == place:
        raise (asyncio.CancelledError if kind == 'CancelledError' else getattr(builtins, kind))('SECRET')


def prompt(messages: list[ModelMessage]) -> str:
    return str([part.content for each in messages for part in each.parts if isinstance(part, UserPromptPart)][-1])


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool that the message names; answer any other message with its text."""
    text = prompt(messages)
    leave(text, 'model')
    tool, _, kind = text.partition(' ')
    if tool not in CALLED:
        return ModelResponse(parts=[TextPart(text)])
    name = info.output_tools[0].name if tool == 'output' else tool
    return ModelResponse(parts=[ToolCallPart(name, {'kind': kind})])


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    for part in answer(messages, info).parts:
        if isinstance(part, ToolCallPart):
            yield {0: DeltaToolCall(part.tool_name, part.args_as_json_str())}
        elif isinstance(part, TextPart):
            yield part.content
    leave(prompt(messages), 'stream')


async def in_loop(kind: str) -> None:
    """Raise in the event loop."""
    leave(f'in_loop {kind}', 'in_loop')


def in_thread(kind: str) -> None:
    """Raise in a thread."""
    leave(f'in_thread {kind}', 'in_thread')


def ask(kind: str) -> Any:
    """Raise as an output function."""
    leave(f'output {kind}', 'output')


def prepare(ctx: RunContext[object], tool: ToolDefinition) -> ToolDefinition:
    leave(ctx.prompt, 'prepare')
    return tool


def history(ctx: RunContext[object], messages: list[ModelMessage]) -> list[ModelMessage]:
    leave(ctx.prompt, 'history')
    return messages


agent = Agent(
    FunctionModel(answer, stream_function=stream),
    name='exiting',
    tools=[Tool(in_loop, prepare=prepare), in_thread],
    output_type=[ask, str],
    end_strategy='exhaustive',
    capabilities=[ProcessHistory(history)],
)


@agent.instructions
def instructions(ctx: RunContext[object]) -> str:
    leave(ctx.prompt, 'instructions')
    return ''


@agent.system_prompt
async def system_prompt(ctx: RunContext[object]) -> str:
    leave(ctx.prompt, 'system_prompt')
    return ''


@agent.output_validator
def validate(ctx: RunContext[object], output: Any) -> Any:
    leave(ctx.prompt, 'validator')
    return output


@asynccontextmanager
async def dependencies(call: CallContext) -> AsyncGenerator[None]:
    text = call.message['parts'][0].get('text')
    leave(text, 'deps')
    yield
    leave(text, 'deps_closing')


async def rule(message: Message) -> Literal['task', 'message']:
    text = message['parts'][0].get('text', '')
    leave(text, 'reply')
    return 'message' if message.get('metadata', {}).get('direct') else 'task'


app = to_a2a(agent, deps_factory=dependencies, messages=Messages(reply=rule))


# --- its tests


@pytest.fixture(scope='module')
def server() -> Generator[Process]:
    with uvicorn('tests.e2e.test_exit_exceptions:app') as running:
        yield running


def post(server: Process, text: str, method: str = 'SendMessage', *, direct: bool = False) -> httpx.Response:
    message = {'messageId': f'{text} {method} {direct}', 'role': 'ROLE_USER', 'parts': [{'text': text}]}
    body = rpc(method, message=message | {'metadata': {'direct': direct}})
    return httpx.post(server.url, json=body, headers=V1 | LIVE, timeout=LIMIT, verify=False)


def send(server: Process, text: str) -> dict[str, Any]:
    return post(server, text).json()['result']['task']


@covers('failed run')
@pytest.mark.parametrize('kind', ['SystemExit', 'GeneratorExit'])
@pytest.mark.parametrize('place', PLACES)
def test_exit_exception_fails_only_its_task(server: Process, place: str, kind: str) -> None:
    failed = send(server, f'{place} {kind}')
    assert failed['status']['state'] == 'TASK_STATE_FAILED'
    said = failed['status']['message']
    assert said['metadata']['failure'] == 'internal'
    assert 'SECRET' not in str(failed)
    server.wait_for(rf'{said["metadata"]["correlationId"]}')
    answered = send(server, f'hello-{place}-{kind}')
    assert answered['status']['state'] == 'TASK_STATE_COMPLETED'


@pytest.mark.parametrize('kind', ['SystemExit', 'GeneratorExit'])
@pytest.mark.parametrize('place', ['in_loop', 'model', 'stream', 'instructions', 'prepare', 'history', 'validator'])
def test_exit_exception_fails_only_its_stream(server: Process, place: str, kind: str) -> None:
    streamed = post(server, f'{place} {kind}', 'SendStreamingMessage')
    assert 'TASK_STATE_FAILED' in streamed.text.split('data: ')[-1]
    assert 'SECRET' not in streamed.text
    assert send(server, f'hello-{place}-{kind}-streamed')['status']['state'] == 'TASK_STATE_COMPLETED'


@pytest.mark.parametrize('kind', ['SystemExit', 'GeneratorExit', 'CancelledError'])
@pytest.mark.parametrize('place', ['in_loop', 'model', 'validator', 'deps', 'reply'])
def test_exit_exception_fails_only_its_direct_reply(server: Process, place: str, kind: str) -> None:
    refused = post(server, f'{place} {kind}', direct=True)
    assert refused.json()['error']['code'] == -32603
    assert 'SECRET' not in refused.text
    server.wait_for(refused.headers['x-correlation-id'])
    answered = post(server, f'hello-{place}-{kind}', direct=True)
    assert answered.json()['result']['message']['parts'][0]['text'] == f'hello-{place}-{kind}'
