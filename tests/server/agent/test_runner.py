"""A run of the agent: what is known before it, and how it ends without an answer or with an exit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, RunContext
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.capabilities import AbstractCapability, Hooks, PrefixTools, ProcessHistory, Thinking
from pydantic_ai.messages import FilePart, ModelMessage, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.result import FinalResult
from pydantic_ai.run import AgentRunResult
from pydantic_graph import End

from pydantic_ai_a2a import Rejected
from pydantic_ai_a2a.server.agent.agent_inspection import may_change_history
from pydantic_ai_a2a.server.agent.run_arguments import RunArguments
from pydantic_ai_a2a.server.agent.run_info import RunInfo
from pydantic_ai_a2a.server.agent.run_options import RunOptions
from pydantic_ai_a2a.server.agent.run_token import RunToken
from pydantic_ai_a2a.server.agent.runner import Runner, can_stream
from pydantic_ai_a2a.server.agent.system_exits import Exited, contained


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    raise NotImplementedError


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    raise NotImplementedError
    yield ''


@pytest.mark.parametrize(
    ('model', 'streams'),
    [
        (TestModel(), True),
        (FunctionModel(answer), False),
        (FunctionModel(stream_function=stream), True),
        (WrapperModel(FunctionModel(answer)), False),
        (WrapperModel(TestModel()), True),
        (FallbackModel(TestModel(), FunctionModel(stream_function=stream)), True),
        (FallbackModel(TestModel(), FunctionModel(answer)), False),
    ],
)
def test_model_streaming_support_is_detected_without_request(model: Model, streams: bool) -> None:
    assert can_stream(model) is streams


async def test_agent_rejection_is_raised_if_run_cannot_wait() -> None:
    def decline(reason: str) -> str:
        raise Rejected(reason)

    info = RunInfo(task_id='t', context_id='c', attempt=1, idempotency_key='t.1')
    arguments = RunArguments(
        prompt='hi',
        history=[],
        info=info,
        run_id='t.1',
        token=RunToken(),
        watched=lambda: False,
        watched_live=lambda: False,
        emit=never_emitted,
        text_output=False,
    )
    with pytest.raises(Rejected):
        await Runner(Agent(TestModel(), output_type=decline), {}).run(arguments)


async def never_emitted(event: object) -> None:
    raise NotImplementedError


class Own(AbstractCapability[Any]):
    pass


async def unchanged(messages: list[ModelMessage]) -> list[ModelMessage]:
    raise NotImplementedError


def custom_capability(ctx: RunContext[Any]) -> Own:
    raise NotImplementedError


PROCESSED = ProcessHistory[Any](unchanged)
NONE = RunOptions()


@pytest.mark.parametrize(
    ('agent', 'options', 'changes'),
    [
        (Agent('test'), NONE, False),
        (Agent('test', capabilities=[Thinking()]), RunOptions(capabilities=[Thinking()]), False),
        (Agent('test', capabilities=[PROCESSED]), NONE, True),
        (WrapperAgent(WrapperAgent(Agent('test', capabilities=[PROCESSED]))), NONE, True),
        (Agent('test', capabilities=[Hooks()]), NONE, True),
        (Agent('test', capabilities=[PrefixTools(wrapped=Own(), prefix='own')]), NONE, True),
        (Agent('test', capabilities=[custom_capability]), NONE, True),
        (Agent('test'), RunOptions(capabilities=[Own()]), True),
        (Agent('test'), RunOptions(capabilities=[custom_capability]), True),
        (Agent('test'), RunOptions(spec={}), True),
    ],
)
def test_agents_with_history_changing_capabilities_are_detected(
    agent: AbstractAgent[Any, Any], options: RunOptions, changes: bool
) -> None:
    assert may_change_history(agent, options) is changes


def test_output_type_option_is_refused_with_output_validators() -> None:
    agent = Agent('test')
    agent.output_validator(lambda output: output)
    with pytest.raises(TypeError, match='output_type= cannot be combined with output validators'):
        Runner(WrapperAgent(agent), {'output_type': int})
    Runner(agent, {})


class Cached(AbstractCapability[object]):
    """Ends the run before the first request to the model."""

    async def wrap_node_run(self, ctx: RunContext[object], *, node: Any, handler: Any) -> Any:
        return End(FinalResult('cached')) if Agent.is_model_request_node(node) else await handler(node)


class Replaced(AbstractCapability[object]):
    """Returns a result without a run."""

    async def wrap_run(self, ctx: RunContext[object], *, handler: Any) -> AgentRunResult[Any]:
        return AgentRunResult(output='cached')


DRAWN = [ModelResponse(parts=[FilePart(BinaryContent(b'png', media_type='image/png'))])]


@pytest.mark.parametrize('may_wait', [False, True])
@pytest.mark.parametrize('history', [[], DRAWN])
@pytest.mark.parametrize('capability', [Cached(), Replaced()])
async def test_run_without_response_returns_no_earlier_files(
    capability: AbstractCapability[object], history: list[ModelMessage], may_wait: bool
) -> None:
    arguments = RunArguments(
        prompt='hi',
        history=history,
        info=RunInfo(task_id='t', context_id='c', attempt=1, idempotency_key='t.1'),
        run_id='t.1',
        token=RunToken(),
        watched=lambda: False,
        watched_live=lambda: False,
        emit=never_emitted,
        text_output=True,
        may_wait=may_wait,
    )
    ended = await Runner(Agent(TestModel(), capabilities=[capability]), {}).run(arguments)
    assert (ended.output, [*ended.files]) == ('cached', [])


async def raise_error(error: BaseException) -> None:
    raise error


def run_to_first_pause(work: Coroutine[Any, Any, Any]) -> None:
    """Execute a coroutine up to its end or its first pause, in this thread."""
    work.send(None)


@pytest.mark.parametrize('error', [SystemExit(1), GeneratorExit()], ids=['SystemExit', 'GeneratorExit'])
async def test_system_exit_and_generator_exit_become_errors(error: BaseException) -> None:
    with pytest.raises(Exited, match=type(error).__name__) as raised:
        await contained(raise_error(error))
    assert raised.value.__cause__ is error


async def test_keyboard_interrupt_is_passed_through() -> None:
    work = contained(raise_error(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run_to_first_pause(work)


async def test_contained_coroutine_closes_in_running_event_loop() -> None:
    work = contained(asyncio.sleep(0))
    await asyncio.create_task(_step_in_a_task(work))
    work.close()


async def _step_in_a_task(work: Coroutine[Any, Any, Any]) -> None:
    run_to_first_pause(work)


def test_contained_coroutine_closes_after_its_event_loop() -> None:
    async def begin() -> Coroutine[Any, Any, Any]:
        work = contained(asyncio.sleep(0))
        run_to_first_pause(work)
        return work

    asyncio.run(begin()).close()
