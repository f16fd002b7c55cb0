"""Numbers that providers and remote agents make up: every task ends, and nobody's budget pays for a remote agent."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from starlette.responses import Response

from pydantic_ai_a2a import A2A, Budget, Limits, Quotas, RemoteAgent
from pydantic_ai_a2a.wire.extensions.own_extensions import RUN_METADATA_URI

from ...app_client import message, state_of, texts
from ...cases import each_case
from ...client.agents.sample_agents import calling_agent
from ...client.canned_agent import CARD, TASK, CannedAgent, serve_canned
from ...serving import each_backend, serving
from ..metered import AUTH, DAY, client_of, work_tool
from ..pending_calls import answer_message, approve, pending_calls

ODD_USAGES: dict[str, dict[str, Any]] = {
    '10**26': {'input_tokens': 10**26},
    '10**5000': {'output_tokens': 10**5000},
    'negative': {'input_tokens': -(10**26)},
    'float': {'input_tokens': 1.5, 'cache_read_tokens': 2.5},
    'infinite': {'input_tokens': inf},
    'NaN': {'output_tokens': nan},
    'Decimal': {'input_tokens': Decimal('1.5')},
    'details': {'details': {'a': 1.5, 'b': 10**400, 'c': inf, 'd': 'text', 'e': -1}},
    'cost NaN': {'cost': Decimal('NaN')},
    'cost infinite': {'cost': Decimal('Infinity')},
    'cost 1e500': {'cost': Decimal('1e500')},
    'cost float': {'cost': -1.5},
    'seconds': {'audio_seconds': nan},
    'many seconds': {'audio_seconds': 10**400},
    'other kinds': {'web_searches': 10**400, 'rate': inf, 'tier': 'flex'},
}


def reporting(**usage: Any) -> Agent[None, Any]:
    """An agent that waits for an approval of its tool, and whose provider reports a usage."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        part = ToolCallPart('work', {}, 'c1') if len(messages) % 4 == 1 else TextPart('done')
        return ModelResponse(parts=[part], usage=RequestUsage(**usage))

    agent: Agent[None, Any] = Agent(FunctionModel(model), output_type=[str, DeferredToolRequests], name='reporting')
    agent.tool_plain(name='work', requires_approval=True)(work_tool)
    return agent


@each_backend('memory', 'sqlite', 'postgres')
@each_case('name', ODD_USAGES)
async def test_task_completes_despite_odd_provider_usage(name: str, backend: Any) -> None:
    quotas = Quotas(budgets=[Budget(window=DAY, requests=10**6), Budget(window=DAY, requests=10**6, of='tenant')])
    agent = reporting(**ODD_USAGES[name])
    async with serving(agent, backend=backend, limits=Limits(quotas=quotas)) as client:
        context: dict[str, Any] = {}
        for _ in range(2):
            waits = await client.send(message('work', **context))
            [call] = pending_calls(waits)
            ended = await client.send(answer_message(waits, approve(call['id'])))
            assert state_of(ended) == 'COMPLETED'
            context = {'contextId': ended['contextId']}
        spent = await client.a2a_app.backend.quotas.spent('/', DAY // timedelta(milliseconds=1), at=0)
    assert all(type(count) is int for slot in spent for count in slot)


def response_with_usage(count: str) -> Response:
    """The answer of a remote agent that makes its usage up."""
    names = ('requests', 'toolCalls', 'inputTokens', 'outputTokens', 'totalTokens', 'cost', 'details')
    usage = ', '.join(f'"{name}": {count}' for name in names)
    task = json.dumps({**TASK, 'artifacts': [{'artifactId': 'a', 'parts': [{'text': 'Done.'}]}], 'metadata': 'here'})
    task = task.replace('"here"', f'{{"{RUN_METADATA_URI}": {{"usage": {{{usage}}}}}}}')
    return Response(f'{{"jsonrpc": "2.0", "id": 1, "result": {{"task": {task}}}}}', media_type='application/json')


def agent_using_remote(kind: str, url: str) -> AbstractAgent[Any, Any]:
    """An agent with the remote agent as a tool, or as its model."""
    return calling_agent(capabilities=[A2A(url)]) if kind == 'tool' else RemoteAgent(url, name='remote')


COUNTS = ['1000000000', '9223372036854773807', '1' + '0' * 26, '1' + '0' * 4_000, '1e999', '-5', '1.5', '"12"', '{}']


@each_backend('memory', 'sqlite', 'postgres')
@pytest.mark.parametrize('kind', ['tool', 'model'])
async def test_usage_reported_by_remote_agent_is_not_charged(kind: str, backend: Any) -> None:
    card = {**CARD, 'capabilities': {'extensions': [{'uri': RUN_METADATA_URI}]}}
    remote = CannedAgent(*map(response_with_usage, COUNTS), card=card)
    remote.answers.append(remote.answers[-1])
    quotas = Quotas(budgets=[Budget(window=DAY, tokens=10_000, of='tenant'), Budget(window=DAY, requests=100)])
    with serve_canned(remote) as server:
        agent = agent_using_remote(kind, server.url)
        async with serving(agent, backend=backend, limits=Limits(quotas=quotas), auth=AUTH) as client:
            for _ in COUNTS:
                task = await client_of(client, 'ann').send()
                assert (state_of(task), texts(task)) == ('COMPLETED', ['Done.'])
            assert state_of(await client_of(client, 'bob').send()) == 'COMPLETED'
            [(_, requests, tokens, _)] = await client.a2a_app.backend.quotas.spent(
                'acme/ann', DAY // timedelta(milliseconds=1), at=0
            )
    assert (requests, tokens < 10_000) == (len(COUNTS) * (2 if kind == 'tool' else 1), True)
