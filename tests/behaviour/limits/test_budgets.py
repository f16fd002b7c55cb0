"""What callers may use of the model in a while: before a run, in it, and what is charged however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits

from pydantic_ai_a2a import Budget, Limits, Quotas, Workers, to_a2a

from ...agents import user_prompts
from ...app_client import LIMIT, Client, message, state_of
from ...clocks import skip_time
from ...constants import with_constants
from ...serving import list_tasks, serving, wait_until_ended
from ..durable_handover import serving_until_handover
from ..fasta2a_parts import plain_worker
from ..metered import AUTH, DAY, USED, Clock, agent_with_requests, assert_quota_exceeded, client_of, work_tool
from ..refusals import send_body


@asynccontextmanager
async def serving_with_budgets(
    agent: Agent[Any, Any], *budgets: Budget, limits: Limits | None = None, **options: Any
) -> AsyncGenerator[tuple[Client, Clock]]:
    """A client of an app with budgets, and its clock."""
    async with serving(agent, limits=replace(limits or Limits(), quotas=Quotas(budgets=budgets)), **options) as client:
        clock = Clock(client.app)
        clock.now += -clock.now % (24 * 60 * 60_000)  # where a part of each window begins
        yield client, clock


MINUTES = timedelta(minutes=1)
TOMORROW = str(24 * 3600 + 24 * 60)
"""Seconds until the first part of a day has left the window."""


@pytest.mark.parametrize(
    ('budget', 'quota'),
    [
        (Budget(window=60 * MINUTES, requests=2), 'budgets.requests'),
        (Budget(window=60 * MINUTES, tokens=200), 'budgets.tokens'),
        (Budget(window=60 * MINUTES, cost=0.02), 'budgets.cost'),
    ],
    ids=['requests', 'tokens', 'cost'],
)
async def test_exhausted_budget_refuses_until_window_passes(budget: Budget, quota: str) -> None:
    async with serving_with_budgets(agent_with_requests(), budget) as (client, clock):
        await client.send()
        clock.sleep(10 * MINUTES)
        await client.send()
        clock.sleep(10 * MINUTES)
        assert_quota_exceeded(await client.post(send_body()), quota, retry_after=str(41 * 60))
        assert len(await list_tasks(client)) == 2
        clock.sleep(41 * MINUTES)
        await client.send()
        assert_quota_exceeded(await client.post(send_body()), quota, retry_after=str(10 * 60))


async def test_repeated_message_is_answered_despite_exhausted_budget() -> None:
    async with serving_with_budgets(agent_with_requests(), Budget(window=DAY, requests=1)) as (client, _):
        sent = message(messageId='a-message-id-of-its-own')
        task = await client.send(sent)
        assert_quota_exceeded(await client.post(send_body()), 'budgets.requests', retry_after=TOMORROW)
        assert await client.send(sent) == task
        assert len(await list_tasks(client)) == 1


async def test_run_is_limited_to_remaining_budget() -> None:
    limits = UsageLimits(request_limit=9)
    async with serving_with_budgets(
        agent_with_requests(steps=3), Budget(window=DAY, requests=4), usage_limits=limits
    ) as (client, _):
        assert state_of(await client.send()) == 'COMPLETED'
        failed = await client.send()
        assert failed['status']['message']['metadata']['failure'] == 'usage-limit'
        assert_quota_exceeded(await client.post(send_body()), 'budgets.requests', retry_after=TOMORROW)


async def test_smallest_remaining_budget_limits_run() -> None:
    budgets = Budget(window=DAY, requests=9), Budget(window=7 * DAY, requests=2), Budget(window=30 * DAY, requests=50)
    async with serving_with_budgets(agent_with_requests(steps=3), *budgets) as (client, _):
        failed = await client.send()
        assert failed['status']['message']['metadata']['failure'] == 'usage-limit'
        assert await usage_of(client) == [(2, 200, 20_000_000)]


@pytest.mark.parametrize(
    'budget', [Budget(window=DAY, tokens=250), Budget(window=DAY, cost=Decimal('0.025'))], ids=['tokens', 'cost']
)
async def test_run_ends_at_request_exceeding_budget(budget: Budget) -> None:
    async with serving_with_budgets(agent_with_requests(steps=9), Budget(window=DAY, requests=100), budget) as (
        client,
        _,
    ):
        task = await client.send()
        assert task['status']['message']['metadata']['failure'] == 'usage-limit'
        assert await usage_of(client) == [(3, 300, 30_000_000)]


async def usage_of(client: Client, subject: str = '/', window: timedelta = DAY) -> list[tuple[int, int, int]]:
    """What is known of what a caller's runs have used: requests, tokens, billionths of a dollar."""
    store, ms = client.a2a_app.backend.quotas, window // timedelta(milliseconds=1)
    return [each[1:] for each in await store.spent(subject, ms, at=0)]


