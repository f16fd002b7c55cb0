"""Tools that change while a call of them waits for approval: an approval is for the tool that the approver has seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import AuthRequired

from ...app_client import message, state_of, texts
from ...dialects import in_no_version
from ..durable_handover import serving_until_handover
from ..pending_calls import answer_message, approve

pytestmark = in_no_version('which tools an agent has is below what versions differ in')

CHANGED = 'The tool was changed after the call was approved'
called = list[Any]()


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Calls the tool, and then says what it heard from the tool."""
    parts = [part for sent in messages for part in sent.parts]
    if not any(isinstance(part, ToolCallPart) for part in parts):
        return ModelResponse(parts=[ToolCallPart('delete', {'path': 'a'}, 'c1')])
    heard = [part.content for part in parts if isinstance(part, ToolReturnPart)]
    return ModelResponse(parts=[TextPart(str(heard))])


def agent_of(tool: Callable[..., Any], *, requires_approval: bool = True) -> Agent[object, str]:
    agent: Agent[object, str] = Agent(FunctionModel(model), name='agent')
    agent.tool_plain(requires_approval=requires_approval)(tool)
    return agent


def first() -> Callable[..., Any]:
    def delete(path: str) -> str:
        """Delete a file."""
        called.append(path)
        return f'deleted {path}'

    return delete


def moved() -> Callable[..., Any]:
    def delete(path: str) -> str:
        """Delete a file."""
        called.append(path.upper())
        return f'moved {path}'

    return delete


def renamed() -> Callable[..., Any]:
    def remove(path: str) -> None:
        called.append(path)

    return remove


def other_parameter() -> Callable[..., Any]:
    def delete(file: str = 'everything') -> None:
        """Delete a file."""
        called.append(file)

    return delete


def one_more_parameter() -> Callable[..., Any]:
    def delete(path: str, recursive: bool = True) -> None:
        """Delete a file."""
        called.append((path, recursive))

    return delete


def open_parameters() -> Callable[..., Any]:
    def delete(file: str = 'everything', **others: str) -> None:
        """Delete a file."""
        called.append((file, others))

    return delete


class Files(BaseModel):
    pattern: str = '*'


def model_with_a_default() -> Callable[..., Any]:
    def delete(files: Files) -> None:
        """Delete a file."""
        called.append(files)

    return delete


def other_description() -> Callable[..., Any]:
    def delete(path: str) -> None:
        """Delete all files but this one."""
        called.append(path)

    return delete


HEARS: dict[Callable[[], Callable[..., Any]], str] = {
    first: 'deleted a',
    moved: 'moved a',  # its code is not seen
    renamed: "Unknown tool name: 'delete'",
    other_parameter: 'Extra inputs are not permitted',
    one_more_parameter: CHANGED,
    open_parameters: CHANGED,
    model_with_a_default: CHANGED,
    other_description: CHANGED,
}
"""What the model hears of the approved call, by the tool of the next deploy."""


@pytest.mark.parametrize('tool', HEARS, ids=lambda tool: tool.__name__)
async def test_approval_holds_only_for_same_tool_definition(
    tmp_path: Path, tool: Callable[[], Callable[..., Any]]
) -> None:
    called.clear()
    url = f'sqlite:///{tmp_path}/agent.db?synchronous=normal'
    async with serving_until_handover(agent_of(first()), backend=url) as client:
        task = await client.send('hello')
    async with serving_until_handover(agent_of(tool()), backend=url) as client:
        [answer] = texts(await client.send(answer_message(task, approve())))
    assert HEARS[tool] in answer
    assert bool(called) == (tool in (first, moved))


async def test_repeated_call_id_reaches_changed_tool(tmp_path: Path) -> None:
    called.clear()
    url = f'sqlite:///{tmp_path}/agent.db?synchronous=normal'

    def calls_again(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Calls the tool under the same id once more: the approved call was not carried out."""
        if sum(isinstance(sent, ModelResponse) for sent in messages) == 1:
            return ModelResponse(parts=[ToolCallPart('delete', {'path': 'a'}, 'c1')])
        return model(messages, info)

    async with serving_until_handover(agent_of(first()), backend=url) as client:
        task = await client.send('hello')
    changed = agent_of(other_description(), requires_approval=False)
    async with serving_until_handover(changed, backend=url, model=FunctionModel(calls_again)) as client:
        [answer] = texts(await client.send(answer_message(task, approve())))
    assert CHANGED in answer
    assert called == ['a']


def numbers() -> Callable[..., Any]:
    def delete(path: str, age: float = math.nan, size: float = math.inf, most: int = 10**40) -> str:
        """Delete a file."""
        called.append(path)
        return f'deleted {path}'

    return delete


async def test_approved_call_runs_despite_nan_in_tool_schema(tmp_path: Path) -> None:
    called.clear()
    async with serving_until_handover(
        agent_of(numbers()), backend=f'sqlite:///{tmp_path}/agent.db?synchronous=normal'
    ) as client:
        assert 'deleted a' in texts(await client.send(answer_message(await client.send('hello'), approve())))[0]
    assert called == ['a']


def with_sign_in() -> Callable[..., Any]:
    def delete(path: str) -> None:
        """Delete a file."""
        raise AuthRequired('Please sign in.')

    return delete


@pytest.mark.parametrize('requires_approval', [False, True])
@pytest.mark.parametrize('tool', [first, other_description], ids=lambda tool: tool.__name__)
async def test_sign_in_resumes_only_same_tool_definition(
    tmp_path: Path, tool: Callable[[], Callable[..., Any]], requires_approval: bool
) -> None:
    called.clear()
    url = f'sqlite:///{tmp_path}/agent.db?synchronous=normal'
    async with serving_until_handover(
        agent_of(with_sign_in(), requires_approval=requires_approval), backend=url
    ) as client:
        task = await client.send('hello')
        if requires_approval:
            task = await client.send(answer_message(task, approve()))
    assert state_of(task) == 'AUTH_REQUIRED'
    async with serving_until_handover(agent_of(tool()), backend=url) as client:
        [answer] = texts(await client.send(message('I have.', taskId=task['id'], contextId=task['contextId'])))
    assert HEARS[tool] in answer
    assert bool(called) == (tool is first)
