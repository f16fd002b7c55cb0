"""A run that fails has the kind of failure that it has without an engine, and costs the same."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Sequence
from copy import copy
from datetime import timedelta
from typing import Any

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelHTTPError,
    ModelRateLimitError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from pydantic_ai_a2a import Budget, CallContext, Limits, Quotas, Rejected

from ....agents import scripted_model
from ....app_client import LIMIT, RpcError, message
from ....clocks import skip_time
from ....constants import with_constants
from ....engines import TemporalSetup
from ...limits.test_budgets import usage_of
from . import ScenarioRun, add_table, call, echo, scenario

SECRET = 'secret'
"""A text of an exception, which no client sees."""
MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    # The model, and the kind of failure.
    'is busy': (lambda: scripted_model(ModelHTTPError(503, 'test')), 'provider-busy'),
    'refuses the request': (lambda: scripted_model(ModelHTTPError(400, 'test')), 'provider-error'),
    'has no rate left': (lambda: scripted_model(ModelRateLimitError('test', SECRET)), 'provider-busy'),
    'and the model in its place fail': (
        lambda: FallbackModel(scripted_model(ModelHTTPError(400, 'test')), scripted_model(ModelHTTPError(503, 'test'))),
        'provider-busy',
    ),
    'fails, and another one answers': (
        lambda: FallbackModel(scripted_model(ModelHTTPError(503, 'test')), scripted_model('Hi.')),
        '',
    ),
    'filters the content': (lambda: scripted_model(ContentFilterError(SECRET)), 'refused-content'),
    'says nothing that fits': (lambda: scripted_model(UnexpectedModelBehavior(SECRET)), 'bad-output'),
    'says nothing': (lambda: scripted_model([]), 'bad-output'),
    'is beyond a limit': (lambda: scripted_model(UsageLimitExceeded(SECRET)), 'usage-limit'),
    'is used wrongly': (lambda: scripted_model(UserError(SECRET)), 'internal'),
    'breaks': (lambda: scripted_model(ValueError(SECRET)), 'internal'),
    'fails after a tool': (lambda: scripted_model(call('work'), ModelHTTPError(503, 'test')), 'provider-busy'),
}


def failure(task: dict[str, Any]) -> str:
    assert SECRET not in str(task)
    return task['status'].get('message', {}).get('metadata', {}).get('failure', '')


def work() -> str:
    return 'worked'


async def ask_model(play: ScenarioRun, case: tuple[Callable[[], Any], str]) -> None:
    model, kind = case
    async with play.serving(play.agent(model(), tools=[work])) as client:
        task = await client.send('hello')
        assert failure(task) == kind
        await client.send(message('again', contextId=task['contextId']))


add_table('a model', MODELS, ask_model)
TOOLS: dict[str, tuple[Exception, str]] = {
    'breaks': (ValueError(SECRET), 'internal'),
    'is beyond a limit': (UsageLimitExceeded(SECRET), 'usage-limit'),
    'filters the content': (ContentFilterError(SECRET), 'refused-content'),
    'gets no model': (ModelHTTPError(503, 'test'), 'provider-busy'),
}


async def call_tool(play: ScenarioRun, case: tuple[Exception, str]) -> None:
    error, kind = case

    async def work() -> None:
        raise copy(error)

    async with play.serving(play.agent(scripted_model(call('work')), tools=[work])) as client:
        assert failure(await client.send('hello')) == kind


add_table('a tool', TOOLS, call_tool)
AUDIO = {'raw': b64encode(b'talk').decode(), 'mediaType': 'audio/ogg', 'filename': 'talk.ogg'}


REFUSALS: dict[str, Exception] = {
    'a provider': ModelHTTPError(400, 'test'),
    'the code of a model': NotImplementedError(SECRET),
    'the agent': UserError(SECRET),
}


async def send_file(play: ScenarioRun, error: Exception) -> None:
    async with play.serving(play.agent(scripted_model(error))) as client:
        assert failure(await client.send(message(parts=[{'text': 'hear'}, AUDIO]))) == 'refused-file'


add_table('a file is refused by', REFUSALS, send_file)


@scenario
async def a_tool_that_breaks_refuses_no_file(play: ScenarioRun) -> None:
    async def work() -> None:
        raise NotImplementedError(SECRET)

    async with play.serving(play.agent(scripted_model(call('work')), tools=[work])) as client:
        await client.send(message(parts=[AUDIO]))


LIMITS = {
    'requests': UsageLimits(request_limit=1),
    'tokens': UsageLimits(total_tokens_limit=60),
    'calls of tools': UsageLimits(tool_calls_limit=1),
}


async def use_too_much(play: ScenarioRun, limits: UsageLimits) -> None:
    agent = play.agent(scripted_model([call('work', 'c1'), call('work', 'c2')], call('work'), echo), tools=[work])
    async with play.serving(agent, usage_limits=limits) as client:
        task = await client.send('hello')
        await client.send(message('again', contextId=task['contextId']))


add_table('a run has too many', LIMITS, use_too_much)


@scenario
async def a_model_answers_nothing_that_fits_the_output_type(play: ScenarioRun) -> None:
    async with play.serving(play.agent(scripted_model('no number'), output_type=int)) as client:
        await client.send('hello')


@scenario
async def a_run_takes_too_long(play: ScenarioRun) -> None:
    async def wait() -> None:
        skip_time(seconds)
        await asyncio.Event().wait()

    # The tool has to begin before: a run without an answer of the model has used nothing. Nobody sets Temporal's clock.
    seconds = 6.0 if isinstance(play.kit, TemporalSetup) else LIMIT / 4
    async with play.serving(play.agent(scripted_model(call('wait')), tools=[wait]), timeout=seconds) as client:
        await client.send('hello')


@scenario
async def dependencies_cannot_be_made(play: ScenarioRun) -> None:
    def deps(call: CallContext) -> None:
        raise LookupError(SECRET)

    async with play.serving(play.agent(scripted_model('Hi.')), deps_factory=deps) as client:
        await client.send('hello')


# --- usage ------------------------------------------------------------------------------------------------------------


def _counted(*said: Any) -> FunctionModel:
    """A model whose provider reports details of its usage."""
    inner: Any = scripted_model(*said).function

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        response = await inner(messages, info)
        response.usage = RequestUsage(
            input_tokens=60, output_tokens=40, cache_read_tokens=5, details={'reasoning_tokens': 7}
        )
        return response

    return FunctionModel(respond)


DAY = timedelta(days=1)
ENOUGH = Budget(window=DAY, requests=9)
BUDGETS: dict[str, tuple[Sequence[Any], Budget]] = {
    'succeeds': ([call('work'), 'Hi.'], ENOUGH),
    'fails': ([call('work'), ValueError(SECRET)], ENOUGH),
    'is rejected by its tool': ([call('work'), call('reject')], ENOUGH),
    'uses up its budget': ([call('work', f'c{n}') for n in range(4)], Budget(window=DAY, requests=2)),
    'uses up the tokens': ([call('work'), 'Hi.'], Budget(window=DAY, tokens=250)),
}


async def charge(play: ScenarioRun, case: tuple[Sequence[Any], Budget]) -> None:
    async def reject() -> None:
        raise Rejected('Not today.')

    said, budget = case
    limits = Limits(quotas=Quotas(budgets=[budget]))
    async with play.serving(play.agent(_counted(*said), tools=[work, reject]), limits=limits) as client:
        for text in ('hello', 'again'):
            try:
                await client.send(text)
            except RpcError as error:
                play.note('refused', (error.code, error.reason))
        play.note('used', await usage_of(client))


add_table('a caller pays for a task that', BUDGETS, charge)


@scenario
async def a_task_that_is_cancelled_is_charged(play: ScenarioRun) -> None:
    reached = asyncio.Event()

    async def wait() -> None:
        reached.set()
        await asyncio.Event().wait()

    limits = with_constants(Limits, cancel_grace=LIMIT, quotas=Quotas(budgets=[Budget(window=DAY, requests=9)]))
    agent = play.agent(_counted([TextPart('I wait.'), call('wait')], 'Hi.'), tools=[wait])
    async with play.serving(agent, limits=limits) as client:
        task = await client.send('hello', returnImmediately=True)
        await reached.wait()
        await client.call('CancelTask', {'id': task['id']})
        play.note('used', await usage_of(client))
        await client.send(message('again', contextId=task['contextId']))
