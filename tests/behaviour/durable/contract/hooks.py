"""Hooks of the app and of capabilities see and change the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.capabilities import Hooks, ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import ToolDefinition

from pydantic_ai_a2a import RunFailure, a2a

from ....agents import scripted_model
from ....app_client import message
from . import ScenarioRun, call, echo, name_tools, scenario


def fail(*_: Any) -> Any:
    raise ZeroDivisionError


@scenario
async def hooks_of_the_app_fail(play: ScenarioRun) -> None:
    async with play.serving(play.agent(scripted_model('Hi.')), on_complete=fail) as client:
        await client.send('hello')
    async with play.serving(play.agent(scripted_model(ValueError('secret'))), on_failure=fail) as client:
        await client.send('hello')


@scenario
async def a_hook_of_the_app_reads_the_task_of_a_result(play: ScenarioRun) -> None:
    def complete(result: AgentRunResult[Any]) -> None:
        task = a2a(result)
        play.note('hook', (task.caller.id, bool(task.task_id), sorted((result.metadata or {})['a2a'])))
        play.note('result', (result.response.text, len(result.all_messages()), result.output))

    async with play.serving(play.agent(scripted_model(call('work'), 'Hi.'), tools=[]), on_complete=complete) as client:
        await client.send('hello')


@scenario
async def an_exception_in_a_hook(play: ScenarioRun) -> None:
    def failed(failure: RunFailure) -> None:
        play.note('error', type(failure.error).__name__)

    async with play.serving(play.agent(scripted_model(ValueError('secret'))), on_failure=failed) as client:
        await client.send('hello')


@scenario
async def a_capability_changes_requests_and_responses(play: ScenarioRun) -> None:
    hooks = Hooks[Any]()

    @hooks.on.before_model_request
    async def before(ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        more = ModelRequest(parts=[UserPromptPart(f'step {ctx.run_step}')])
        return replace(request_context, messages=[*request_context.messages, more])

    @hooks.on.after_model_request
    async def after(
        ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        return replace(
            response,
            parts=[TextPart(f'{part.content}!') if isinstance(part, TextPart) else part for part in response.parts],
        )

    async with play.serving(play.agent(scripted_model(echo), capabilities=[hooks])) as client:
        task = await client.send('hello')
        await client.send(message('again', contextId=task['contextId']))


@scenario
async def a_capability_changes_calls_and_results_of_tools(play: ScenarioRun) -> None:
    hooks = Hooks[Any]()

    @hooks.on.before_tool_execute
    async def before(ctx: RunContext[Any], *, args: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**args, 'n': args['n'] + 1}

    @hooks.on.after_tool_execute
    async def after(ctx: RunContext[Any], *, result: Any, **_: Any) -> Any:
        return [result, 'seen']

    def work(n: int) -> int:
        return n * 10

    agent = play.agent(scripted_model(call('work', n=1), echo), capabilities=[hooks], tools=[work])
    async with play.serving(agent) as client:
        await client.send('hello')


@scenario
async def a_capability_answers_for_a_tool_that_fails(play: ScenarioRun) -> None:
    hooks = Hooks[Any]()

    @hooks.on.tool_execute_error
    async def recover(ctx: RunContext[Any], **_: Any) -> Any:
        return 'recovered'

    def work() -> None:
        raise ValueError('secret')

    agent = play.agent(scripted_model(call('work'), echo), capabilities=[hooks], tools=[work])
    async with play.serving(agent) as client:
        await client.send('hello')


@scenario
async def a_capability_answers_for_a_model_that_fails(play: ScenarioRun) -> None:
    hooks = Hooks[Any]()

    @hooks.on.model_request_error
    async def recover(ctx: RunContext[Any], **_: Any) -> ModelResponse:
        return ModelResponse(parts=[TextPart('I am not well.')])

    async with play.serving(play.agent(scripted_model(ValueError('secret')), capabilities=[hooks])) as client:
        await client.send('hello')


@scenario
async def a_capability_refuses_a_response(play: ScenarioRun) -> None:
    hooks = Hooks[Any]()

    @hooks.on.after_model_request
    async def after(ctx: RunContext[Any], *, response: ModelResponse, **_: Any) -> ModelResponse:
        if response.text == 'rude':
            raise ModelRetry('Be kind.')
        return response

    async with play.serving(play.agent(scripted_model('rude', echo), capabilities=[hooks])) as client:
        await client.send('hello')


@scenario
async def a_capability_changes_the_result_of_a_run(play: ScenarioRun) -> None:
    hooks = Hooks[Any]()

    @hooks.on.after_run
    async def after(ctx: RunContext[Any], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        return replace(result, output=f'{result.output} and more')

    async with play.serving(play.agent(scripted_model('Hi.'), capabilities=[hooks])) as client:
        await client.send('hello')


@scenario
async def a_capability_ends_a_failed_run_with_a_result(play: ScenarioRun) -> None:
    hooks = Hooks[Any]()

    @hooks.on.run_error
    async def recover(ctx: RunContext[Any], *, error: BaseException) -> AgentRunResult[Any]:
        return AgentRunResult(output='Sorry.')

    async with play.serving(play.agent(scripted_model(ValueError('secret')), capabilities=[hooks])) as client:
        await client.send('hello')


@scenario
async def an_exception_in_a_capability(play: ScenarioRun) -> None:
    hooks = Hooks[Any]()

    @hooks.on.run_error
    async def recover(ctx: RunContext[Any], *, error: BaseException) -> AgentRunResult[Any]:
        return AgentRunResult(output=type(error).__name__)

    async with play.serving(play.agent(scripted_model(ValueError('secret')), capabilities=[hooks])) as client:
        await client.send('hello')


@scenario
async def a_capability_shows_other_tools(play: ScenarioRun) -> None:
    hooks = Hooks[Any]()

    @hooks.on.prepare_tools
    async def prepare(ctx: RunContext[Any], tools: list[ToolDefinition]) -> list[ToolDefinition]:
        return [replace(tool, description='changed') for tool in tools if tool.name != 'hidden']

    def work() -> str:
        return 'worked'

    def hidden() -> None: ...

    agent = play.agent(scripted_model(call('work'), name_tools), capabilities=[hooks], tools=[work, hidden])
    async with play.serving(agent) as client:
        await client.send('hello')


@scenario
async def a_history_processor_keeps_the_last_messages(play: ScenarioRun) -> None:
    def keep(messages: list[ModelMessage]) -> list[ModelMessage]:
        return messages[-1:]

    async with play.serving(play.agent(scripted_model(echo), capabilities=[ProcessHistory(keep)])) as client:
        task = await client.send('one')
        for text in ('two', 'three'):
            await client.send(message(text, contextId=task['contextId']))


@scenario
async def a_history_processor_asks_for_the_context_of_the_run(play: ScenarioRun) -> None:
    async def process(ctx: RunContext[Any], messages: list[ModelMessage]) -> list[ModelMessage]:
        return [ModelRequest(parts=[UserPromptPart(f'{len(messages)} of {a2a(ctx).caller.id}')]), *messages]

    async with play.serving(
        play.agent(scripted_model(call('work'), echo), capabilities=[ProcessHistory(process)])
    ) as client:
        await client.send('one')


@scenario
async def instructions_are_made_for_each_request(play: ScenarioRun) -> None:
    agent = play.agent(scripted_model(call('work'), echo), instructions='Be kind.', system_prompt='Be short.')

    @agent.instructions
    def know(ctx: RunContext[Any]) -> str:
        return f'Step {ctx.run_step} of {a2a(ctx).caller.id}.'

    @agent.system_prompt
    async def prompt(ctx: RunContext[Any]) -> str:
        return f'Prompted by {ctx.prompt}.'

    async with play.serving(agent, instructions='Of the app.') as client:
        task = await client.send('hello')
        await client.send(message('again', contextId=task['contextId']))


@scenario
async def settings_reach_the_model(play: ScenarioRun) -> None:
    def settings(messages: list[ModelMessage], info: AgentInfo) -> str:
        return f'{sorted((info.model_settings or {}).items())}'

    agent = play.agent(scripted_model(settings), model_settings={'temperature': 0.5, 'max_tokens': 9})
    async with play.serving(agent, model_settings={'temperature': 0.7}) as client:
        await client.send('hello')


@scenario
async def metadata_of_the_run_reaches_tools(play: ScenarioRun) -> None:
    def work(ctx: RunContext[Any]) -> str:
        return f'{(ctx.metadata or {})["shop"]}'

    async with play.serving(
        play.agent(scripted_model(call('work'), echo), tools=[work]), metadata={'shop': 'a'}
    ) as client:
        await client.send('hello')
