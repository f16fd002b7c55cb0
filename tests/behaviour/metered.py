"""Callers with quotas, a clock that stands still, and agents that say what they used."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from pydantic_ai_a2a import A2AApp, BearerAuth, Caller, hash_key
from pydantic_ai_a2a.clock import SYSTEM

from ..app_client import Answer, Client
from ..dialects import in_no_version
from .refusals import error_of_answer

DAY = timedelta(days=1)
USED = RequestUsage(input_tokens=60, output_tokens=40, cost=Decimal('0.01'))
"""What each request to a model here comes to."""
TOKENS = {'ann': 'the-token-of-ann-1234', 'bob': 'the-token-of-bob-1234', 'eve': 'the-token-of-eve-1234'}
AUTH = BearerAuth({
    hash_key(token): Caller(id=name, tenant='' if name == 'eve' else 'acme') for name, token in TOKENS.items()
})  # fmt: skip

HTTP = in_no_version('how often is asked is below what versions differ in')


class Clock:
    """The time of an app's quotas: it stands still, and passes when it is told to."""

    def __init__(self, app: Any) -> None:
        assert isinstance(app, A2AApp)
        assert app.metering is not None
        self.now = SYSTEM.now()
        app.metering.now = lambda: self.now

    def sleep(self, time: timedelta) -> None:
        self.now += time // timedelta(milliseconds=1)


def client_of(client: Client, name: str) -> Client:
    """The client of a caller."""
    return Client(client.app, headers={'Authorization': f'Bearer {TOKENS[name]}'})


def assert_quota_exceeded(answer: Answer, quota: str, *, retry_after: str = '1') -> None:
    """See that a quota was used up."""
    error = error_of_answer(answer, status=429)
    assert error.code == -32000
    assert answer.headers['retry-after'] == retry_after
    assert error.data[0]['metadata']['quota'] == quota


def work_tool() -> str:
    """What the agents here have for a tool."""
    return 'worked'


def agent_with_requests(steps: int = 1, used: RequestUsage = USED) -> Agent[object, str]:
    """An agent that asks its model so many times."""

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        done = sum(isinstance(each, ModelResponse) for each in messages)
        part = TextPart('done') if done % steps == steps - 1 else ToolCallPart('work')
        return ModelResponse(parts=[part], usage=used)

    agent = Agent(FunctionModel(answer), name='agent')
    agent.tool_plain(name='work')(work_tool)
    return agent
