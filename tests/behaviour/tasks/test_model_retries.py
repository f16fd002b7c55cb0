"""Errors of the model that pass: the run is tried again later from its last step, and other work goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, ModelRateLimitError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a import Budget, Limits, Quotas, Results, RunFailure, Workers
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.fasta2a.agent_worker import AgentWorker
from pydantic_ai_a2a.server.store.ports import Backend, Charge
from pydantic_ai_a2a.server.store.ports.failed_tries import Tried
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.store import WrappedQueue

from ...agents import GatedAgent, echo_prompts, scripted_model, user_prompts
from ...app_client import LIMIT, Client, message, state_of, texts
from ...clocks import HOUR, SetClock, skip_time
from ...constants import with_constants
from ...serving import serving, wait_until_ended
from ...sizes import short_or_long
from ...suites import values
from ..pending_calls import ApprovalAgent, answer_message, approve, call_by_prompt, pending_calls
from .test_failure import FailsToEmit, failure

HTTP_503 = ModelHTTPError(503, 'model')
SHORT_BACKOFF: dict[str, Any] = {'backoff': 0.001, 'lease': 0.3}
"""Pauses of milliseconds."""
LONG_BACKOFF: dict[str, Any] = {'backoff': 100.0, 'lease': 0.03}
"""A pause that no test waits for."""


@pytest.fixture(params=['memory', 'file', 'postgres'])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == 'postgres':
        return request.getfixturevalue('postgres_tables_url')
    return 'memory' if request.param == 'memory' else f'sqlite:///{tmp_path}/agent.db?synchronous=normal'


@pytest.fixture(params=['file', 'postgres'])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == 'postgres':
        return request.getfixturevalue('postgres_tables_url')
    return f'sqlite:///{tmp_path}/agent.db?synchronous=normal'


class FailingModelAgent:
    """An agent whose model fails with the given errors, one after another, and then answers with the prompts.

    The prompt `work` begins with two calls of a tool in two steps.
    """

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = [*errors]
        """The errors of the next requests; None for a request that succeeds."""
        self.asked: list[str] = []
        self.began = asyncio.Event()
        self.tools = 0
        self.agent: Agent[object, str] = Agent(FunctionModel(self._answer), name='agent')
        self.agent.tool_plain(self.work)

    async def work(self) -> str:
        self.tools += 1
        return 'worked'

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked.append(user_prompts(messages)[-1])
        self.began.set()
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        done = sum(isinstance(part, ToolReturnPart) for each in messages for part in each.parts)
        if user_prompts(messages)[-1] == 'work' and done < 2:
            return ModelResponse(parts=[ToolCallPart('work', {})])
        return echo_prompts(messages, info)


async def test_task_completes_after_transient_model_errors(store: str, caplog: pytest.LogCaptureFixture) -> None:
    flaky = FailingModelAgent(HTTP_503, ModelHTTPError(429, 'model'), HTTP_503)
    async with serving(flaky.agent, backend=store, workers=with_constants(Workers, **SHORT_BACKOFF)) as client:
        task = await client.send(message('one', contextId='c'))
        after = await client.send(message('two', contextId='c'))
        assert await client.get_task(task['id']) == task
    assert (state_of(task), texts(task), texts(after)) == ('COMPLETED', ['one'], ['one + two'])
    assert flaky.asked == ['one'] * 4 + ['two']
    tries = [record.getMessage() for record in caplog.records if 'is tried again in' in record.getMessage()]
    assert [line.partition(' (')[2] for line in tries] == [
        f'retry {n}, ModelHTTPError, correlation id {task["id"]}.1{fence}).'
        for n, fence in ((1, ''), (2, '.2'), (3, '.3'))
    ]


async def test_retry_does_not_repeat_finished_tool_calls(durable: str) -> None:
    flaky = FailingModelAgent(HTTP_503, None, HTTP_503, HTTP_503, None, HTTP_503, HTTP_503)
    workers = with_constants(Workers, retries=2, **SHORT_BACKOFF)
    async with serving(flaky.agent, backend=durable, workers=workers) as client:
        task = await client.send('work')
    # Each stored step allows two retries again.
    assert (state_of(task), flaky.tools, len(flaky.asked)) == ('COMPLETED', 2, 8)


async def test_in_memory_run_with_finished_tool_is_not_retried() -> None:
    flaky = FailingModelAgent(HTTP_503, None, HTTP_503)
    async with serving(flaky.agent, workers=with_constants(Workers, **SHORT_BACKOFF)) as client:
        assert failure(await client.send('work')) == 'provider-busy'
    assert (flaky.tools, len(flaky.asked)) == (1, 3)


async def test_task_fails_after_last_retry(store: str) -> None:
    failures: list[RunFailure] = []
    flaky = FailingModelAgent(*[HTTP_503] * 9)
    workers = with_constants(Workers, retries=2, **SHORT_BACKOFF)
    async with serving(flaky.agent, backend=store, workers=workers, on_failure=failures.append) as client:
        task = await client.send('one')
    assert failure(task) == 'provider-busy'
    assert len(flaky.asked) == 3
    [told] = failures
    assert (told.error, told.correlation_id) == (HTTP_503, task['status']['message']['metadata']['correlationId'])


def always(error: Exception) -> bool:
    return True


def never(error: Exception) -> bool:
    return False


@pytest.mark.parametrize(
    ('error', 'options'),
    [
        pytest.param(ModelHTTPError(400, 'model'), {}, id='request'),
        pytest.param(ModelAPIError('model', 'no'), {}, id='unknown'),
        pytest.param(HTTP_503, {'retries': 0}, id='off'),
        pytest.param(HTTP_503, {'retry_on': never}, id='refused'),
        pytest.param(ModelRateLimitError('model', 'no', retry_after=601), {}, id='long'),
    ],
)
async def test_non_retryable_model_error_fails_task(error: Exception, options: dict[str, Any]) -> None:
    flaky = FailingModelAgent(error)
    async with serving(flaky.agent, workers=with_constants(Workers, **SHORT_BACKOFF, **options)) as client:
        assert failure(await client.send()).startswith('provider-')
    assert len(flaky.asked) == 1


async def test_retry_on_function_selects_retried_errors() -> None:
    asked: list[Exception] = []

    def is_own(error: Exception) -> bool:
        asked.append(error)
        return isinstance(error, ConnectionError)

    reset = ConnectionError('reset')
    flaky = FailingModelAgent(reset)
    async with serving(flaky.agent, workers=with_constants(Workers, retry_on=is_own, **SHORT_BACKOFF)) as client:
        assert state_of(await client.send()) == 'COMPLETED'
    assert asked == [reset]


async def test_error_in_retry_on_fails_task(caplog: pytest.LogCaptureFixture) -> None:
    def broken(error: Exception) -> bool:
        raise LookupError('of the function')

    async with serving(
        FailingModelAgent(HTTP_503).agent, workers=with_constants(Workers, retry_on=broken, **SHORT_BACKOFF)
    ) as client:
        assert failure(await client.send()) == 'internal'
    assert 'of the function' in caplog.text


async def test_store_error_during_model_request_is_not_retried(backend: MemoryBackend) -> None:
    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        for word in ['one', 'two', 'three', 'four']:
            yield word

    backend.queue = FailsToEmit(backend.queue)
    agent = Agent(FunctionModel(stream_function=stream), name='agent')
    workers = with_constants(Workers, retry_on=always, **SHORT_BACKOFF)
    async with (
        serving(agent, backend=backend, workers=workers, results=Results(interval=0)) as client,
        client.live.send_streaming() as events,
    ):
        task_id = (await anext(events)).result['task']['id']
        assert failure(await wait_until_ended(client, task_id)) == 'storage'


async def test_tool_error_is_not_retried(durable: str) -> None:
    flaky = FailingModelAgent()

    @flaky.agent.tool_plain
    async def ask_another_agent() -> str:
        raise HTTP_503

    workers = with_constants(Workers, **SHORT_BACKOFF)
    async with serving(
        flaky.agent, backend=durable, workers=workers, model=scripted_model(ToolCallPart('ask_another_agent', {}))
    ) as client:
        assert failure(await client.send()) == 'provider-busy'


async def test_fallback_model_with_transient_error_is_retried() -> None:
    first, second = FailingModelAgent(HTTP_503), FailingModelAgent(ModelHTTPError(400, 'model'))
    models = [model for model in (first.agent.model, second.agent.model) if isinstance(model, FunctionModel)]
    async with serving(Agent(FallbackModel(*models)), workers=with_constants(Workers, **SHORT_BACKOFF)) as client:
        assert texts(await client.send('one')) == ['one']
    assert (first.asked, second.asked) == (['one', 'one'], ['one'])


async def test_task_waiting_for_retry_frees_slot_but_holds_context(store: str) -> None:
    flaky = FailingModelAgent(HTTP_503)
    async with serving(
        flaky.agent, backend=store, workers=with_constants(Workers, running=1, **LONG_BACKOFF)
    ) as client:
        waiting = await client.send(message('one', contextId='c'), returnImmediately=True)
        assert texts(await client.send(message('other', contextId='d'))) == ['other']
        behind = await client.send(message('two', contextId='c'), returnImmediately=True)
        assert texts(await client.send(message('third', contextId='d'))) == ['other + third']
        states = [state_of(await client.get_task(task['id'])) for task in (waiting, behind)]
        assert states == ['WORKING', 'SUBMITTED']
        canceled = await client.call('CancelTask', {'id': waiting['id']})
        assert state_of(canceled) == 'CANCELED'
        assert texts(await wait_until_ended(client, behind['id'])) == ['two']
    assert flaky.asked == ['one', 'other', 'third', 'two']


async def test_pending_retry_survives_restart(tmp_path: Path) -> None:
    clock, flaky = SetClock(), FailingModelAgent(HTTP_503)
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'agent', reader_lag=10**6, clock=clock)
    async with serving(flaky.agent, backend=backend, workers=with_constants(Workers, **LONG_BACKOFF)) as client:
        waiting = await client.send('one', returnImmediately=True)
        assert texts(await client.send('other')) == ['other']
    async with serving(flaky.agent, backend=backend, workers=with_constants(Workers, **LONG_BACKOFF)) as client:
        assert texts(await client.send('more')) == ['more']
        assert state_of(await client.get_task(waiting['id'])) == 'WORKING'
        assert flaky.asked == ['one', 'other', 'more']
        with clock.later():
            assert texts(await wait_until_ended(client, waiting['id'])) == ['one']
    backend.close()


async def test_heartbeat_starts_due_retry() -> None:
    clock, flaky = SetClock(), FailingModelAgent(HTTP_503, None, HTTP_503)
    backend = MemoryBackend('agent', reader_lag=10**6, clock=clock)
    async with serving(flaky.agent, backend=backend, workers=with_constants(Workers, **LONG_BACKOFF)) as client:
        task = await client.send('one', returnImmediately=True)
        for hours, other in enumerate(('other', 'another'), 1):
            await client.send(other)
            with clock.later(hours * HOUR):
                while flaky.asked.count('one') == hours:
                    await client.get_task(task['id'])
                    await asyncio.sleep(0)
        assert texts(await wait_until_ended(client, task['id'])) == ['one']
    backend.close()


async def test_retry_started_by_heartbeat_is_not_started_by_timer() -> None:
    asked: list[str] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(user_prompts(messages)[-1])
        if asked == ['one']:
            raise HTTP_503
        if asked[-1] == 'one':
            skip_time(LIMIT / 4)  # the timer of the worker is over
            await asyncio.sleep(0.01)
        return echo_prompts(messages, info)

    clock = SetClock()
    backend = MemoryBackend('agent', reader_lag=10**6, clock=clock)
    workers = with_constants(Workers, **LONG_BACKOFF)
    async with serving(Agent(FunctionModel(answer)), backend=backend, workers=workers) as client:
        task = await client.send('one', returnImmediately=True)
        await client.send('other')
        with clock.later():
            assert texts(await wait_until_ended(client, task['id'])) == ['one']
    assert asked == ['one', 'other', 'one']
    backend.close()


async def test_shutdown_fails_pending_retry_only_in_memory(store: str) -> None:
    flaky = FailingModelAgent(HTTP_503)
    async with (
        asyncio.TaskGroup() as clients,
        serving(flaky.agent, backend=store, workers=with_constants(Workers, **LONG_BACKOFF)) as client,
    ):
        sending = clients.create_task(client.send('one'))
        await flaky.began.wait()
        await client.send('other')
    task = sending.result()
    if store == 'memory':
        assert failure(task) == 'shutdown'
    else:
        assert state_of(task) == 'WORKING'


async def test_streamed_text_of_failed_try_is_replaced(store: str) -> None:
    tries = 0

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        nonlocal tries
        tries += 1
        yield f'Try {tries} '
        yield 'says '
        if tries < 3:
            raise ModelHTTPError(503, 'model')
        yield 'hello.'

    agent = Agent(FunctionModel(stream_function=stream), name='agent')
    results = Results(stream='mark', interval=0)
    async with (
        serving(agent, backend=store, workers=with_constants(Workers, **SHORT_BACKOFF), results=results) as client,
        client.send_streaming() as events,
    ):
        updates = [event.result for event in await events.rest()]
    text, states = '', list[str]()
    for update in updates:
        if (artifact := update.get('artifactUpdate')) is not None:
            added = ''.join(part['text'] for part in artifact['artifact']['parts'])
            text = text + added if artifact.get('append') else added
        if (status := update.get('statusUpdate')) is not None:
            states.append(status['status']['state'])
    assert text == 'Try 3 says hello.'
    assert states == ['TASK_STATE_WORKING', 'TASK_STATE_COMPLETED']


async def test_retry_beyond_run_timeout_fails_task() -> None:
    flaky = FailingModelAgent(HTTP_503)
    async with serving(flaky.agent, workers=with_constants(Workers, **LONG_BACKOFF), timeout=60) as client:
        assert failure(await client.send()) == 'provider-busy'
    assert len(flaky.asked) == 1


async def store_failed_try(backend: Backend, tried: Tried, *charges: Charge) -> None:
    """Store a task with failed tries."""
    await values.submit(backend, values.message('hi', new='tried', owner='/'))
    [claim] = await values.claim_all(backend)
    await backend.queue.release(claim, tried, charges=charges)


async def test_retry_gets_remaining_run_timeout(backend: MemoryBackend) -> None:
    deadlines: list[datetime] = []
    flaky = FailingModelAgent()

    @flaky.agent.instructions
    def note(ctx: RunContext[object]) -> str:
        assert ctx.deadline is not None
        deadlines.append(ctx.deadline)
        return ''

    await store_failed_try(backend, Tried(number=1, spent=3000.0, usage=RunUsage()))
    async with serving(flaky.agent, backend=backend, timeout=3600) as client:
        assert state_of(await wait_until_ended(client, 'tried')) == 'COMPLETED'
        assert deadlines[0] <= datetime.now(UTC) + timedelta(seconds=600)


async def test_timeout_counts_time_of_earlier_tries(backend: MemoryBackend) -> None:
    flaky = FailingModelAgent(HTTP_503)
    await store_failed_try(backend, Tried(number=1, spent=3500.0, usage=RunUsage()))
    async with serving(
        flaky.agent, backend=backend, workers=with_constants(Workers, **LONG_BACKOFF), timeout=3600
    ) as client:
        assert failure(await wait_until_ended(client, 'tried')) == 'provider-busy'
    assert len(flaky.asked) == 1


async def test_retry_after_of_provider_sets_retry_delay(caplog: pytest.LogCaptureFixture) -> None:
    flaky = FailingModelAgent(ModelRateLimitError('model', 'no', retry_after=300))
    async with serving(flaky.agent, workers=with_constants(Workers, **SHORT_BACKOFF)) as client:
        task = await client.send('one', returnImmediately=True)
        assert texts(await client.send('other')) == ['other']
        await client.call('CancelTask', {'id': task['id']})
    [line] = [record.getMessage() for record in caplog.records if 'is tried again in' in record.getMessage()]
    assert 300 <= float(line.split(' seconds')[0].split()[-1]) <= 450


async def test_retry_does_not_repeat_approved_tool_call(durable: str) -> None:
    tools, errors = ApprovalAgent(), [HTTP_503, HTTP_503]

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if errors and isinstance(messages[-1].parts[0], ToolReturnPart):
            raise errors.pop()
        return call_by_prompt(messages, info)

    workers = with_constants(Workers, **SHORT_BACKOFF)
    async with serving(tools.agent, backend=durable, workers=workers, model=FunctionModel(answer)) as client:
        waiting = await client.send('delete')
        [call] = pending_calls(waiting)
        task = await client.send(answer_message(waiting, approve(call['id'])))
    assert (state_of(task), len(tools.deleted), errors) == ('COMPLETED', 1, [])


async def test_each_run_of_task_has_own_retries(store: str) -> None:
    gates, errors = GatedAgent(), [HTTP_503, HTTP_503]

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        response = await gates.answer(messages, info)
        if len(gates.began) in (1, 3):
            raise errors.pop()
        return response

    workers = with_constants(Workers, retries=1, **SHORT_BACKOFF)
    async with serving(gates.agent, backend=store, workers=workers, model=FunctionModel(answer)) as client:
        task = await client.send(message('one', contextId='c'), returnImmediately=True)
        await gates.reached('one')
        await client.send(message('two', contextId='c', taskId=task['id']), returnImmediately=True)
        gates.open('one', 'two')
        assert texts(await wait_until_ended(client, task['id'])) == ['one', 'one + two']
    assert gates.began == ['one', 'one', 'two', 'two']


def budget(requests: int) -> Limits:
    return Limits(quotas=Quotas(budgets=[Budget(window=60, requests=requests)]))


async def test_budget_counts_successful_requests_of_all_tries(store: str) -> None:
    flaky = FailingModelAgent(None, HTTP_503, None)
    options: dict[str, Any] = {
        'backend': store,
        'limits': Limits(quotas=Quotas(budgets=[Budget(window=60, requests=2)])),
    }

    @flaky.agent.output_validator
    def check(answer: str) -> str:
        if len(flaky.asked) == 1:
            raise ModelRetry('once more')
        return answer

    async with serving(flaky.agent, workers=with_constants(Workers, **SHORT_BACKOFF), **options) as client:
        assert state_of(await client.send()) == 'COMPLETED'
        assert await charged_requests(client) == 2
        assert len(flaky.asked) == 3


async def test_retry_over_budget_fails_without_model_request(backend: MemoryBackend) -> None:
    flaky = FailingModelAgent()
    charge = Charge('/', 60_000, backend.now() + 3_600_000, requests=1, tokens=0, cost=0)
    await store_failed_try(backend, Tried(number=1, spent=1.0, usage=RunUsage(requests=1)), charge)
    async with serving(flaky.agent, backend=backend, limits=budget(requests=1)) as client:
        assert failure(await wait_until_ended(client, 'tried')) == 'usage-limit'
    assert flaky.asked == []


async def test_canceling_pending_retry_keeps_charged_requests(store: str) -> None:
    flaky = FailingModelAgent(None, HTTP_503)
    options: dict[str, Any] = {
        'backend': store,
        'limits': Limits(quotas=Quotas(budgets=[Budget(window=60, requests=9)])),
    }
    flaky.agent.output_validator(refuse)
    async with serving(flaky.agent, workers=with_constants(Workers, **LONG_BACKOFF), **options) as client:
        task = await client.send('one', returnImmediately=True)
        while not await charged_requests(client):
            await client.get_task(task['id'])
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
        assert await charged_requests(client) == 1


def refuse(answer: str) -> str:
    raise ModelRetry('once more')


async def charged_requests(client: Client) -> int:
    """The model requests that the budgets have counted."""
    return sum(each.requests for each in await client.a2a_app.backend.quotas.spent('/', 60_000, at=0))


@pytest.mark.parametrize('part', ['storage', 'broker', 'worker'])
async def test_retry_works_with_fasta2a_storage_broker_or_worker(part: str) -> None:
    flaky, storage = FailingModelAgent(HTTP_503, HTTP_503), InMemoryStorage[list[ModelMessage]]()
    workers = with_constants(Workers, **SHORT_BACKOFF)
    options: dict[str, Any] = {'storage': storage} if part == 'storage' else {}
    if part == 'broker':
        options = {'broker': InMemoryBroker()}
    if part == 'worker':
        worker = AgentWorker(broker=InMemoryBroker(), storage=storage, agent=flaky.agent)
        workers = with_constants(Workers, worker=worker, **SHORT_BACKOFF)
    async with serving(flaky.agent, workers=workers, **options) as client:
        assert texts(await client.send('one')) == ['one']
    assert len(flaky.asked) == 3


class ReleaseFailsOnce(WrappedQueue):
    """Cannot be reached at the first release."""

    times = 1

    async def release(self, *args: Any, **options: Any) -> None:
        if self.times:
            self.times -= 1
            raise StoreUnavailable
        await super().release(*args, **options)


async def test_pending_retry_is_kept_until_store_recovers(backend: MemoryBackend) -> None:
    flaky = FailingModelAgent(HTTP_503)
    backend.queue = ReleaseFailsOnce(backend.queue)
    workers = with_constants(Workers, **{**SHORT_BACKOFF, 'lease': 0.03})
    async with serving(flaky.agent, backend=backend, workers=workers) as client:
        assert texts(await client.send('one')) == ['one']
    assert len(flaky.asked) == 2


@pytest.mark.long
async def test_provider_outage_does_not_block_other_tasks(store: str) -> None:
    tasks, calls = short_or_long(50, 1000), Counter[str]()
    failed, up, all_failed = set[str](), asyncio.Event(), asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompt = user_prompts(messages)[-1]
        called = any(isinstance(part, ToolReturnPart) for each in messages for part in each.parts)
        if not up.is_set() and prompt != 'other' and (called or store == 'memory'):
            failed.add(prompt)
            if len(failed) == tasks:
                all_failed.set()
            raise HTTP_503
        return (
            echo_prompts(messages, info) if called else ModelResponse(parts=[ToolCallPart('work', {'prompt': prompt})])
        )

    agent = Agent(FunctionModel(answer), name='agent')

    @agent.tool_plain
    async def work(prompt: str) -> str:
        calls[prompt] += 1
        return 'worked'

    workers = with_constants(Workers, running=4, retries=10**6, backoff=0.02)
    async with serving(agent, backend=store, workers=workers) as client:
        sent = [await client.send(f'{n}', returnImmediately=True) for n in range(tasks)]
        await all_failed.wait()
        assert state_of(await client.send('other')) == 'COMPLETED'
        up.set()
        done = list[dict[str, Any]]()
        for some in range(0, tasks, 50):  # more at once would wait too long for a connection to the store
            done += await asyncio.gather(*(wait_until_ended(client, task['id']) for task in sent[some : some + 50]))
    assert {state_of(task) for task in done} == {'COMPLETED'}
    assert {*calls.values()} == {1}
