"""Runs as workflows of Temporal: `to_a2a(engine=Temporal('localhost:7233', task_queue='agents'))`.

A workflow runs in a worker, which may be on another machine than the server of the task. Servers and workers share the
database of the app. All payloads lie there: Temporal has only their ids.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.durable_exec.temporal import AgentPlugin, PydanticAIPlugin, TemporalDurability
from pydantic_ai.exceptions import UserError
from pydantic_ai.usage import RunUsage
from temporalio import exceptions
from temporalio.api.common.v1 import Payload
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, RetryConfig, WorkflowFailureError, WorkflowQueryFailedError
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.common import WorkflowIDReusePolicy as Reuse
from temporalio.contrib.workflow_streams import PollInput, PollResult
from temporalio.plugin import SimplePlugin
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner as Unsandboxed
from temporalio.worker import Worker

from ..arguments import checked
from ..errors import BackendUnusable, ResultForgotten, StoreUnavailable
from ..server.agent.run_options import RunOptions
from ..server.agent.run_output import RunOutput
from ..server.runs.engine import AtEngine, Engine, EngineEvent, EngineRun
from ..server.runs.workflow_run import Canceled
from ..server.store.ports import Backend
from ..types.run_events import Note
from ..wire.extensions.remote_calls import CallsRemoteAgent
from .temporal_activities import TaskInterceptor, unknown_activity
from .temporal_arguments import CLAIM, dump_run
from .temporal_dependencies import dump_deps
from .temporal_events import event_of
from .temporal_failures import failure_of
from .temporal_names import CONTEXT_ATTRIBUTE, NAME, POLL_QUERY, TASK_ATTRIBUTE
from .temporal_payloads import keeping_payloads
from .temporal_result import load_end
from .temporal_workflow import RunWorkflow, apps_by_queue

logger = logging.getLogger('pydantic_ai_a2a')
_WATCHED, _UNWATCHED = 0.1, 2.0
"""Seconds between two polls for new events: of a task with a client that reads its events, and of any other."""
_POLL_TIME = timedelta(seconds=5)
"""Time in which a worker answers a poll."""
_HEARTBEATS = timedelta(seconds=1)
"""A cancelled activity hears of the cancel with the answer to a heartbeat."""
_LATE = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)
"""What a call of Temporal ends with that is not answered in its time."""
_TAKEOVER = timedelta(seconds=3)
"""Time after which Temporal gives the next step of a workflow to another worker. By default as long as `cancel_time`:
a cancel after the loss of a worker would terminate the workflow before another worker has it."""
_GRACE = timedelta(minutes=1)
"""Time after the `timeout` of a run until Temporal ends a workflow without a worker."""
_UNTIL_BACK = RetryConfig(max_elapsed_time_millis=None, max_retries=2**31 - 1)
"""A server waits for a Temporal server that does not answer: the workflow goes on meanwhile."""
_PAUSE = 1.0
"""Seconds until another worker starts in the place of one that has failed."""


class Temporal(Engine):
    """Runs tasks as workflows of Temporal.

    Each process that runs the tasks of the app also has a Temporal worker. With `worker=False`, workers run apart:
    `pydantic-ai-a2a worker --engine module:app`. The agent needs the capability `TemporalDurability`.

    Args:
        target: Address of the Temporal server, as `host:port`.
        task_queue: Task queue of the app. Each app needs its own, and so an engine of its own.
        worker: True if the processes of the app run workflows.
        search_attributes: True if workflows have the search attributes `a2aTask` and `a2aContext`, of the type
            `Keyword`. Register both before: `temporal operator search-attribute create --name a2aTask --type Keyword`.
        connection: Further arguments of Temporal's `Client.connect`, such as `namespace`, `api_key` and `tls`.
    """

    in_server = False
    capability = TemporalDurability
    cancel_time = 10.0
    """Seconds until a workflow that no worker has cancelled is terminated."""

    @checked
    def __init__(
        self, target: str, *, task_queue: str, worker: bool = True, search_attributes: bool = False, **connection: Any
    ) -> None:
        self._target = target
        self._task_queue = task_queue
        self._has_worker = worker
        self._search_attributes = search_attributes
        self._connection = connection
        self._clients: WeakKeyDictionary[Backend, Client] = WeakKeyDictionary()

    def check(self, agent: AbstractAgent[Any, Any], options: RunOptions) -> None:
        super().check(agent, options)
        if cast('TemporalDurability[Any]', TemporalDurability.from_agent(agent)).continue_as_new is not None:
            raise TypeError(
                'engine=Temporal() cannot be combined with TemporalDurability(continue_as_new=…): a workflow of a task'
                ' takes no arguments of yours. Give the app an agent without it.'
            )
        leaves = list[Any]()
        for toolset in (*agent.toolsets, *(options.get('toolsets') or ())):
            toolset.apply(leaves.append)
        if any(isinstance(leaf, CallsRemoteAgent) for leaf in leaves):
            raise TypeError(
                'engine=Temporal() runs A2A and A2AToolset in the workflow, which has no network. Use'
                " toolsets=[DynamicToolset(lambda ctx: A2AToolset(…, context='call'), id='remote')], a function tool"
                ' with A2AClient, or engine=DBOS().'
            )
        try:
            dump_deps(agent, options.get('deps'))
        except UserError as error:
            raise TypeError(str(error)) from error

    @asynccontextmanager
    async def serving(self, app: AtEngine) -> AsyncGenerator[None]:
        await self._client(app.backend)  # also without a worker: the app serves once Temporal answers
        if not self._has_worker:
            yield
            return
        if apps_by_queue.setdefault(self._task_queue, app) is not app:
            raise BackendUnusable(
                f'Another running app of this process has the task queue {self._task_queue}. Each app needs its own:'
                ' engine=Temporal(…, task_queue=…).'
            )
        working = asyncio.create_task(self._work(app))
        try:
            yield
        finally:
            working.cancel()
            await asyncio.wait([working])
            apps_by_queue.pop(self._task_queue, None)

    async def _work(self, app: AtEngine) -> None:
        """Run a worker, and another one in the place of one that has failed."""
        while True:
            try:
                await self._worker(app, await self._client(app.backend)).run()
            except Exception:  # also of the user's plugins
                logger.exception('The Temporal worker has failed. Another one starts.')
                self._clients.pop(app.backend, None)  # a client has one worker, until the garbage of it is collected
            await asyncio.sleep(_PAUSE)

    async def worker(self, app: Any, **options: Any) -> Worker:
        """Return a Temporal worker for an app of `to_a2a`, to be entered or run.

        Args:
            app: The app, with this engine.
            options: Further arguments of Temporal's `Worker`, such as `max_concurrent_activities`.

        Raises:
            ValueError: The SQLite file of the app is not here.
        """
        at: AtEngine = app.at_engine
        path = getattr(getattr(at.backend, 'settings', None), 'path', None)
        if path is not None and not path.exists():
            raise ValueError(f'There is no {path}: a worker needs the SQLite file of its servers. Or use PostgreSQL.')
        return self._worker(at, await self._client(at.backend), **options)

    def _worker(self, app: AtEngine, client: Client, **options: Any) -> Worker:
        apps_by_queue[self._task_queue] = app
        given: Any = {'sticky_queue_schedule_to_start_timeout': _TAKEOVER, **options}
        if 'deployment_config' not in options:
            given.setdefault('build_id', NAME)  # without a name, Temporal compiles all loaded modules
        return Worker(
            client,
            task_queue=self._task_queue,
            workflows=[RunWorkflow],
            activities=[unknown_activity, *given.pop('activities', ())],
            plugins=[AgentPlugin(app.runner.agent)],
            interceptors=[TaskInterceptor(app)],
            workflow_runner=Unsandboxed(),
            max_heartbeat_throttle_interval=_HEARTBEATS,
            default_heartbeat_throttle_interval=_HEARTBEATS,
            **given,
        )

    async def _client(self, backend: Backend) -> Client:
        if (client := self._clients.get(backend)) is None:
            options: dict[str, Any] = {'retry_config': _UNTIL_BACK, **self._connection}
            keeping = SimplePlugin(NAME, data_converter=partial(keeping_payloads, backend))
            plugins = [*options.pop('plugins', ()), PydanticAIPlugin(), keeping]
            try:
                client = await Client.connect(self._target, plugins=plugins, **options)
                await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
            except (RuntimeError, RPCError) as error:
                raise StoreUnavailable(f'Temporal cannot be used at {self._target}: {error}') from error
            self._clients[backend] = client
        return client

    async def start(self, run: EngineRun, *, known: bool) -> None:
        claim, backend, timeout = run.current.claim, run.app.backend, run.app.runner.timeout
        client = await self._client(backend)
        run.handle = client.get_workflow_handle_for(RunWorkflow.run, run.key)
        if known:
            with _answered(f'Temporal has no workflow {run.key}.'):
                await run.handle.describe()
            return
        await backend.payloads.put(claim.header.id, {run.key: CLAIM.dump_json(claim)})
        pairs = [
            SearchAttributePair(TASK_ATTRIBUTE, claim.header.id),
            SearchAttributePair(CONTEXT_ATTRIBUTE, claim.header.context_id),
        ]
        # Another server may have started the workflow, and was killed before it could store that.
        with _answered(), suppress(exceptions.WorkflowAlreadyStartedError):
            await client.start_workflow(
                RunWorkflow.run,
                dump_run(run),
                id=run.key,
                task_queue=self._task_queue,
                id_reuse_policy=Reuse.REJECT_DUPLICATE,
                execution_timeout=None if timeout is None else timedelta(seconds=timeout) + _GRACE,
                search_attributes=TypedSearchAttributes(pairs if self._search_attributes else []),
            )

    async def events(self, run: EngineRun) -> AsyncGenerator[EngineEvent]:
        # By queries: Temporal keeps each update of a workflow, and allows 2,000.
        offset, notes = 0, 0
        while True:
            await asyncio.wait([run.result], timeout=_WATCHED if run.arguments.watched() else _UNWATCHED)
            ended = run.result.done()
            try:
                page = await run.handle.query(
                    POLL_QUERY, PollInput(from_offset=offset), result_type=PollResult, rpc_timeout=_POLL_TIME
                )
            except (RPCError, WorkflowQueryFailedError) as error:
                status = error.status if isinstance(error, RPCError) else None
                has_output = ended and not run.result.exception() and run.output is None
                if not ended or (has_output and status in _LATE):
                    # No worker is free, or Temporal refuses calls, which `result` says: a proxy may do so at once.
                    await asyncio.sleep(_WATCHED)
                    continue
                if has_output and status is not None:
                    raise StoreUnavailable(str(error)) from error
                return
            offset = page.next_offset
            for item in page.items:
                event = event_of(item.topic, Payload.FromString(b64decode(item.data)).data)
                notes += isinstance(event, Note)
                if event is not None and not (isinstance(event, Note) and notes <= run.notes):
                    yield event
            if ended and not page.more_ready:
                return

    async def cancel(self, run: EngineRun) -> None:
        # The start may not have come to its handle.
        handle = run.handle or (await self._client(run.app.backend)).get_workflow_handle_for(RunWorkflow.run, run.key)
        try:
            with suppress(WorkflowFailureError):  # `result` says how it has ended
                try:
                    async with asyncio.timeout(self.cancel_time):
                        await handle.signal(RunWorkflow.cancel)
                        await handle.result()
                except TimeoutError:
                    usage = run.arguments.usage or RunUsage()
                    run.output = RunOutput(Canceled('The workflow has not stopped in time.'), (), None, [], usage)
                    await handle.terminate('The task was cancelled, and no worker has cancelled the workflow.')
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                logger.warning('Temporal does not cancel %s, which ends before its next step: %s', run.key, error)

    async def result(self, run: EngineRun) -> RunOutput:
        try:
            with _answered():
                return load_end(await run.handle.result(), run.app)
        except WorkflowFailureError as failed:
            if run.output is not None and isinstance(failed.cause, exceptions.TerminatedError):
                return run.output  # `cancel` has terminated the workflow
            raise failure_of(failed) from failed


@contextmanager
def _answered(forgotten: str = '') -> Generator[None]:
    """Translate the errors of a Temporal server. Without any answer, the client calls again.

    Raises:
        ResultForgotten: There is no such workflow.
        StoreUnavailable: Temporal has refused the call, such as for an API key that has expired. The task waits.
    """
    try:
        yield
    except RPCError as error:
        if forgotten and error.status is RPCStatusCode.NOT_FOUND:
            raise ResultForgotten(forgotten) from error
        raise StoreUnavailable(str(error)) from error
