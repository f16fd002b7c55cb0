"""URLs of files that clients send: which are taken, who downloads the files, and that no host holds a run for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Message, Part
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryImage,
    FileUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage, UsageLimits

from pydantic_ai_a2a import AgentWorker, Limits, Messages, Workers, to_a2a
from pydantic_ai_a2a.errors import InvalidParamsError

from ...app_client import message, state_of, texts
from ...constants import with_constants
from ...serving import serving
from ...tcp_server import tcp_server
from ..refusals import error_of_answer, send_body, serving_without_runs

URL = 'https://example.com/a.png'


class UrlNotingModel:
    """A model that notes the URLs which it would have to fetch or to have downloaded."""

    def __init__(self) -> None:
        self.agent = Agent(FunctionModel(self._answer))
        self.downloads: list[Any] = []

    def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        for part in messages[-1].parts:
            if isinstance(part, UserPromptPart):
                self.downloads += [each.force_download for each in part.content if isinstance(each, FileUrl)]
        return ModelResponse(parts=[TextPart('seen')])


@pytest.mark.parametrize(('options', 'forced'), [({}, True), ({'messages': Messages(force_download=False)}, False)])
async def test_server_downloads_files_unless_left_to_provider(options: Any, forced: bool) -> None:
    model = UrlNotingModel()
    async with serving(model.agent, **options) as client:
        await client.send(message(parts=[{'url': URL, 'mediaType': 'image/png'}]))
    assert model.downloads == [forced]


@pytest.mark.parametrize(('options', 'forced'), [({}, True), ({'force_download': False}, False)])
async def test_user_worker_takes_force_download_itself(options: Any, forced: bool) -> None:
    model = UrlNotingModel()
    worker = AgentWorker(agent=model.agent, broker=InMemoryBroker(), storage=InMemoryStorage(), **options)
    async with serving(model.agent, workers=Workers(worker=worker)) as client:
        await client.send(message(parts=[{'url': URL, 'mediaType': 'image/png'}]))
    assert model.downloads == [forced]
    with pytest.raises(TypeError, match=r'to_a2a\(\) takes no force_download'):
        to_a2a(model.agent, workers=Workers(worker=worker), messages=Messages(force_download=False))


async def test_file_url_scheme_must_be_allowed() -> None:
    told: list[Any] = []

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        told.extend(part.content for each in messages for part in each.parts if isinstance(part, UserPromptPart))
        return ModelResponse(parts=[TextPart('done')])

    parts = [{'url': 's3://bucket/a.png', 'mediaType': 'image/png'}]
    async with serving_without_runs() as client:
        error = error_of_answer(await client.post(send_body(parts=parts)))
    allowed = Messages(allowed_file_url_schemes=frozenset({'https', 's3'}))
    async with serving(Agent(FunctionModel(answer)), messages=allowed) as client:
        assert state_of(await client.send(message(parts=parts))) == 'COMPLETED'
    assert (error.code, error.fields) == (-32602, ['message.parts[0].url'])
    assert told == [[ImageUrl(url='s3://bucket/a.png', _media_type='image/png')]]


async def test_user_worker_takes_allowed_url_schemes_itself() -> None:
    agent, s3 = Agent('test'), frozenset({'s3'})
    broker, storage = InMemoryBroker(), InMemoryStorage()
    part = Part(url='s3://bucket/a.png', media_type='image/png')
    history = [Message(role='user', message_id='m', parts=[part])]
    plain = AgentWorker(agent=agent, broker=broker, storage=storage)
    worker = AgentWorker(agent=agent, broker=broker, storage=storage, allowed_file_url_schemes=s3)
    assert worker.build_message_history(history) != []
    with pytest.raises(InvalidParamsError, match='must be an https URL'):
        plain.build_message_history(history)
    with pytest.raises(TypeError, match=r'to_a2a\(\) takes no allowed_file_url_schemes'):
        to_a2a(agent, workers=Workers(worker=worker), messages=Messages(allowed_file_url_schemes=s3))


# --- downloads from real hosts on this machine ----------------------------------------------------------------------

PNG = b'\x89PNG\r\n\x1a\n'


@asynccontextmanager
async def file_host(*, ends: bool, media_type: str = 'image/png') -> AsyncGenerator[tuple[str, asyncio.Event]]:
    """A host with a file, which it sends whole or as a byte now and then; its URL, and whether a client has gone."""
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b'\r\n\r\n')
        length = len(PNG) if ends else 10_000_000
        head = f'HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n'
        writer.write(head.encode() + (PNG if ends else b''))
        reading = asyncio.ensure_future(reader.read())  # ends when the client has gone
        while not ends and not reading.done():
            writer.write(b'x')
            await asyncio.wait([reading], timeout=0.01)
        with suppress(ConnectionError):
            await reading
        gone.set()
        writer.close()

    async with tcp_server(serve) as port:
        yield f'http://127.0.0.1:{port}/a.png', gone


class ProviderModel(FunctionModel):
    """A model of a provider: notes the files that each of its requests has."""

    def __init__(self) -> None:
        super().__init__(self._answer, stream_function=self._stream)
        self.files: list[UserContent] = []

    @property
    def system(self) -> str:
        return 'provider'

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        self._note(messages)
        return RequestUsage(input_tokens=1)

    def _note(self, messages: list[ModelMessage]) -> None:
        for sent in messages:
            for part in sent.parts:
                if isinstance(part, UserPromptPart):
                    self.files += [item for item in part.content if not isinstance(item, str)]

    def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self._note(messages)
        return ModelResponse(parts=[TextPart('seen')])

    async def _stream(self, messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        self._note(messages)
        yield 'seen'


class LocalFileWorker(AgentWorker):
    """Takes every text as the URL of a file, which may be on this machine."""

    def build_message_history(self, history: list[Message]) -> list[ModelMessage]:
        url = history[-1]['parts'][0].get('text', '')
        file = ImageUrl(url, force_download='allow-local', media_type='image/png', vendor_metadata={'detail': 'low'})
        return [ModelRequest(parts=[UserPromptPart(['Look:', file])])]


def worker(agent: Agent[Any, Any], **options: Any) -> LocalFileWorker:
    return LocalFileWorker(
        agent=agent, broker=InMemoryBroker(), storage=InMemoryStorage[list[ModelMessage]](), **options
    )


@pytest.mark.parametrize('streamed', [False, True])
async def test_downloaded_bytes_reach_model_and_token_count(streamed: bool) -> None:
    provider = ProviderModel()
    agent = Agent(provider)
    limits = UsageLimits(count_tokens_before_request=True, input_tokens_limit=100)
    async with (
        file_host(ends=True) as (url, _),
        serving(agent, workers=Workers(worker=worker(agent, usage_limits=limits))) as client,
    ):
        if streamed:
            async with client.live.send_streaming(url) as stream:
                await stream.rest()
        else:
            assert texts(await client.send(url)) == ['seen']
    assert provider.files == [BinaryImage(PNG, media_type='image/png', vendor_metadata={'detail': 'low'})] * 2


async def test_conversation_keeps_urls_and_downloads_per_request() -> None:
    provider = ProviderModel()
    agent = Agent(provider, system_prompt='Describe the file.')
    async with file_host(ends=True) as (url, _), serving(agent, workers=Workers(worker=worker(agent))) as client:
        task = await client.send(url)
        await client.send(message(url, contextId=task['contextId']))
    assert [type(file) for file in provider.files] == [BinaryImage] * 3


@pytest.mark.parametrize('named', ['image/webp', 'text/html'])
async def test_downloaded_media_type_counts_within_accepted_kind(named: str) -> None:
    provider = ProviderModel()
    agent = Agent(FallbackModel(provider, provider))
    async with (
        file_host(ends=True, media_type=named) as (url, _),
        serving(agent, workers=Workers(worker=worker(agent))) as client,
    ):
        await client.send(url)
    [file] = provider.files
    assert isinstance(file, BinaryImage)
    assert file.media_type == ('image/webp' if named == 'image/webp' else 'image/png')


async def test_endless_download_fails_task() -> None:
    agent = Agent(ProviderModel())
    limits = with_constants(Limits, download_time=2)
    async with (
        file_host(ends=False) as (url, gone),
        serving(agent, workers=Workers(worker=worker(agent)), limits=limits) as client,
    ):
        task = await client.send(url)
        await gone.wait()
    assert state_of(task) == 'FAILED'
    assert task['status']['message']['metadata']['failure'] == 'download'


async def test_function_model_gets_file_url_without_download() -> None:
    files: list[Any] = []

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        files.append(messages[-1].parts[-1])
        return ModelResponse(parts=[TextPart('seen')])

    agent = Agent(WrapperModel(FunctionModel(answer)))
    async with serving(agent, workers=Workers(worker=worker(agent))) as client:
        await client.send('https://example.com/a.png')
    [part] = files
    assert isinstance(part.content[-1], ImageUrl)
