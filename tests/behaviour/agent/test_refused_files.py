"""Files that an agent's model does not take: refused at once if the server knows it, else named by the failed task."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import httpx
import pytest
from pydantic_ai import Agent, AudioUrl, BinaryContent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.exceptions import ModelAuthenticationError, ModelHTTPError, ModelRequestRejectedError, UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentedModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Workers, serve, to_a2a
from pydantic_ai_a2a.errors import FileRefused
from pydantic_ai_a2a.server.agent.refused_files import check_files

from ...agents import scripted_model
from ...app_client import LIMIT, message, state_of
from ...cases import each_case
from ...serving import serving
from ..refusals import error_of_call

RAW = b64encode(b'bytes').decode()
OGG = {'raw': RAW, 'mediaType': 'audio/ogg', 'filename': 'talk.ogg'}
ANY = ['text/plain', '*/*']


class OpenAIModel(TestModel):
    """A model that stands for those of Pydantic AI's module, whose package need not be installed."""


OpenAIModel.__module__ = 'pydantic_ai.models.openai._chat_model'


def failing(error: Exception) -> FunctionModel:
    return scripted_model(error)


def failure(task: Any) -> tuple[str, str]:
    status = task['status']['message']
    return status['metadata']['failure'], status['parts'][0]['text']


@each_case(
    'model',
    [
        OpenAIModel(),
        InstrumentedModel(OpenAIModel()),
        FallbackModel(TestModel(), OpenAIModel()),
        InstrumentedModel(FallbackModel(OpenAIModel(), TestModel())),
    ],
    ids=['alone', 'wrapped', 'fallback', 'wrapped fallback'],
)
async def test_openai_models_accept_only_wav_and_mp3_audio(model: Model) -> None:
    async with serving(Agent(model)) as client:
        for media_type in ('audio/ogg', 'audio/flac', 'audio/aac', 'audio/webm'):
            parts = [{'text': 'hear'}, {'raw': RAW, 'mediaType': media_type}]
            error = await error_of_call(client.send(message(parts=parts)))
            assert (error.code, f'{media_type} is not supported' in error.message) == (-32005, True)
        link = {'url': 'https://example.com/talk.ogg', 'mediaType': 'audio/ogg'}
        assert (await error_of_call(client.send(message(parts=[link])))).code == -32005
        for media_type in ('audio/wav', 'audio/x-wav', 'audio/mpeg', 'audio/mp3'):
            assert state_of(await client.send(message(parts=[{'raw': RAW, 'mediaType': media_type}]))) == 'COMPLETED'
        modes = (await client.get('/.well-known/agent-card.json')).json['defaultInputModes']
    assert [mode for mode in modes if mode.startswith('audio/')] == ['audio/wav', 'audio/mpeg']


async def test_non_openai_models_accept_ogg_audio() -> None:
    async with serving(Agent(TestModel())) as client:
        assert state_of(await client.send(message(parts=[OGG]))) == 'COMPLETED'


async def test_declared_input_modes_override_model_support() -> None:
    async with serving(Agent(OpenAIModel()), default_input_modes=['text/plain', 'audio/ogg']) as client:
        assert state_of(await client.send(message(parts=[OGG]))) == 'COMPLETED'
        assert (
            await error_of_call(client.send(message(parts=[{'raw': RAW, 'mediaType': 'audio/wav'}])))
        ).code == -32005


@each_case(
    'error',
    [
        AssertionError(),
        NotImplementedError('AudioUrl is not supported'),
        RuntimeError('Unsupported binary content type'),
        ValueError('Unknown media type'),
        UserError('Unsupported image format'),
        ModelHTTPError(400, 'model'),
        ModelRequestRejectedError('model', 'rejected'),
    ],
    ids=repr,
)
async def test_model_error_with_file_names_refused_file(error: Exception) -> None:
    async with serving(Agent(failing(error))) as client:
        task = await client.send(message(parts=[{'text': 'hear'}, OGG]))
    assert failure(task) == ('refused-file', 'The model did not take the message with the file talk.ogg (audio/ogg).')


