"""Agents at an engine, for tests that kill their processes; runs in servers and workers. The environment says which.

What an agent does depends on the first prompt of the conversation, such as 'union at look': the run waits in the tool
`look`, and ends with an output of a union. The ledger has what models, tools and hooks have begun.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from os import environ
from typing import Annotated, Any, NoReturn, TypeVar, cast

import dbos
from fastmcp.client.transports import StdioTransport
from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic_ai import Agent, BinaryContent, RunContext
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.exceptions import ContentFilterError, RunCancelled, UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.toolsets import DynamicToolset

from pydantic_ai_a2a import A2A, A2AToolset, Budget, Limits, Quotas, Retention, RunFailure, Workers, a2a, to_a2a
from pydantic_ai_a2a.engines.dbos import DBOS, stream_events
from pydantic_ai_a2a.engines.temporal import Temporal

from ..bounds import LIMIT, LOGS
from ..engines import ACTIVITIES, TOPIC, Heartbeats
from .file_gates import note, stop_at
from .metered import DAY, USED

AT_DBOS = environ['A2A_TEST_ENGINE'] == 'dbos'
KIND = environ['A2A_TEST_AGENT']
REMOTE = environ.get('A2A_TEST_REMOTE', '')
PICTURE = BinaryContent(b'picture', media_type='image/png')

Step = TypeVar('Step', bound=Callable[..., Awaitable[Any]])


def step(function: Step) -> Step:
    """A step of DBOS. At Temporal, each tool is an activity."""
    return cast('Step', dbos.DBOS.step()(function)) if AT_DBOS else function


# --- the model --------------------------------------------------------------------------------------------------------


class Approved(BaseModel):
    cents: int


class Refused(BaseModel):
    cents: int


class Offer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra='forbid')
    price_cents: Annotated[int, AfterValidator(lambda cents: cents * 100)]


@dataclass(frozen=True)
class Deps:
    word: str
    limit: timedelta


def user_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """The texts of the users."""
    contents = [part.content for sent in messages for part in sent.parts if isinstance(part, UserPromptPart)]
    return [content if isinstance(content, str) else str(content[0]) for content in contents]


def returned(messages: Sequence[ModelMessage]) -> list[str]:
    """What the tools have returned since the last text of a user."""
    parts = [part for sent in messages for part in sent.parts]
    last = max(n for n, part in enumerate(parts) if isinstance(part, UserPromptPart))
    return [f'{part.content}' for part in parts[last:] if isinstance(part, ToolReturnPart)]


def text(messages: Sequence[ModelMessage]) -> ModelResponse:
    """All that was said, without the points."""
    prompts = [prompt.partition(' at ')[0] for prompt in user_texts(messages)]
    return ModelResponse(parts=[TextPart(' + '.join([*prompts, *returned(messages)]))])


def files(messages: Sequence[ModelMessage]) -> ModelResponse:
    [prompt] = [part for sent in messages for part in sent.parts if isinstance(part, UserPromptPart)]
    heard = [item.data.decode() for item in prompt.content if isinstance(item, BinaryContent)]
    return ModelResponse(parts=[TextPart(' + '.join(heard)), FilePart(PICTURE)])


def approval(messages: Sequence[ModelMessage]) -> ModelResponse:
    calls = [ToolCallPart('delete', {'prompt': user_texts(messages)[0], 'path': path}, path) for path in ('a', 'b')]
    return text(messages) if len(returned(messages)) > 1 else ModelResponse(parts=calls)


def fail(messages: Sequence[ModelMessage]) -> NoReturn:
    raise FAILURES[user_texts(messages)[0].partition(' at ')[0]]


FAILURES: dict[str, Exception] = {
    'content filter': ContentFilterError('secret'),
    'usage limit': UsageLimitExceeded('secret'),
    'bad output': UnexpectedModelBehavior('secret'),
    'unknown error': ValueError('secret'),
}
ANSWERS: dict[str, Callable[[Sequence[ModelMessage]], ModelResponse]] = {
    'validated': lambda _: ModelResponse(parts=[ToolCallPart('final_result_Offer', {'priceCents': 7})]),
    'union': lambda _: ModelResponse(parts=[ToolCallPart('final_result_Refused', {'cents': 7})]),
    'files': files,
    'approval': approval,
    **dict.fromkeys(FAILURES, fail),
}


async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call `look`, and then answer."""
    prompt = user_texts(messages)[0]
    number = 1 + sum(isinstance(sent, ModelResponse) for sent in messages)
    note(f'model-{number} for {prompt}')
    await stop_at(f'model-{number}', prompt)
    if not returned(messages):
        response = ModelResponse(parts=[ToolCallPart('look', {'prompt': prompt})])
    elif KIND == 'remote' and len(returned(messages)) == 1:
        [name] = [tool.name for tool in info.function_tools if tool.name not in ('look', 'delete')]
        response = ModelResponse(parts=[ToolCallPart(name, {'message': prompt})])
    else:
        response = ANSWERS.get(prompt.partition(' at ')[0], text)(messages)
    return replace(response, usage=USED)


