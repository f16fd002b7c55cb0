"""Claims of callers: verified facts that a run reads, in any process, and that no client and no log sees."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.test import TestModel
from starlette.requests import Request

from pydantic_ai_a2a import APIKeyAuth, CallContext, Caller, a2a

from ...app_client import texts
from ...serving import list_tasks, serving, wait_until_ended
from ..callers import authenticate_as
from ..durable_handover import serving_until_handover
from ..refusals import error_of_call

SECRET = 'ann@example.com'


def by_header(request: Request) -> Caller | None:
    return Caller(id=request.headers['x-caller'], claims={'email': SECRET, 'groups': ['a', 'b']})


class ClaimsAgent:
    """An agent that tells the claims of its caller."""

    def __init__(self, **options: Any) -> None:
        self.asking, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.agent: Agent[Any, str] = Agent(FunctionModel(self._model), name='desk', **options)
        self.agent.tool(self.whoami)

    async def _model(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = [part.content for sent in messages for part in sent.parts if isinstance(part, ToolReturnPart)]
        if returned:
            return ModelResponse(parts=[TextPart(str(returned[-1]))])
        self.asking.set()
        await self.gate.wait()
        return ModelResponse(parts=[ToolCallPart('whoami', {})])

    async def whoami(self, ctx: RunContext[Any]) -> int:
        """Return the number of claims, which are no text for the model."""
        claims = a2a(ctx).caller.claims
        assert claims == {'email': SECRET, 'groups': ['a', 'b']}
        return len(claims)


async def test_run_reads_claims_of_its_caller() -> None:
    calls: list[CallContext] = []
    for factory in (None, calls.append):
        async with serving(
            ClaimsAgent().agent, auth=by_header, deps_factory=factory, headers={'X-Caller': 'ann'}
        ) as client:
            task = await client.send('Who am I?')
            assert texts(task) == ['2']
            assert SECRET not in repr(task)
    assert [call.caller.claims for call in calls] == [{'email': SECRET, 'groups': ['a', 'b']}]


async def test_run_reads_caller_with_unusual_characters() -> None:
    callers: list[Caller] = []
    odd = Caller(id='\ud800 ü %41@', tenant='\udfff', scopes=frozenset({'\ud800', 'a:b'}))
    agent: Agent[Any, str] = Agent(TestModel())

    @agent.tool
    def whoami(ctx: RunContext[Any]) -> None:
        callers.append(a2a(ctx).caller)

    async with serving(agent, auth=authenticate_as(odd)) as client:
        await client.send('Who am I?')
    assert [(caller, caller.scopes) for caller in callers] == [(odd, odd.scopes)]


async def test_run_in_another_process_reads_claims(tmp_path: Path) -> None:
    first = ClaimsAgent()
    first.gate.clear()
    options: dict[str, Any] = {
        'auth': by_header,
        'backend': f'sqlite:///{tmp_path}/desk.db',
        'headers': {'X-Caller': 'ann'},
    }
    async with serving_until_handover(first.agent, **options) as client:
        task = await client.send('Who am I?', returnImmediately=True)
        await first.asking.wait()
    async with serving_until_handover(ClaimsAgent().agent, **options) as client:
        done = await wait_until_ended(client, task['id'])
    assert texts(done) == ['2']


async def test_logs_and_spans_have_no_claims(caplog: pytest.LogCaptureFixture) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = InstrumentationSettings(tracer_provider=provider)
    desk = ClaimsAgent(capabilities=[Instrumentation(settings)])
    with caplog.at_level(logging.DEBUG):
        async with serving(desk.agent, auth=by_header, headers={'X-Caller': 'ann'}) as client:
            await client.send('Who am I?')
    spans = exporter.get_finished_spans()
    assert len(spans) > 2
    assert not [span for span in spans if SECRET in span.to_json()]
    assert SECRET not in caplog.text + repr(Caller(id='ann', claims={'email': SECRET}))


def test_claims_do_not_change_the_owner() -> None:
    plain, with_claims = Caller(id='ann'), Caller(id='ann', claims={'email': SECRET})
    assert (plain, hash(plain), plain.owner) == (with_claims, hash(with_claims), with_claims.owner)


async def test_api_key_can_carry_claims() -> None:
    calls: list[CallContext] = []
    caller = Caller(id='ann', claims={'label': 'ci'})
    async with serving(
        Agent('test'),
        auth=APIKeyAuth({'a-long-api-key-of-ann': caller}),
        deps_factory=calls.append,
        headers={'X-API-Key': 'a-long-api-key-of-ann'},
    ) as client:
        await client.send()
    assert [call.caller.claims for call in calls] == [{'label': 'ci'}]


@pytest.mark.parametrize(
    'claims',
    [{'at': b'bytes'}, {'n': float('nan')}, {1: 'a'}, {'set': {1}}, {'long': 'x' * 10_001}, {'half': '\ud800'}],
    ids=['bytes', 'NaN', 'number as a name', 'set', 'too long', 'surrogate'],
)
async def test_invalid_claims_refuse_the_request(claims: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test'), auth=authenticate_as(Caller(id='ann', claims=claims))) as client:
        error = await error_of_call(client.send())
        assert await list_tasks(client) == []
    assert error.code == -32603
    assert 'Caller.claims must be a JSON object of at most 10000 bytes.' in caplog.text
