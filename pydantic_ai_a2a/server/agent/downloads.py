"""Downloads of files by URL: all files of a request to the model in a bounded time.

A model downloads files while building its request, with a time limit for each read. A host that sends a byte now and
then would hold the run for ever. Therefore Pydantic AI's own download runs before the model builds its request. The
messages of the run keep the URLs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeGuard

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BinaryContent,
    FileUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse, download_item
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from ...errors import DownloadTimedOut

_STAND_INS = frozenset({'function', 'test'})
"""Systems of models for tests. Such models get the URLs."""


def has_files(prompt: str | Sequence[UserContent] | None, messages: Sequence[ModelMessage]) -> bool:
    """Return whether a prompt, or the messages before the prompt, have files to download.

    Every run calls this function on a conversation of any length, so messages without files cost no function call.
    """
    contents: list[Any] = [] if prompt is None or prompt.__class__ is str else [prompt]
    for message in messages:
        if message.kind == 'request':
            for part in message.parts:
                if part.part_kind == 'user-prompt' and part.content.__class__ is not str:
                    contents += (part.content,)
    return bool(contents) and any(_is_to_download(item) for content in contents for item in content)


class Downloads(AbstractCapability[Any]):
    """Downloads the files of each request before the model builds the request.

    Args:
        seconds: Seconds for all files of one request.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Wrap the model if the request has files to download."""
        if not any(_to_download(request_context.messages)) or _stands_in(request_context.model):
            return request_context
        return replace(request_context, model=_Downloading(request_context.model, self._seconds))


class _Downloading(WrapperModel):
    """Gives a model the bytes of files instead of the URLs. Pydantic AI bounds the bytes of each request."""

    def __init__(self, wrapped: Model, seconds: float) -> None:
        super().__init__(wrapped)
        self._seconds = seconds

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        messages = await self._downloaded(messages)
        return await self.wrapped.request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        messages = await self._downloaded(messages)
        async with self.wrapped.request_stream(
            messages, model_settings, model_request_parameters, run_context
        ) as response:
            yield response

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        messages = await self._downloaded(messages)
        return await self.wrapped.count_tokens(messages, model_settings, model_request_parameters)

    async def _downloaded(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return the messages with the bytes of their files.

        Raises:
            DownloadTimedOut: The downloads take too long.
        """
        try:
            async with asyncio.timeout(self._seconds):
                return [await _with_files(message) for message in messages]
        except TimeoutError as error:
            raise DownloadTimedOut(f'Files were not downloaded within {self._seconds:g} seconds.') from error


async def _with_files(message: ModelMessage) -> ModelMessage:
    if not any(_to_download([message])):
        return message
    parts: list[Any] = []
    for part in message.parts:
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            content = [await _download(item) if _is_to_download(item) else item for item in part.content]
            parts.append(replace(part, content=content))
        else:
            parts.append(part)
    return replace(message, parts=parts)


async def _download(file: FileUrl) -> BinaryContent:
    """Download a file. The server's media type counts only if the main type is the accepted one."""
    item = await download_item(file, 'bytes')
    accepted, named = file.media_type, item['data_type']
    media_type = named if named.partition('/')[0] == accepted.partition('/')[0] else accepted
    content = BinaryContent(
        item['data'], media_type=media_type, identifier=file.identifier, vendor_metadata=file.vendor_metadata
    )
    return BinaryContent.narrow_type(content)


def _to_download(messages: Sequence[ModelMessage]) -> Iterator[FileUrl]:
    for message in messages:
        for part in message.parts if isinstance(message, ModelRequest) else ():
            if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
                yield from filter(_is_to_download, part.content)


def _is_to_download(item: object) -> TypeGuard[FileUrl]:
    return isinstance(item, FileUrl) and bool(item.force_download)


def _stands_in(model: Model) -> bool:
    if isinstance(model, WrapperModel):
        return _stands_in(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(map(_stands_in, model.models))
    return model.system in _STAND_INS