@pytest.mark.parametrize(
    'budget',
    [Budget(window=DAY, requests=1), Budget(window=DAY, tokens=100), Budget(window=DAY, cost=Decimal('0.01'))],
    ids=['requests', 'tokens', 'cost'],
)
async def test_queued_task_without_budget_asks_no_model(budget: Budget) -> None:
    asked: list[str] = []
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        asked.extend(user_prompts(messages))
        begun.set()
        await goes_on.wait()
        return ModelResponse(parts=[TextPart('done')], usage=USED)

    async with serving_with_budgets(Agent(FunctionModel(answer)), budget, workers=Workers(running=1)) as (client, _):
        first = await client.send('first', returnImmediately=True)
        await begun.wait()
        second = await client.send('second', returnImmediately=True)
        goes_on.set()
        assert state_of(await wait_until_ended(client, first['id'])) == 'COMPLETED'
        failed = await wait_until_ended(client, second['id'])
    assert failed['status']['message']['metadata']['failure'] == 'usage-limit'
    assert asked == ['first']


async def test_tenant_budget_is_shared_by_its_callers() -> None:
    budgets = [Budget(window=DAY, requests=2, of='tenant'), Budget(window=DAY, requests=9)]
    async with serving_with_budgets(agent_with_requests(), *budgets, auth=AUTH) as (client, _):
        for name in ('ann', 'bob'):
            await client_of(client, name).send()
        assert_quota_exceeded(
            await client_of(client, 'ann').post(send_body()), 'budgets.requests', retry_after=TOMORROW
        )
        await client_of(client, 'eve').send()
        assert await usage_of(client, 'acme') == [(2, 200, 20_000_000)]
        assert await usage_of(client, 'acme/ann') == [(1, 100, 10_000_000)]


def failing_model(messages: Sequence[ModelMessage], _: AgentInfo) -> ModelResponse:
    """A model that breaks down at its second request."""
    if len(messages) > 1:
        raise ValueError('broken')
    return ModelResponse(parts=[ToolCallPart('work')], usage=USED)


async def test_failed_run_is_charged_its_usage() -> None:
    agent = Agent(FunctionModel(failing_model))
    agent.tool_plain(name='work')(work_tool)
    async with serving_with_budgets(agent, Budget(window=DAY, requests=9)) as (client, _):
        assert state_of(await client.send()) == 'FAILED'
        assert await usage_of(client) == [(1, 100, 10_000_000)]


class BlockedToolAgent:
    """An agent whose one call of a tool takes as long as the test wants; a stubborn one also if it is cancelled."""

    def __init__(self, *, stubborn: bool) -> None:
        self.agent = Agent(agent_with_requests(steps=2).model, name='agent')
        self.agent.tool_plain(self.work)
        self.begun = asyncio.Event()
        self.goes_on = asyncio.Event()
        self._stubborn = stubborn

    async def work(self) -> str:
        self.begun.set()
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            if not self._stubborn:
                raise
            await self.goes_on.wait()
        return 'worked'


@pytest.mark.parametrize('grace', [LIMIT, 0.001], ids=['in time', 'over its head'])
async def test_canceled_run_is_charged_its_usage(grace: float) -> None:
    held = BlockedToolAgent(stubborn=grace != LIMIT)
    limits = with_constants(Limits, cancel_grace=grace)
    async with serving_with_budgets(held.agent, Budget(window=DAY, requests=9), limits=limits) as (client, _):
        task = await client.send(returnImmediately=True)
        await held.begun.wait()
        canceling = asyncio.create_task(client.call('CancelTask', {'id': task['id']}))
        assert state_of(await canceling) == 'CANCELED'
        held.goes_on.set()
    assert await usage_of(client) == [(1, 100, 10_000_000)]


class PricedModel(FunctionModel):
    """A model that has a price."""

    @property
    def system(self) -> str:
        return 'openai'


