from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel

from pydantic_ai_a2a.runner import can_stream


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
def test_whether_a_model_streams_is_known_without_a_request(model: Model, streams: bool) -> None:
    assert can_stream(model) is streams
