"""Runs as workflows of DBOS, in the process of the server: `to_a2a(engine=DBOS('sqlite:///dbos.db'))`."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import dbos
from dbos import error as errors
from pydantic_ai import RunContext
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import AgentStreamEvent, ModelResponse
from pydantic_ai.usage import RunUsage
from sqlalchemy import make_url

from ..arguments import checked
from ..clock import STOP_TIME
from ..errors import BackendUnusable, ResultForgotten, StoreUnavailable
from ..server.agent.run_output import RunOutput
from ..server.conversion.failures import CHANGED_AGENT, ENGINE_FAILED, EngineFailure
from ..server.runs.engine import AtEngine, Engine, EngineEvent, EngineRun
from ..server.runs.workflow_run import Canceled
from ..server.store.run_usage import plain_usage
from .dbos_values import dump, dump_failure, failure_of, load

_WORKFLOW = 'pydantic_ai_a2a.run'
_VERSION = 'pydantic_ai_a2a'
"""Application version of all processes: a survivor continues a workflow also after a change of the agent's code."""
_POLL = 0.2
"""Seconds between two looks for the result of a workflow that goes on after the loss of its process."""
_ENDED = frozenset({'SUCCESS', 'ERROR', 'CANCELLED', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED'})

_runs: dict[str, EngineRun] = {}
"""The runs of this process, by the ids of their workflows."""


async def stream_events(ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
    """Stream the text of answers, and the steps that clients may see.

    This function is an `event_stream_handler` of Pydantic AI, which gets the events of a run. Give it to the capability
    of the agent: `DBOSDurability(event_stream_handler=stream_events)`. Outside of the runs of tasks, it does nothing.
    """
    run = _runs.get(dbos.DBOS.workflow_id or '')
    async for event in events:
        if run is not None:
            run.events.put_nowait(event)


@dbos.DBOS.workflow(name=_WORKFLOW)
async def _workflow(key: str) -> dict[str, Any]:
    """Run the agent of a task. The id is the only input: the process with the lease of the task has the rest."""
    run = _runs.get(key)
    if run is None:
        raise asyncio.CancelledError  # the workflow waits for the next process with the lease
    # DBOS continues workflows in an event loop of its own, but models and MCP servers are connected in ours.
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_perform(run), run.loop))


async def _perform(run: EngineRun) -> dict[str, Any]:
    async def emit(note: Any) -> None:
        # An async step: DBOS performs others in a thread, and a queue belongs to its event loop.
        await dbos.DBOS.run_step_async({'name': f'{_WORKFLOW}.note'}, run.events.put, note)

    run.task = asyncio.current_task()
    try:
        return dump(await run.perform(emit))
    except EngineFailure as failure:
        if not isinstance(failure.__cause__, errors.DBOSUnexpectedStepError):
            raise dump_failure(failure) from failure.__cause__
        run.error = EngineFailure(*CHANGED_AGENT)
        raise dump_failure(run.error) from failure


class DBOS(Engine):
    """Runs tasks as workflows of DBOS.

    The apps launch and end DBOS. A process has one DBOS, so all apps of a process share one engine. The agents need the
    capability `DBOSDurability`.

    Args:
        url: Database of DBOS: `sqlite:///dbos.db` or `postgresql://…`. All processes of an app use the same database.
    """

    in_server = True
    capability = DBOSDurability

    @checked
    def __init__(self, url: str) -> None:
        self.url = url
        self._queue = ''
        """Name of the queue of this process alone, for the workflows that go on here."""
        self._launching = threading.Lock()
        self._launched = False
        self._apps = 0
        """Number of the serving apps."""

    @asynccontextmanager
    async def serving(self, app: AtEngine) -> AsyncGenerator[None]:
        self._apps += 1
        try:
            await asyncio.to_thread(self._launch)
            yield
        finally:
            self._apps -= 1
            if self._launched and not self._apps:
                self._launched = False
                # DBOS has given the loop its own executor, which ends with DBOS.
                asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
                await asyncio.to_thread(dbos.DBOS.delete_queue, self._queue)
                await asyncio.to_thread(dbos.DBOS.destroy)

    def _launch(self) -> None:
        with self._launching:
            if self._launched:
                return
            # Unique: a process with the id of a living process would take its workflows.
            executor = os.urandom(8).hex()
            dbos.DBOS(
                config={
                    'name': 'pydantic-ai-a2a',
                    'system_database_url': self.url,
                    'executor_id': executor,
                    'application_version': _VERSION,
                    'log_level': 'ERROR',  # its warnings show prompts
                }
            )
            if dbos.DBOS.executor_id != executor:
                raise BackendUnusable(
                    'Another part of this process has made a DBOS. engine=DBOS(url) makes its own: give all apps the'
                    ' same engine, and remove DBOS(config=…) and DBOS.launch().'
                )
            self._queue = f'{_VERSION}.{executor}'
            dbos.DBOS.listen_queues([self._queue])
            try:
                _keep_private(self.url)
                dbos.DBOS.launch()
            except Exception as error:
                dbos.DBOS.destroy()
                raise StoreUnavailable('DBOS cannot use its database.') from error
            dbos.DBOS.register_queue(self._queue)
            self._launched = True

    async def start(self, run: EngineRun, *, known: bool) -> None:
        status = await dbos.DBOS.get_workflow_status_async(run.key)
        if status is None and known:
            raise ResultForgotten(f'DBOS has no workflow {run.key}.')
        _runs[run.key] = run
        if status is None:
            with dbos.SetWorkflowID(run.key):
                run.handle = await dbos.DBOS.start_workflow_async(_workflow, run.key)
        elif status.status not in _ENDED:
            # The lease of the task says that the process of the workflow has ended.
            run.handle = await dbos.DBOS.resume_workflow_async(run.key, queue_name=self._queue)
        else:
            run.handle = await dbos.DBOS.retrieve_workflow_async(run.key)

    async def events(self, run: EngineRun) -> AsyncGenerator[EngineEvent]:
        while (event := await run.events.get()) is not None:
            if isinstance(event, Exception):
                raise event
            yield event
            run.events.task_done()

    async def cancel(self, run: EngineRun) -> None:
        run.cancel()

    async def give_up(self, run: EngineRun) -> None:
        # The run may have ended here without an end of its workflow, which DBOS would start again.
        await self.cancel(run)
        await dbos.DBOS.cancel_workflow_async(run.key)

    async def result(self, run: EngineRun) -> RunOutput:
        try:
            ended = await run.handle.get_result(polling_interval_sec=_POLL)
        except errors.DBOSException as error:
            raise EngineFailure(*ENGINE_FAILED) from error
        except Exception as error:
            raise run.error or failure_of(error) from error.__cause__
        output = run.output or load(ended)
        if isinstance(output.output, Canceled):
            used = await self._used(run)
            output = max(output, output._replace(usage=used), key=lambda output: output.usage.requests)
        return output

    async def _used(self, run: EngineRun) -> RunUsage:
        """Return the usage of a run by its finished steps: the run may have been cancelled before it has read them."""
        usage = copy(run.used)
        for step in await dbos.DBOS.list_workflow_steps_async(run.key):
            if isinstance(response := step['output'], ModelResponse):
                usage.requests += 1
                usage.incr(response.usage)
        return plain_usage(usage)

    async def leave(self, run: EngineRun) -> None:
        _runs.pop(run.key, None)
        if run.task is not None:
            run.task.cancel()
            await asyncio.wait([run.task], timeout=STOP_TIME)


def _keep_private(url: str) -> None:
    """Let only the user of this process read and write a SQLite file of DBOS, before DBOS writes to it.

    Raises:
        OSError: The file cannot be made, or belongs to another user.
    """
    database = make_url(url)
    name = database.database or ':memory:'
    if name.startswith('file:') and 'uri' in database.query:
        name = unquote(urlsplit(name).path)
    if database.get_backend_name() != 'sqlite' or name == ':memory:' or database.query.get('mode') == 'memory':
        return
    path = Path(name)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    path = path.resolve()  # of a link: SQLite's other files are beside the target
    for file in (path, *(path.with_name(path.name + ending) for ending in ('-wal', '-shm', '-journal'))):
        with suppress(FileNotFoundError):
            file.chmod(0o600)