async def test_last_error_of_fallback_models_decides_failure_kind() -> None:
    model = FallbackModel(failing(KeyError()), failing(ValueError()), fallback_on=(KeyError, ValueError))
    async with serving(Agent(model)) as client:
        assert failure(await client.send(message(parts=[OGG])))[0] == 'refused-file'


def unfinished_tool() -> str:
    raise NotImplementedError


def failing_history_processor(messages: list[ModelMessage]) -> list[ModelMessage]:
    raise ValueError


UNRELATED: dict[str, tuple[Agent[Any, Any], str]] = {
    'key': (Agent(failing(KeyError('a fault of the code'))), 'internal'),
    'unicode': (Agent(failing(UnicodeError('a fault of the code'))), 'internal'),
    'credentials': (Agent(failing(ModelAuthenticationError('model', 'key'))), 'provider-error'),
    'server error': (Agent(failing(ModelHTTPError(500, 'model'))), 'provider-error'),
    'tool': (Agent(TestModel(), tools=[unfinished_tool]), 'internal'),
    'history processor': (Agent(TestModel(), capabilities=[ProcessHistory(failing_history_processor)]), 'internal'),
}
"""Agents whose errors have nothing to do with a file, and the kind of failure."""


@each_case(('agent', 'kind'), UNRELATED.values(), ids=UNRELATED)
async def test_unrelated_errors_with_file_keep_their_failure_kind(agent: Agent[Any, Any], kind: str) -> None:
    async with serving(agent, workers=Workers(retries=0)) as client:
        assert failure(await client.send(message(parts=[OGG])))[0] == kind


@pytest.mark.parametrize('error', [NotImplementedError(), ModelHTTPError(400, 'model')])
async def test_model_errors_without_file_are_no_file_refusal(error: Exception) -> None:
    async with serving(Agent(failing(error))) as client:
        assert failure(await client.send())[0] in ('internal', 'provider-error')


async def test_refused_file_of_earlier_message_is_named() -> None:
    agent = Agent(TestModel())
    async with serving(agent) as client:
        first = await client.send(message(parts=[OGG]))
        with agent.override(model=failing(NotImplementedError())):
            task = await client.send(message('again', contextId=first['contextId']))
    assert failure(task)[1] == 'The model did not take the message with the file talk.ogg (audio/ogg).'


def test_refusal_names_five_files_and_counts_rest() -> None:
    content = [
        *(BinaryContent(bytes([n]), media_type=f'image/x-{n}') for n in range(6)),
        AudioUrl('https://example.com/talk', identifier='talk'),
    ]
    request = ModelRequest(parts=[UserPromptPart('hello'), UserPromptPart(content)])
    with pytest.raises(FileRefused) as refused_files:
        check_files(ModelHTTPError(400, 'model'), [], request)
    assert str(refused_files.value) == (
        'The model did not take the message with the files (image/x-0), (image/x-1), (image/x-2), (image/x-3),'
        ' (image/x-4) and 2 more.'
    )
    with pytest.raises(FileRefused, match=r'with the file talk \(unknown type\)'):
        check_files(ModelHTTPError(400, 'model'), [], ModelRequest(parts=[UserPromptPart(content[-1:])]))


async def test_refused_file_is_reported_over_http() -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if 'hear' in str(messages):
            raise NotImplementedError
        return ModelResponse(parts=[TextPart('ok')])

    with serve(to_a2a(Agent(FunctionModel(answer)))) as server:
        headers = {'A2A-Version': '1.0'}
        async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=LIMIT) as client:
            body = {'message': message(parts=[{'text': 'hear'}, OGG])}
            task = (await client.post('/message:send', json=body)).json()['task']
    assert failure(task)[0] == 'refused-file'
