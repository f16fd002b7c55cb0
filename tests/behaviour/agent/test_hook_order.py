"""The hooks of Pydantic AI in runs of tasks: each as often as in `agent.run`, in the same order, watched or not."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic_ai import Agent, CallToolsNode, ModelRequestNode, ModelRetry, RunContext
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.capabilities import AbstractCapability, Hooks
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.result import FinalResult
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved
from pydantic_graph import End

from pydantic_ai_a2a import A2AApp, to_a2a

from ...agents import user_prompts
from ...app_client import Client, state_of, texts
from ...serving import each_backend, serving
from ..pending_calls import answer_message, approve

HOOKS = [
    name
    for name, hook in vars(AbstractCapability).items()
    if inspect.iscoroutinefunction(hook)
    and name.startswith(('before_', 'after_', 'wrap_', 'on_', 'prepare_'))
    # A capability with this hook has each node streamed, also in `agent.run`.
    and name != 'on_event'
]


def _recorded(name: str) -> Callable[..., Any]:
    async def hook(self: Any, ctx: RunContext[Any], *args: Any, **kwargs: Any) -> Any:
        node = kwargs.get('node')
        self.seen.append(name if node is None else f'{name} {type(node).__name__}')
        return await getattr(super(Recorded, self), name)(ctx, *args, **kwargs)

    return hook


class Recorded(AbstractCapability[Any]):
    """Notes each call of a hook."""

    def __init__(self) -> None:
        self.seen: list[str] = []


for _name in HOOKS:
    setattr(Recorded, _name, _recorded(_name))


def _response(messages: list[ModelMessage]) -> TextPart | ToolCallPart:
    returned = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    prompt = user_prompts(messages)[-1]
    if prompt == 'fail':
        raise ZeroDivisionError('the model fails')
    return ToolCallPart(prompt, {}, 'c1') if prompt in ('look', 'delete') and not returned else TextPart('done')


def _answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[_response(messages)])


async def _stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    part = _response(messages)
    if isinstance(part, TextPart):
        yield part.content
    else:
        yield {0: DeltaToolCall(part.tool_name, '{}', tool_call_id=part.tool_call_id)}


def agent_with(*capabilities: AbstractCapability[Any], **options: Any) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(
        FunctionModel(_answer, stream_function=_stream), name='agent', capabilities=[*capabilities], **options
    )

    @agent.tool_plain
    def look() -> str:
        return 'found'

    @agent.tool_plain(requires_approval=True)
    def delete() -> str:
        return 'deleted'

    return agent


async def _in_agent_run(prompt: str) -> list[str]:
    """The hooks that `agent.run` calls, also to go on after an approval."""
    recorded = Recorded()
    agent = agent_with(recorded, output_type=[str, DeferredToolRequests])
    try:
        result = await agent.run(prompt)
        if isinstance(result.output, DeferredToolRequests):
            approved = DeferredToolResults(approvals={'c1': ToolApproved()})
            await agent.run(message_history=result.all_messages(), deferred_tool_results=approved)
    except ZeroDivisionError:
        pass
    return recorded.seen


async def _ended_task(client: Client, sent: Any, *, watched: bool) -> dict[str, Any]:
    if not watched:
        return await client.send(sent)
    async with client.live.send_streaming(sent) as stream:
        events = await stream.rest()
    task = events[0].result['task']
    return await client.get_task(task['id'])


@pytest.mark.parametrize('watched', [False, True], ids=['send', 'stream'])
@pytest.mark.parametrize('prompt', ['hello', 'look', 'delete', 'fail'])
@each_backend('memory', 'sqlite')
async def test_hooks_are_called_as_in_agent_run(prompt: str, watched: bool, backend: str) -> None:
    recorded = Recorded()
    async with serving(agent_with(recorded), backend=backend) as client:
        task = await _ended_task(client, prompt, watched=watched)
        if prompt == 'delete':
            assert state_of(task) == 'INPUT_REQUIRED'
            task = await _ended_task(client, answer_message(task, approve()), watched=watched)
        assert state_of(task) == ('FAILED' if prompt == 'fail' else 'COMPLETED')
    expected = await _in_agent_run(prompt)
    assert recorded.seen == expected
    assert len(set(expected)) > 8


@pytest.mark.parametrize('watched', [False, True], ids=['send', 'stream'])
async def test_before_node_run_hook_changes_prompt_before_model_request(watched: bool) -> None:
    asked: list[list[str]] = []

    async def redact(ctx: RunContext[Any], *, node: Any) -> Any:
        request: ModelRequest | None = getattr(node, 'request', None)
        for part in () if request is None else request.parts:
            if isinstance(part, UserPromptPart):
                part.content = 'redacted'
        return node

    async def note(ctx: RunContext[Any], request_context: Any) -> Any:
        asked.append(user_prompts(request_context.messages))
        return request_context

    async with serving(agent_with(Hooks(before_node_run=redact, before_model_request=note))) as client:
        assert state_of(await _ended_task(client, 'my secret', watched=watched)) == 'COMPLETED'
    assert asked == [['redacted']]


@pytest.mark.parametrize('watched', [False, True], ids=['send', 'stream'])
async def test_before_node_run_hook_may_replace_model_request(watched: bool) -> None:
    async def answer(ctx: RunContext[Any], *, node: Any) -> Any:
        instead = CallToolsNode[Any, Any](model_response=ModelResponse(parts=[TextPart('not asked')]))
        return instead if isinstance(node, ModelRequestNode) else node

    async with serving(agent_with(Hooks(before_node_run=answer))) as client:
        task = await _ended_task(client, 'hello', watched=watched)
    assert (state_of(task), texts(task)) == ('COMPLETED', ['not asked'])


@pytest.mark.parametrize('watched', [False, True], ids=['send', 'stream'])
async def test_node_run_hook_may_skip_model_request(watched: bool) -> None:
    asked: list[object] = []

    async def block(ctx: RunContext[Any], *, node: Any, handler: Callable[[Any], Any]) -> Any:
        if isinstance(node, ModelRequestNode):
            return End(FinalResult('blocked'))
        return await handler(node)

    async def note(ctx: RunContext[Any], request_context: Any) -> Any:
        asked.append(request_context)
        return request_context

    async with serving(agent_with(Hooks(node_run=block, before_model_request=note))) as client:
        task = await _ended_task(client, 'hello', watched=watched)
    assert (state_of(task), texts(task), asked) == ('COMPLETED', ['blocked'], [])


@pytest.mark.parametrize('watched', [False, True], ids=['send', 'stream'])
async def test_node_run_error_hook_may_recover_task(watched: bool) -> None:
    async def recover(ctx: RunContext[Any], *, node: Any, error: Exception) -> Any:
        return End(FinalResult('recovered'))

    async with serving(agent_with(Hooks(node_run_error=recover))) as client:
        task = await _ended_task(client, 'fail', watched=watched)
    assert (state_of(task), texts(task)) == ('COMPLETED', ['recovered'])


class Guarded(WrapperAgent[Any, Any]):
    async def run(self, *args: Any, **kwargs: Any) -> Any:
        raise UserError('not allowed')


class GuardedAgent(Agent[Any, Any]):
    async def run(self, *args: Any, **kwargs: Any) -> Any:
        raise UserError('not allowed')


@pytest.mark.parametrize('agent', [Guarded(Agent('test')), GuardedAgent('test')], ids=['wrapper', 'subclass'])
def test_agent_overriding_run_is_refused(agent: AbstractAgent[Any, Any]) -> None:
    with pytest.raises(TypeError, match=r'overrides run\(\), which to_a2a\(\) does not call.*Override iter\(\)'):
        to_a2a(agent)


def test_plain_wrapper_agent_is_accepted() -> None:
    assert isinstance(to_a2a(WrapperAgent(Agent('test'))), A2AApp)


@pytest.mark.parametrize('refuses', [1, 9])
async def test_streamed_text_refused_by_hook_is_replaced(refuses: int) -> None:
    tries: list[str] = []

    class Refusing(AbstractCapability[Any]):
        async def after_model_request(self, ctx: RunContext[Any], **options: Any) -> ModelResponse:
            if len(tries) <= refuses:
                raise ModelRetry('Again.')
            return options['response']

    async def model(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        tries.append(f'try {len(tries) + 1}')
        yield tries[-1]

    agent = Agent(FunctionModel(stream_function=model), capabilities=[Refusing()], retries=2)
    async with serving(agent) as client, client.live.send_streaming() as stream:
        updates = [event.result['artifactUpdate'] for event in await stream.rest() if 'artifactUpdate' in event.result]
        task = await client.get_task(updates[0]['taskId'])
    assert not any(update.get('append') for update in updates if update['artifact']['parts'][0]['text'] in tries)
    assert ''.join(texts(task)) == tries[-1]
