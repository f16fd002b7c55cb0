"""Requests as bytes, a server that must refuse them, and what a refusal looks like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.profiles import ModelProfile

from pydantic_ai_a2a import to_a2a

from ..app_client import Answer, Client, RpcError, lifespan, message, rpc
from ..dialects import current_dialect


@asynccontextmanager
async def serving_without_runs(profile: ModelProfile | None = None, **options: Any) -> AsyncGenerator[Client]:
    """A client of a server that has stored and run nothing when the block ends."""
    runs: list[object] = []

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        runs.append(messages)
        return ModelResponse(parts=[TextPart('never')])

    app = to_a2a(Agent(FunctionModel(answer, profile=profile)), **options)
    async with lifespan(app):
        yield Client(app)
        assert await app.list_tasks() == []
    assert runs == []


def send_body(**fields: object) -> bytes:
    """A SendMessage whose message has some other fields; those that are None are left out."""
    return rpc(*send_params(**fields))


def send_params(**fields: object) -> tuple[str, dict[str, Any]]:
    """The method and the params of `send`."""
    return 'SendMessage', {'message': {key: value for key, value in (message() | fields).items() if value is not None}}


def error_of_answer(answer: Answer, *, status: int = 200, id: object = 'r-1') -> RpcError:
    """The error of an answer that is a whole error, with the correlation id that its header has, too.

    JSON-RPC has HTTP 200 and the request's id for most errors; HTTP+JSON a status for each, and no id.
    """
    event = current_dialect().refuses_in_streams and answer.body.startswith(b'data: ')
    assert answer.headers['content-type'] == ('text/event-stream' if event else current_dialect().media_type)
    assert answer.headers['x-correlation-id'] != ''
    if current_dialect().has_envelope:
        assert answer.json.keys() == {'jsonrpc', 'id', 'error'}
        assert (answer.status, answer.json['jsonrpc'], answer.json['id']) == (status, '2.0', id)
    else:
        assert answer.json['error']['code'] == answer.status >= 400
        assert status in (answer.status, 200)
    error = RpcError(current_dialect().error(answer.json))
    if current_dialect().has_details:
        assert error.data[0]['@type'] == 'type.googleapis.com/google.rpc.ErrorInfo'
        assert error.data[0]['domain'] == 'a2a-protocol.org'
        assert error.data[0]['metadata']['correlationId'] == answer.headers['x-correlation-id']
    return error


async def error_of_call(operation: Awaitable[object]) -> RpcError:
    """The error of an operation of a client."""
    with pytest.raises(RpcError) as error:
        await operation
    return error.value


SECRET = 'the-reason-of-the-exit'


class Panic(BaseException):
    """An error that is no `Exception`, as of code in Rust."""


BASE_EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    'exit': lambda: SystemExit(SECRET),
    'cancel': lambda: asyncio.CancelledError(SECRET),
    'close': lambda: GeneratorExit(SECRET),
    'panic': lambda: Panic(SECRET),
    'group': lambda: BaseExceptionGroup(SECRET, [SystemExit(SECRET), ValueError(SECRET)]),
}
"""Makers of errors that are no `Exception`, and that a function of the user may raise by mistake."""
