"""Agents of tests: their models repeat prompts, follow a script, or wait for the test."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from copy import copy
from typing import Any, TypeAlias, cast

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import AuthRequired, InputRequired

from .app_client import Client, message
from .serving import wait_until_ended


def user_prompts(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the texts of all user prompts of a conversation."""
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart)]


def tool_returns(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    """Return all results of tools in a conversation."""
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def echo_prompts(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Answer with the texts of all user prompts."""
    return ModelResponse(parts=[TextPart(' + '.join(user_prompts(messages)))])


def clerk_agent(**options: Any) -> Agent[None, str]:
    """An agent that asks two questions, or two sign-ins after "sign in", and then repeats all prompts."""
    agent = Agent(FunctionModel(echo_prompts, stream_function=_stream_prompts), name='clerk', **options)

    @agent.output_validator
    def ask(output: str) -> str:
        if output.count('+') == 2:
            return output
        question = 'Which account shall I delete?' if '+' in output else 'Which city?'
        raise AuthRequired(question) if output.startswith('sign in') else InputRequired(question)

    return agent


async def stream_three_words(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
    """Stream the words "one two three"."""
    for word in ('one ', 'two ', 'three'):
        yield word


async def _stream_prompts(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
    yield ' + '.join(user_prompts(messages))


Response: TypeAlias = 'str | ModelResponsePart | Sequence[ModelResponsePart] | BaseException | Callable[..., Any]'
"""A text, parts of a response, an exception, or a function of the messages and the `AgentInfo` that returns one."""


def scripted_model(*responses: Response, **options: Any) -> FunctionModel:
    """A model that sends one response after another in each conversation, and then repeats the last.

    Args:
        responses: The responses of the model.
        options: More arguments of the `FunctionModel`.
    """

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        response: Any = responses[min(turn, len(responses) - 1)]
        if callable(response):
            response = response(messages, info)
        if isinstance(response, BaseException):
            raise copy(response)  # a raised one keeps its traceback
        if isinstance(response, ModelResponse):
            return response
        if isinstance(response, str):
            response = TextPart(response)
        return ModelResponse(parts=cast('list[Any]', response) if isinstance(response, list) else [response])

    return FunctionModel(respond, **options)


def call_output_tool(**arguments: Any) -> Callable[[list[ModelMessage], AgentInfo], ToolCallPart]:
    """A response of `scripted_model`: the first output of the agent, with these arguments."""
    return lambda _, info: ToolCallPart(info.output_tools[0].name, arguments)


def echo_tool_returns(messages: list[ModelMessage], _: AgentInfo) -> str:
    """A response of `scripted_model`: the results of the tools of the last step."""
    return ', '.join(str(part.content) for part in tool_returns(messages[-1:]))


def model_that_calls(calls: list[ToolCallPart]) -> FunctionModel:
    """A model that answers each message with calls of tools, and then with their results."""

    def respond(messages: list[ModelMessage], info: AgentInfo) -> str | list[ToolCallPart]:
        return echo_tool_returns(messages, info) or calls

    return scripted_model(respond)


class GatedAgent:
    """An agent that answers each prompt with all prompts, once the test opens the gate with the name of the prompt."""

    def __init__(self) -> None:
        self.agent: Agent[object, str] = Agent(FunctionModel(self.answer), name='agent')
        self.began: list[str] = []
        """The prompts whose runs have begun, in that order."""
        self._reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def reached(self, *prompts: str) -> None:
        """Wait until the runs of these prompts have begun."""
        for prompt in prompts:
            await self._reached[prompt].wait()

    def open(self, *prompts: str) -> None:
        """Let the runs of these prompts continue, whether they have begun or not."""
        for prompt in prompts:
            self._gates[prompt].set()

    async def run_twice(self, client: Client) -> dict[str, Any]:
        """A task that has run for the message `one`, and then for `two`, which came during the first run."""
        task = await client.send('one', returnImmediately=True)
        await self.reached('one')
        await client.send(message('two', taskId=task['id']), returnImmediately=True)
        self.open('one', 'two')
        return await wait_until_ended(client, task['id'])

    async def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Answer as the model of the agent."""
        prompt = user_prompts(messages)[-1]
        self.began.append(prompt)
        self._reached[prompt].set()
        await self._gates[prompt].wait()
        return echo_prompts(messages, info)


class LookupAgent:
    """An agent that calls a lookup tool `steps` times, and then answers with all prompts. The test holds its steps.

    If the first prompt is `delete`, the agent calls a tool that needs approval instead.
    """

    def __init__(self, *, steps: int = 1) -> None:
        self.looking, self.found = asyncio.Event(), asyncio.Event()
        """Set once the tool runs; set by the test to let the tool return."""
        self.seen: list[list[str]] = []
        """The prompts in each request to the model."""
        self.reached = asyncio.Event()
        """Set once a run waits at the point of `hold`."""
        self._hold_at = ''
        self._steps = steps
        self.agent: Agent[object, Any] = Agent(FunctionModel(self.answer), name='agent')
        self.agent.tool_plain(self.look)
        self.agent.tool_plain(requires_approval=True)(self.delete)

    def hold(self, point: str) -> None:
        """Let the next run that comes to `model 1`, `tool 1`, `model 2`, ... wait there for ever."""
        self._hold_at = point
        self.reached.clear()

    async def answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        prompts = user_prompts(messages)
        self.seen.append(prompts)
        step = 1 + len(tool_returns(messages))
        await self._at(f'model {step}')
        if step > self._steps:
            return ModelResponse(parts=[TextPart(' + '.join(prompts))])
        return ModelResponse(
            parts=[ToolCallPart('delete') if prompts[0] == 'delete' else ToolCallPart('look', {'n': step})]
        )

    async def look(self, n: int) -> str:
        self.looking.set()
        await self.found.wait()
        await self._at(f'tool {n}')
        return 'found'

    async def delete(self) -> str:
        return 'deleted'

    async def _at(self, point: str) -> None:
        if point == self._hold_at:
            self._hold_at = ''
            self.reached.set()
            await asyncio.Event().wait()
