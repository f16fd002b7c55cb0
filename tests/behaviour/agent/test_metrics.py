"""The metrics that an OpenTelemetry SDK reads: tasks, runs, tokens and webhooks, without a name of a caller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from pydantic_ai_a2a import Limits, Messages, Push, Retention, Workers
from pydantic_ai_a2a.server.store.ports import Swept
from pydantic_ai_a2a.server.store.sql.housekeeping import SqlHousekeeping
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.telemetry.metrics import metrics

from ...agents import GatedAgent, scripted_model
from ...app_client import RpcError, message, state_of
from ...constants import with_constants
from ...serving import each_backend, serving, wait_until_ended
from ...suites import values
from ...suites.values import claim_and_finish, model_turn, submit
from ...webhooks import webhook
from ..pending_calls import ApprovalAgent, answer_message, approve

USAGE = RequestUsage(input_tokens=7, output_tokens=3)


class Metrics:
    """The metrics of one test."""

    def __init__(self, reader: InMemoryMetricReader) -> None:
        self._reader = reader

    def points(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """Return the attributes and the value of each point, of a histogram its count."""
        data = self._reader.get_metrics_data()
        assert data is not None
        [scope] = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        assert scope.scope.name == 'pydantic_ai_a2a'
        return {
            metric.name: [
                (dict(point.attributes or {}), getattr(point, 'value', getattr(point, 'count', None)))
                for point in metric.data.data_points
            ]
            for metric in scope.metrics
        }

    def tasks(self) -> dict[str, int]:
        """Return how many tasks have entered each state, with the kind of a failure."""
        points = self.points()['a2a.task.transitions']
        words = [(' '.join(attributes.values()), value) for attributes, value in points]
        return {name.removeprefix('TASK_STATE_').lower().replace('_', '-'): value for name, value in words}

    def text(self) -> str:
        data = self._reader.get_metrics_data()
        return '' if data is None else data.to_json()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metrics]:
    # OpenTelemetry's own function sets the provider of a process once and for all tests that follow.
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr('opentelemetry.metrics._internal._METER_PROVIDER', provider)
    monkeypatch.setattr(metrics, 'instruments', None)
    yield Metrics(reader)
    provider.shutdown()


async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart('done')], usage=USAGE)


async def test_task_run_tokens_and_queue_time_are_counted(measured: Metrics) -> None:
    async with serving(Agent(FunctionModel(answer))) as client:
        await client.send()
        points = measured.points()
    assert points == snapshot(
        {
            'a2a.task.transitions': [
                ({'a2a.task.state': 'TASK_STATE_SUBMITTED'}, 1),
                ({'a2a.task.state': 'TASK_STATE_COMPLETED'}, 1),
            ],
            'a2a.queue.duration': [({}, 1)],
            'a2a.run.active': [({}, 0)],
            'a2a.run.duration': [({}, 1)],
            'a2a.run.tokens': [({'gen_ai.token.type': 'input'}, 7), ({'gen_ai.token.type': 'output'}, 3)],
            'a2a.queue.length': [({}, 0)],
            'a2a.queue.paused': [({}, 0)],
        }
    )


async def test_repeated_message_is_counted_as_single_task(measured: Metrics) -> None:
    async with serving(Agent(FunctionModel(answer))) as client:
        sent = message()
        await client.send(sent)
        await client.send(sent)
    assert measured.tasks() == {'submitted': 1, 'completed': 1}


async def test_failed_task_is_counted_with_failure_kind(measured: Metrics) -> None:
    async with serving(Agent(scripted_model(ValueError('SECRET')))) as client:
        await client.send()
    assert measured.tasks() == {'submitted': 1, 'failed internal': 1}
    assert measured.points()['a2a.run.duration'] == [({'error.type': 'ValueError'}, 1)]


async def test_each_retry_is_counted_but_no_token_twice(measured: Metrics) -> None:
    requests = 0

    async def busy_at_second(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        nonlocal requests
        requests += 1
        if requests == 2:
            raise ModelHTTPError(503, 'model')
        return ModelResponse(parts=[TextPart('done')], usage=USAGE)

    agent = Agent(FunctionModel(busy_at_second))

    @agent.output_validator
    def refuse_first(text: str) -> str:
        if requests == 1:
            raise ModelRetry('once more')
        return text

    async with serving(agent, workers=with_constants(Workers, backoff=0.001)) as client:
        await client.send()
    points = measured.points()
    assert points['a2a.queue.duration'] == [({}, 1)]
    assert points['a2a.run.duration'] == [({'error.type': 'ModelHTTPError'}, 1), ({}, 1)]
    assert [tokens for _, tokens in points['a2a.run.tokens']] == [14, 6]


async def test_early_deletions_and_overdue_sweeps_are_counted(measured: Metrics) -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    for n in range(1100):
        await submit(backend, values.message(new=f't{n}', at=backend.now()))
        await claim_and_finish(backend, f't{n}', at=backend.now(), messages=model_turn('hi', 'hello'))
    swept = asyncio.Event()

    class Watched(SqlHousekeeping):
        async def sweep(self, *args: Any, **options: Any) -> Swept:
            batch = await super().sweep(*args, **options)
            if not batch.full:
                swept.set()
            return batch

    backend.housekeeping = Watched(backend)
    retention = Retention(max_tasks=1)
    async with serving(Agent(FunctionModel(answer)), backend=backend, retention=retention, workers=Workers(lease=0.03)):
        await swept.wait()
        points = measured.points()
    assert points['a2a.retention.over_limit'] == [
        ({'a2a.retention.data': 'tasks'}, 1099),
        ({'a2a.retention.data': 'contexts'}, 1099),
    ]
    assert points['a2a.retention.behind'] == [({}, 1)]
    backend.close()


async def test_metrics_contain_no_ids_urls_or_message_text(measured: Metrics) -> None:
    async with (
        webhook() as hook,
        serving(Agent(FunctionModel(answer)), push=Push(private_hosts=['127.0.0.1'])) as client,
    ):
        task = await client.send(
            message('SECRET', contextId='SECRET', metadata={'SECRET': 'SECRET'}),
            taskPushNotificationConfig={'url': hook.url},
        )
        await hook.got(3)
        with pytest.raises(RpcError):
            await client.get_task('SECRET')
        text = measured.text()
    assert 'a2a.run.duration' in text
    assert [secret for secret in ('SECRET', task['id'], hook.url) if secret in text] == []


async def test_queue_length_counts_tasks_waiting_for_slot(measured: Metrics) -> None:
    gates = GatedAgent()
    async with serving(gates.agent, workers=Workers(running=1)) as client:
        await client.send(returnImmediately=True)
        await gates.reached('hello')
        last = [await client.send(returnImmediately=True) for _ in range(2)][-1]
        points = measured.points()
        async with client.subscribe(last['id']) as stream:
            gates.open('hello')
            await stream.rest()
        assert (points['a2a.queue.length'], points['a2a.run.active']) == ([({}, 2)], [({}, 1)])
        points = measured.points()
        assert (points['a2a.queue.length'], points['a2a.queue.duration']) == ([({}, 0)], [({}, 3)])


async def test_queue_length_excludes_tasks_claimed_elsewhere(measured: Metrics, tmp_path: Path) -> None:
    gates, backend = GatedAgent(), SqliteFileBackend(SqliteFile(path=tmp_path / 'a.db'), 'agent', reader_lag=10**6)
    workers = Workers(running=1, lease=0.03)
    async with serving(gates.agent, backend=backend, workers=workers, drain_grace=0.01) as client:
        await client.send('one', returnImmediately=True)
        await gates.reached('one')
        waiting = await client.send('two', returnImmediately=True)
        assert measured.points()['a2a.queue.length'] == [({}, 1)]
        await values.claim_task(backend, waiting['id'], 'another', at=backend.now())
        while measured.points()['a2a.queue.length'] != [({}, 0)]:
            await backend.queued()
    backend.close()


async def test_canceled_queued_and_running_tasks_are_counted(measured: Metrics) -> None:
    gates = GatedAgent()
    async with serving(gates.agent, workers=Workers(running=1)) as client:
        running = await client.send(returnImmediately=True)
        await gates.reached('hello')
        queued = await client.send(returnImmediately=True)
        for task in (queued, running):
            await client.call('CancelTask', {'id': task['id']})
    assert measured.tasks() == {'submitted': 2, 'canceled': 2}


async def test_run_ignoring_cancel_is_counted_as_lost_lease(measured: Metrics) -> None:
    started, release, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def ignore(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        stopped.set()
        return ModelResponse(parts=[TextPart('done')])

    async with serving(Agent(FunctionModel(ignore)), limits=with_constants(Limits, cancel_grace=0.01)) as client:
        task = await client.send(returnImmediately=True)
        await started.wait()
        canceled = await client.call('CancelTask', {'id': task['id']})
        release.set()
        await stopped.wait()
    assert state_of(canceled) == 'CANCELED'
    assert measured.tasks() == {'submitted': 1, 'canceled': 1}
    assert measured.points()['a2a.lease.lost'] == [({}, 1)]


async def test_cancel_of_task_of_dead_worker_is_counted(measured: Metrics) -> None:
    backend = MemoryBackend('agent', reader_lag=10**6)
    await submit(backend, values.message(new='lost', owner='/', at=backend.now()))
    await values.claim_task(backend, 'lost', 'a worker that has died', at=backend.now())
    async with serving(Agent('test'), backend=backend, limits=with_constants(Limits, cancel_grace=0.01)) as client:
        canceled = await client.call('CancelTask', {'id': 'lost'})
    assert state_of(canceled) == 'CANCELED'
    assert measured.tasks() == {'canceled': 1}


async def test_task_expired_while_waiting_is_counted_as_failed(measured: Metrics) -> None:
    retention = Retention(waiting=timedelta(milliseconds=1))
    async with serving(ApprovalAgent().agent, retention=retention, workers=Workers(lease=0.03)) as client:
        await wait_until_ended(client, (await client.send('delete'))['id'])
    assert measured.tasks() == {'submitted': 1, 'input-required': 1, 'failed expired': 1}


@each_backend('memory', 'sqlite')
async def test_tokens_of_paused_task_are_counted_once(backend: str, measured: Metrics) -> None:
    async def ask(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart('delete', {}, 'call')], usage=USAGE)
        return ModelResponse(parts=[TextPart('done')], usage=USAGE)

    agent = Agent(FunctionModel(ask), name='agent')

    @agent.tool_plain(requires_approval=True)
    def delete() -> str:
        return 'deleted'

    async with serving(agent, backend=backend) as client:
        task = await client.send()
        await client.send(answer_message(task, approve('call')))
    assert measured.tasks() == {'submitted': 1, 'input-required': 1, 'completed': 1}
    assert [value for _, value in measured.points()['a2a.run.tokens']] == [14, 6]
    assert measured.points()['a2a.queue.duration'] == [({}, 1)]


async def test_webhook_deliveries_are_counted_by_outcome(measured: Metrics) -> None:
    push = with_constants(Push, private_hosts=['127.0.0.1'], backoff=0.01, tries=2)
    async with webhook(200, 503, 503, 200) as hook, serving(Agent(FunctionModel(answer)), push=push) as client:
        await client.send(taskPushNotificationConfig={'url': hook.url})
        await hook.got(4)
    outcomes = {attributes['a2a.push.outcome']: n for attributes, n in measured.points()['a2a.push.deliveries']}
    assert outcomes == {'accepted': 2, 'failed': 1, 'dead': 1}


async def test_direct_reply_is_counted_as_run_without_task(measured: Metrics) -> None:
    async with serving(Agent(FunctionModel(answer)), messages=Messages(reply='message')) as client:
        await client.call('SendMessage', {'message': message()})
    points = measured.points()
    assert 'a2a.task.transitions' not in points
    assert points['a2a.run.duration'] == [({}, 1)]
    assert [value for _, value in points['a2a.run.tokens']] == [7, 3]


async def test_no_instrument_is_created_without_meter_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, 'instruments', None)
    async with serving(Agent(FunctionModel(answer))) as client:
        await client.send()
    assert metrics.instruments is None


async def test_second_app_shares_instruments_of_first_app(measured: Metrics) -> None:
    for _ in range(2):
        async with serving(Agent(FunctionModel(answer))) as client:
            await client.send()
    assert measured.tasks() == {'submitted': 2, 'completed': 2}