class SilentModelAgent:
    """An agent whose model never answers; with a stream it has said something by then."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.agent = Agent(FunctionModel(self.answer), instructions='i' * 100)
        self.streaming = Agent(FunctionModel(self.answer, stream_function=self.stream), instructions='i' * 100)

    async def answer(self, _: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        self.begun.set()
        return await asyncio.Future()

    async def stream(self, _: list[ModelMessage], __: AgentInfo) -> AsyncGenerator[str]:
        yield 's' * 4000
        self.begun.set()
        await asyncio.Future()


async def test_canceled_model_request_is_charged_by_its_prompt() -> None:
    asked = SilentModelAgent()
    async with serving_with_budgets(asked.agent, Budget(window=DAY, requests=1)) as (client, _):
        file = {'raw': 'iVBORw0KGgo=', 'mediaType': 'image/png'}
        sent = message(parts=[{'text': 'x' * 4000}, {'data': {'a': 'y' * 4000}}, file])
        task = await client.send(sent, returnImmediately=True)
        await asked.begun.wait()
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
        [(requests, tokens, _)] = await usage_of(client)
        assert requests == 1
        assert 3025 <= tokens <= 3100
        assert_quota_exceeded(await client.post(send_body()), 'budgets.requests', retry_after=TOMORROW)


async def test_tool_arguments_and_results_count_in_prompt_charge() -> None:
    asked = SilentModelAgent()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return await asked.answer(messages, info)
        return ModelResponse(parts=[ToolCallPart('look', {'at': 'x' * 4000})], usage=USED)

    def look(at: str) -> dict[str, str]:
        return {'seen': 'y' * 8000}

    agent = Agent(FunctionModel(answer))
    agent.tool_plain(look)
    async with serving_with_budgets(agent, Budget(window=DAY, requests=9)) as (client, _):
        task = await client.send(returnImmediately=True)
        await asked.begun.wait()
        await client.call('CancelTask', {'id': task['id']})
        [(requests, tokens, _)] = await usage_of(client)
    assert requests == 2
    assert 3100 <= tokens <= 3200


async def test_canceled_model_stream_is_charged_by_streamed_text() -> None:
    asked = SilentModelAgent()
    async with serving_with_budgets(asked.streaming, Budget(window=DAY, tokens=900)) as (client, _):
        async with client.live.send_streaming('x' * 400) as stream:
            task = (await anext(stream)).result['task']
            await asked.begun.wait()
            await client.call('CancelTask', {'id': task['id']})
            await stream.rest()
        [(requests, tokens, _)] = await usage_of(client)
    assert requests == 1
    assert 1125 <= tokens <= 1250


async def test_cancelled_stream_is_charged_reported_input_tokens() -> None:
    """`FunctionModel` reports 50 input tokens at once: more than a quarter of the sent characters."""
    asked = SilentModelAgent()
    async with serving_with_budgets(asked.streaming, Budget(window=DAY, requests=9)) as (client, _):
        async with client.live.send_streaming('x') as stream:
            task = (await anext(stream)).result['task']
            await asked.begun.wait()
            await client.call('CancelTask', {'id': task['id']})
            await stream.rest()
        [(_, tokens, _)] = await usage_of(client)
    assert tokens == 50 + 4000 // 4


async def test_timed_out_model_request_is_charged() -> None:
    budgets = Budget(window=DAY, requests=9), Budget(window=DAY, cost=1)
    asked = SilentModelAgent()
    async with serving_with_budgets(asked.agent, *budgets, timeout=LIMIT / 4) as (client, _):
        sending = asyncio.ensure_future(client.send())
        await asked.begun.wait()
        skip_time(LIMIT / 4)
        failed = await sending
        assert failed['status']['message']['metadata']['failure'] == 'timeout'
        assert [requests for requests, _, _ in await usage_of(client)] == [1]


async def test_unanswered_model_request_costs_price_of_its_tokens() -> None:
    asked = SilentModelAgent()
    asked.agent.model = PricedModel(asked.answer, model_name='gpt-5.2')
    async with serving_with_budgets(asked.agent, Budget(window=DAY, cost=1)) as (client, _):
        task = await client.send('x' * 400_000, returnImmediately=True)
        await asked.begun.wait()
        await client.call('CancelTask', {'id': task['id']})
        [(_, tokens, cost)] = await usage_of(client)
    assert cost > tokens > 100_000  # billionths of a dollar: more than 0.001 for a million


@pytest.mark.filterwarnings('ignore:A .cost_limit. is set but cannot be enforced')
async def test_unpriced_model_has_zero_cost() -> None:
    unpriced = replace(USED, cost=None)
    async with serving_with_budgets(agent_with_requests(used=unpriced), Budget(window=DAY, cost=0.01)) as (client, _):
        for _ in range(2):
            assert state_of(await client.send()) == 'COMPLETED'
        assert await usage_of(client) == [(2, 200, 0)]


async def test_run_resumed_after_restart_is_charged_once(tmp_path: Path) -> None:
    held = BlockedToolAgent(stubborn=False)
    options: Any = {
        'backend': f'sqlite:///{tmp_path}/agent.db?synchronous=normal',
        'limits': Limits(quotas=Quotas(budgets=[Budget(window=DAY, requests=9)])),
    }
    async with serving_until_handover(held.agent, **options) as client:
        task = await client.send(returnImmediately=True)
        await held.begun.wait()
    held.goes_on.set()
    async with serving_until_handover(held.agent, **options) as client:
        assert state_of(await wait_until_ended(client, task['id'])) == 'COMPLETED'
        assert await usage_of(client) == [(2, 200, 20_000_000)]


def test_budgets_cannot_be_combined_with_foreign_worker() -> None:
    workers, budgets = Workers(worker=plain_worker()), Quotas(budgets=[Budget(window=DAY, requests=1)])
    with pytest.raises(TypeError, match=r'^Quotas\.budgets cannot be combined with'):
        to_a2a(Agent('test'), workers=workers, limits=Limits(quotas=budgets))
    assert to_a2a(Agent('test'), workers=workers, limits=Limits(quotas=Quotas(tasks=1))).metering is not None
