"""A run that comes back to the step that it has just done, as after a StopAsyncIteration, fails instead of hanging."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ...client import state_of
from ..stage import serving


@pytest.mark.parametrize('backend', ['memory', 'sqlite'])
@pytest.mark.parametrize('place', ['model', 'instructions'])
async def test_a_model_or_a_function_that_raises_stop_async_iteration_is_called_once(
    place: str, backend: str, tmp_path: object, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    async def stop() -> str:
        calls.append(place)
        assert len(calls) < 10, 'the run goes on for ever'
        raise StopAsyncIteration

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise AssertionError(await stop())

    agent = Agent(FunctionModel(answer), instructions=stop if place == 'instructions' else None)
    async with serving(agent, backend='memory' if backend == 'memory' else f'sqlite:///{tmp_path}/a.db') as client:
        task = await client.send('hi')
    assert (state_of(task), calls) == ('FAILED', [place])
    assert task['status']['message']['metadata']['failure'] == 'internal'
    assert 'raised StopAsyncIteration' in caplog.text
    assert 'StopAsyncIteration' not in str(task)