async def streamed(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Call `look`, and then answer with a gate within the text."""
    prompt = user_texts(messages)[0]
    if not returned(messages):
        yield {0: DeltaToolCall('look', f'{{"prompt": "{prompt}"}}', tool_call_id='look')}
        return
    yield 'Before the gate, '
    await stop_at('text', prompt)
    yield 'and after.'


# --- tools and hooks --------------------------------------------------------------------------------------------------


@step
async def looked(prompt: str, word: str) -> str:
    note(f'look for {prompt}')
    await stop_at('look', prompt)
    return word


async def look(ctx: RunContext[Deps], prompt: str) -> str:
    """Look."""
    if prompt.startswith('files'):
        await a2a(ctx).artifact(PICTURE, name='seen')
    return await looked(prompt, f'{ctx.deps.word} {ctx.deps.limit}' if prompt.startswith('deps') else 'seen')


@step
async def delete(prompt: str, path: str) -> str:
    """Delete a path."""
    await stop_at('delete', prompt)
    note(f'delete {path} for {prompt}')
    return f'no {path}'


async def on_complete(result: AgentRunResult[Any]) -> None:
    prompt = user_texts(result.all_messages())[0]
    note(f'completed {prompt}: {result.output!r}')
    await stop_at('hook', prompt)


def on_cancel(cancelled: RunCancelled) -> None:
    note(f'cancelled: {cancelled.usage.requests}')


def on_failure(failure: RunFailure) -> None:
    note(f'failed {failure.task_id}: {failure.kind}')


# --- the app ----------------------------------------------------------------------------------------------------------


def remote_toolset(ctx: RunContext[Any]) -> A2AToolset[Any]:
    return A2AToolset(REMOTE, context='call')


def made() -> Agent[Deps, Any]:
    mcp = StdioTransport(sys.executable, ['-m', 'tests.behaviour.file_gates'], env={**environ})
    durability = (
        DBOSDurability[Any](event_stream_handler=stream_events if KIND == 'streams' else None)
        if AT_DBOS
        else TemporalDurability[Any](
            event_stream_topic=TOPIC if KIND == 'streams' else None, activity_config=ACTIVITIES
        )
    )
    toolsets: dict[tuple[str, bool], list[Any]] = {
        ('mcp', True): [MCPToolset(mcp, id='looks', init_timeout=LIMIT)],
        ('mcp', False): [MCPToolset(mcp, id='looks', init_timeout=LIMIT)],
        ('remote', False): [DynamicToolset(remote_toolset, id='remote')],
    }
    agent: Agent[Deps, Any] = Agent(
        FunctionModel(model, stream_function=streamed) if KIND == 'streams' else FunctionModel(model),
        name='agent',
        tools=[] if KIND == 'mcp' else [look],
        toolsets=toolsets.get((KIND, AT_DBOS)),
        capabilities=[durability, *([A2A(REMOTE)] if KIND == 'remote' and AT_DBOS else [])],
        output_type=[str, Offer, Approved, Refused],
        deps_type=Deps,
    )
    agent.tool_plain(requires_approval=True)(delete)

    @agent.output_validator
    def dearer(output: Any) -> Any:
        return Offer.model_construct(price_cents=output.price_cents + 1) if isinstance(output, Offer) else output

    return agent


WORKERS = Workers(lease=1.0, drain_grace=1.0)

app = to_a2a(
    made(),
    deps_factory=lambda _: Deps('word', timedelta(hours=2)),
    backend=environ['A2A_TEST_BACKEND'],
    engine=DBOS(environ['A2A_TEST_DBOS'])
    if AT_DBOS
    else Temporal(
        environ['A2A_TEST_TEMPORAL'],
        task_queue=environ['A2A_TEST_QUEUE'],
        worker=False,
        interceptors=[Heartbeats()],
    ),
    workers=replace(WORKERS, attempts=20) if AT_DBOS else WORKERS,
    retention=Retention(events=LOGS),
    limits=Limits(quotas=Quotas(budgets=[Budget(window=DAY, requests=999)])),
    on_complete=on_complete,
    on_cancel=on_cancel,
    on_failure=on_failure,
)


# --- the remote agent, which is not killed ----------------------------------------------------------------------------


def ask_to_delete(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if returned(messages):
        return text(messages)
    return ModelResponse(parts=[ToolCallPart('delete_there', {'prompt': user_texts(messages)[0]})])


async def delete_there(prompt: str) -> str:
    """Delete."""
    note(f'delete there for {prompt}')
    await stop_at('delete there', prompt)
    return 'nothing there'


remote: Agent[object, Any] = Agent(FunctionModel(ask_to_delete), name='remote')
remote.tool_plain(requires_approval=True)(delete_there)
remote_app = to_a2a(remote)
