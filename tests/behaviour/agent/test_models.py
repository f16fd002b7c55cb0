"""Agents whose model is several models, or wraps another one."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import ModelFallback, SelectModel
from pydantic_ai.exceptions import ModelHTTPError, UserError
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.instrumented import InstrumentedModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles import ModelProfile

from pydantic_ai_a2a import to_a2a

from ...agents import scripted_model
from ...app_client import Client, lifespan, message, state_of, texts
from ...serving import serving
from ..refusals import error_of_call

PNG = {'raw': 'iVBORw0KGgoAAAANSUhEUg==', 'mediaType': 'image/png'}


FIRST = scripted_model(
    ModelHTTPError(503, 'busy'), profile=ModelProfile(supports_image_input=True, supports_audio_file_input=False)
)
SECOND = scripted_model(
    'the second one answers', profile=ModelProfile(supports_image_input=False, supports_audio_file_input=True)
)


@pytest.mark.parametrize(
    'options',
    [
        {'model': FallbackModel(FIRST, SECOND)},
        {'model': WrapperModel(FallbackModel(FIRST, SECOND))},
        {'model': InstrumentedModel(FallbackModel(FIRST, WrapperModel(SECOND)))},
        {'model': FallbackModel(FIRST, FallbackModel(SECOND))},
        {'model': FIRST, 'capabilities': [ModelFallback(SECOND)]},
        {'capabilities': [ModelFallback(FIRST, SECOND)]},
    ],
    ids=['fallback', 'wrapped', 'instrumented', 'nested', 'capability', 'capability-alone'],
)
async def test_fallback_models_accept_only_common_input_modes(
    options: dict[str, Any],
) -> None:
    async with serving(Agent(**options)) as client:
        assert texts(await client.send('hello')) == ['the second one answers']
        error = await error_of_call(client.send(message(parts=[{'text': 'see'}, PNG])))
        card = (await client.get('/.well-known/agent-card.json')).json
    assert error.code == -32005
    modes = card['defaultInputModes']
    assert 'video/mp4' in modes
    assert not {'image/png', 'audio/wav'}.intersection(modes)


@pytest.mark.parametrize('model', [FallbackModel(FIRST, SECOND), WrapperModel(FallbackModel(SECOND))])
async def test_fallback_model_may_be_passed_as_run_option(model: Model) -> None:
    async with serving(Agent(), model=model) as client:
        task = await client.send()
    assert state_of(task) == 'COMPLETED'


async def test_fallback_capability_may_be_passed_as_run_option() -> None:
    app = to_a2a(Agent(FIRST), capabilities=[ModelFallback(SECOND), lambda ctx: None])
    async with lifespan(app):
        task = await Client(app).send()
        card = (await Client(app).get('/.well-known/agent-card.json')).json
    assert texts(task) == ['the second one answers']
    assert not {'image/png', 'audio/wav'}.intersection(card['defaultInputModes'])


async def test_agent_without_model_warns_at_start_and_fails_tasks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = to_a2a(Agent(name='bare'))
    assert caplog.text == ''
    async with lifespan(app):
        warned = [record for record in caplog.records if record.levelname == 'WARNING']
        task = await Client(app).send()
    assert 'The agent has no model: give one to Agent(...)' in warned[0].getMessage()
    status = task['status']['message']
    assert (state_of(task), status['metadata']['failure']) == ('FAILED', 'no-model')
    assert status['parts'][0]['text'] == 'The agent has no model.'
    assert status['metadata']['correlationId'] in caplog.text


async def test_override_may_supply_missing_model() -> None:
    agent = Agent()
    async with serving(agent) as client:
        with agent.override(model=SECOND):
            assert texts(await client.send()) == ['the second one answers']


def wrong_tool() -> str:
    """Misuse Pydantic AI."""
    raise UserError('of a tool')


async def test_user_error_of_tool_is_internal_failure() -> None:
    calling = Agent(tools=[wrong_tool])
    async with serving(calling) as client:
        with calling.override(model=TestModel()):
            task = await client.send()
    assert task['status']['message']['metadata']['failure'] == 'internal'


@pytest.mark.parametrize(
    'options',
    [{'model': SECOND}, {'capabilities': [SelectModel(lambda ctx: SECOND)]}, {'spec': {'model': 'test'}}],
    ids=['model', 'capability', 'spec'],
)
async def test_model_from_run_options_prevents_warning(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Agent(), **options) as client:
        assert state_of(await client.send()) == 'COMPLETED'
    assert 'no model' not in caplog.text
