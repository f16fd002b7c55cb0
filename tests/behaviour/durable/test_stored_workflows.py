"""What Temporal and the database have stored of workflows: a later version still reads it, and its workers go on.

`histories` has workflows of an earlier version, which took their argument and gave their result as JSON arrays: the
events, and the payloads that the database kept. `<task>`, `<context>` and `<queue>` stand for names.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import TypeAdapter
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RunUsage
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from pydantic_ai_a2a import AuthRequired, InputRequired, Rejected, Workers, to_a2a
from pydantic_ai_a2a.engines.temporal import Temporal
from pydantic_ai_a2a.engines.temporal_arguments import SentRun, load_run
from pydantic_ai_a2a.engines.temporal_result import dump_end, load_end
from pydantic_ai_a2a.server.agent.run_output import RunOutput
from pydantic_ai_a2a.server.budget_rest import Left
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile

from ...app_client import LIMIT, Client, lifespan, state_of
from ...engines import TemporalSetup
from ..durable_handover import start_task
from ..durable_processes import poll_until

HISTORIES = Path(__file__).parent / 'histories'
ENDS: dict[str, bytes | ApplicationError] = {}
"""How workflows of an earlier version end, by task queue."""


class History:
    """A workflow of an earlier version."""

    def __init__(self, name: str, task_id: str, queue: str = '') -> None:
        self._text = (HISTORIES / f'{name}.json').read_text().replace('<task>', task_id).replace('<queue>', queue)
        self._task_id = task_id
        self.payloads: dict[str, tuple[str, str]] = json.loads(self._text)['payloads']
        """Encodings and contents of the kept payloads, by their ids."""

    def events(self) -> list[dict[str, Any]]:
        """The events, with references in the place of the kept payloads."""
        return json.loads(self._text, object_hook=self._as_stored)['events']

    def _as_stored(self, value: dict[str, Any]) -> dict[str, Any]:
        if (payload_id := value.get('kept')) is None:
            return value
        kept = {'claimData': {'id': payload_id, 'task': self._task_id}, 'driverName': 'pydantic_ai_a2a'}
        metadata = {'encoding': b'json/protobuf', 'messageType': b'temporal.api.sdk.v1.ExternalStorageReference'}
        encoded = {name: b64encode(text).decode() for name, text in metadata.items()}
        return {'metadata': encoded, 'data': b64encode(json.dumps(kept).encode()).decode()}

    def end(self) -> bytes | ApplicationError:
        """The result of the workflow, or its failure."""
        last = json.loads(self._text)['events'][-1]
        if (completed := last.get('workflowExecutionCompletedEventAttributes')) is not None:
            return self._content(completed['result']['payloads'][0]).encode()
        failure = last['workflowExecutionFailedEventAttributes']['failure']['applicationFailureInfo']
        details = [json.loads(self._content(payload)) for payload in failure['details']['payloads']]
        return ApplicationError('', *details, type=failure['type'], non_retryable=True)

    def argument(self) -> str:
        """The argument of the workflow."""
        started = json.loads(self._text)['events'][0]['workflowExecutionStartedEventAttributes']
        return self._content(started['input']['payloads'][0])

    def _content(self, payload: dict[str, str]) -> str:
        return self.payloads[payload['kept']][1]


@workflow.defn(name='pydantic_ai_a2a.run')
class RunBefore:
    """The workflow of an earlier version, at its end."""

    canceled = False

    @workflow.run
    async def run(self, data: bytes) -> bytes:
        end = ENDS[workflow.info().task_queue]
        if isinstance(end, ApplicationError):
            raise end
        if b'Canceled' in end:
            await workflow.wait_condition(lambda: self.canceled)
        return end

    @workflow.signal
    def cancel(self) -> None:
        self.canceled = True


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Call the tool that the prompt names."""
    part: Any = messages[-1].parts[-1]
    if isinstance(part, ToolReturnPart):
        return ModelResponse(parts=[TextPart(part.model_response_str())])
    if part.content == 'busy':
        raise ModelHTTPError(429, 'model')
    if part.content == 'answer':
        return ModelResponse(parts=[TextPart('Sunny.')])
    return ModelResponse(parts=[ToolCallPart(part.content, {}, tool_call_id='call-1')])


def ask() -> str:
    raise InputRequired('Which city?')


def decline() -> str:
    raise Rejected('Never.')


def fail() -> str:
    raise RuntimeError('A secret.')


async def wait() -> str:
    return await asyncio.Future()


@pytest.fixture
def kit(tmp_path: Path, temporal: str) -> TemporalSetup:
    return TemporalSetup(tmp_path, temporal)


