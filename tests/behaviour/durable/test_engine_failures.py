"""A run that fails at an engine has the kind of failure that it has without one."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelHTTPError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import RunFailure, Workers

from ...client import message
from ...engines import EVERYWHERE, Kit, Plain
from ..stage import serving

pytestmark = EVERYWHERE


def failing(kind: type[Exception], *args: Any) -> FunctionModel:
    def fail(messages: list[ModelMessage], info: AgentInfo) -> NoReturn:
        raise kind(*args)

    return FunctionModel(fail)


def calling() -> FunctionModel:
    def call(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart('work')])

    return FunctionModel(call)


MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    'busy': (lambda: failing(ModelHTTPError, 503, 'test'), 'provider-busy'),
    'fallback': (
        lambda: FallbackModel(failing(ModelHTTPError, 400, 'test'), failing(ModelHTTPError, 503, 'test')),
        'provider-busy',
    ),
    'error of the provider': (lambda: failing(ModelHTTPError, 400, 'test'), 'provider-error'),
    'content filter': (lambda: failing(ContentFilterError, 'secret'), 'refused-content'),
    'bad output': (lambda: failing(UnexpectedModelBehavior, 'secret'), 'bad-output'),
    'usage limit': (lambda: failing(UsageLimitExceeded, 'secret'), 'usage-limit'),
    'error of the agent': (lambda: failing(UserError, 'secret'), 'internal'),
    'unknown': (lambda: failing(ValueError, 'secret'), 'internal'),
}
TOOLS: dict[str, tuple[type[Exception], str]] = {
    'usage limit': (UsageLimitExceeded, 'usage-limit'),
    'content filter': (ContentFilterError, 'refused-content'),
    'unknown': (ValueError, 'internal'),
}


async def failure(kit: Plain, model: Any, sent: Any = 'hello', **arguments: Any) -> tuple[str, str]:
    """What a client and the hook hear of a failed task."""
    heard = list[RunFailure]()
    options: dict[str, Any] = {} if isinstance(kit, Kit) else {'workers': Workers(retries=0)}
    async with serving(kit.agent(model, **arguments), on_failure=heard.append, **options, **kit.options()) as client:
        task = await client.send(sent)
    assert 'secret' not in str(task)
    return task['status']['message']['metadata']['failure'], heard[0].kind


@pytest.mark.parametrize('case', MODELS)
async def test_failure_of_the_model_has_its_kind(kit: Plain, case: str) -> None:
    model, kind = MODELS[case]
    assert await failure(kit, model()) == (kind, kind)


@pytest.mark.parametrize('case', TOOLS)
async def test_failure_of_a_tool_has_its_kind(kit: Plain, case: str) -> None:
    error, kind = TOOLS[case]

    async def work() -> None:
        raise error('secret')

    assert await failure(kit, calling(), tools=[work]) == (kind, kind)


REFUSALS: list[tuple[Any, ...]] = [
    (ModelHTTPError, 400, 'test'),
    (NotImplementedError, 'secret'),
    (UserError, 'secret'),
]


@pytest.mark.parametrize('error', REFUSALS, ids=['http', 'code', 'agent'])
async def test_file_that_the_model_does_not_take_is_named(kit: Plain, error: tuple[Any, ...]) -> None:
    file = {'raw': b64encode(b'talk').decode(), 'mediaType': 'audio/ogg', 'filename': 'talk.ogg'}
    kinds = await failure(kit, failing(*error), message(parts=[{'text': 'hear'}, file]))
    assert kinds == ('refused-file', 'refused-file')


async def test_tool_that_fails_is_no_refusal_of_a_file(kit: Plain) -> None:
    async def work() -> None:
        raise NotImplementedError('secret')

    file = {'raw': b64encode(b'talk').decode(), 'mediaType': 'audio/ogg', 'filename': 'talk.ogg'}
    assert await failure(kit, calling(), message(parts=[file]), tools=[work]) == ('internal', 'internal')
