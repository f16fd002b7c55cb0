"""URLs of files that clients send: no provider, which may be in the same network, is left to fetch them."""

from __future__ import annotations

from typing import Any

import pytest
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent
from pydantic_ai.messages import FileUrl, ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import AgentWorker, Messages, Workers, to_a2a

from ...client import message
from ..stage import serving

URL = 'https://example.com/a.png'


class Model:
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
async def test_files_are_downloaded_here_unless_they_are_left_to_the_provider(options: Any, forced: bool) -> None:
    model = Model()
    async with serving(model.agent, **options) as client:
        await client.send(message(parts=[{'url': URL, 'mediaType': 'image/png'}]))
    assert model.downloads == [forced]


@pytest.mark.parametrize(('options', 'forced'), [({}, True), ({'force_download': False}, False)])
async def test_a_worker_of_ones_own_says_so_itself(options: Any, forced: bool) -> None:
    model = Model()
    worker = AgentWorker(agent=model.agent, broker=InMemoryBroker(), storage=InMemoryStorage(), **options)
    async with serving(model.agent, workers=Workers(worker=worker)) as client:
        await client.send(message(parts=[{'url': URL, 'mediaType': 'image/png'}]))
    assert model.downloads == [forced]
    with pytest.raises(TypeError, match=r'to_a2a\(\) takes no force_download'):
        to_a2a(model.agent, workers=Workers(worker=worker), messages=Messages(force_download=False))