class App(NamedTuple):
    """An app whose workflows run in no worker of its own."""

    client: Client
    store: SqliteFileBackend
    task_id: str
    """A task that works."""
    worker: Worker
    """A worker of the task queue that a `Replayer` names by its `build_id`."""


@asynccontextmanager
async def without_worker(kit: TemporalSetup) -> AsyncGenerator[App]:
    agent = kit.agent(
        FunctionModel(answer),
        output_type=[str, InputRequired, AuthRequired, Rejected],
        tools=[ask, decline, fail, wait],
    )
    engine = Temporal(kit.address, task_queue=kit.queue, worker=False)
    other = Temporal(kit.address, task_queue=f'replay-{kit.queue}', worker=False)
    store = SqliteFileBackend(SqliteFile.of(kit.options()['backend']), 'agent', reader_lag=10**6)
    app = to_a2a(agent, name='agent', backend=store, engine=engine, workers=Workers(drain_grace=0.01))
    async with lifespan(app), asyncio.timeout(LIMIT):
        client = Client(app)
        yield App(client, store, await start_task(client, 'answer'), await other.worker(app))
    store.close()


NAMES = sorted(path.stem for path in HISTORIES.iterdir())


@pytest.mark.parametrize('name', NAMES)
async def test_worker_replays_workflow_of_earlier_version(kit: TemporalSetup, name: str) -> None:
    async with without_worker(kit) as app:
        history = History(name, app.task_id, f'replay-{kit.queue}')
        await app.store.payloads.put(
            app.task_id,
            {
                payload_id: Payload(metadata={'encoding': encoding.encode()}, data=content.encode()).SerializeToString()
                for payload_id, (encoding, content) in history.payloads.items()
            },
        )
        config: Any = app.worker.config()
        replayer = Replayer(
            workflows=config['workflows'],
            interceptors=config['interceptors'],
            workflow_runner=config['workflow_runner'],
            data_converter=app.worker.client.data_converter,
            build_id=kit.queue,
        )
        await replayer.replay_workflow(WorkflowHistory.from_json(f'{app.task_id}.1', {'events': history.events()}))


CASES = {
    'answered': ('COMPLETED', 'Sunny.'),
    'asked': ('INPUT_REQUIRED', 'Which city?'),
    'input_required': ('INPUT_REQUIRED', 'Which city?'),
    'auth_required': ('AUTH_REQUIRED', 'Please sign in.'),
    'declined': ('REJECTED', 'Never.'),
    'rejected': ('REJECTED', 'Never.'),
    'failed': ('FAILED', 'The agent failed with an internal error.'),
    'busy': ('FAILED', 'The model provider is busy; try again later.'),
    'canceled': ('CANCELED', ''),
}
"""State of a task after the end of its workflow, and a text in it."""


@pytest.mark.parametrize('name', CASES)
async def test_server_reads_temporal_outcome_of_earlier_version(kit: TemporalSetup, name: str) -> None:
    state, shown = CASES[name]
    async with without_worker(kit) as app:
        ENDS[kit.queue] = History(name, app.task_id).end()
        before = Worker(
            app.worker.client,
            task_queue=kit.queue,
            workflows=[RunBefore],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        async with before:
            if state == 'CANCELED':
                await app.client.call('CancelTask', {'id': app.task_id})

            async def is_over() -> bool:
                return state_of(await app.client.get_task(app.task_id)) != 'WORKING'

            await poll_until(is_over)
            task = await app.client.get_task(app.task_id)
    assert state_of(task) == state
    assert shown in str(task)


def test_workflow_argument_loads_across_versions() -> None:
    stored = History('declined', 'task').argument()
    before = load_run(stored.encode())
    assert (before.claim.header.id, before.prompt, before.budget) == ('task', 'decline', None)
    members = dict(zip((member.name for member in fields(SentRun)), json.loads(stored), strict=True))
    later = {**members, 'budget': [3, None, '0.5', 'later'], 'later': 1}
    assert load_run(json.dumps(later).encode()) == replace(before, budget=Left(3, None, Decimal('0.5')))


def test_workflow_result_loads_across_versions() -> None:
    app: Any = None  # only other outputs need it
    run = RunOutput(Rejected('Never.'), [], None, [], RunUsage(requests=1), waits=True, calls=['call-1'], shown=[])
    members = json.loads(dump_end(run, app))
    later = {**members, 'values': '["Never.", "later"]', 'later': 1, 'rest': {**members['rest'], 'later': 1}}
    loaded = load_end(json.dumps(later).encode(), app)
    assert isinstance(loaded.output, Rejected)
    assert loaded.output.reason == 'Never.'
    assert loaded._replace(output=None) == run._replace(output=None)
    read_before = TypeAdapter(RunOutput).validate_json(json.dumps(members['rest']))
    assert read_before == loaded._replace(output=None)
