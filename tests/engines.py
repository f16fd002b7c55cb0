"""The engines for durable execution, as one table: a test of the contract runs with each of them."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import dbos
import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.durable_exec.temporal import TemporalDurability, WorkflowStreamTopic
from temporalio import activity, worker
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, Interceptor
from temporalio.common import RetryPolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput
from temporalio.worker._workflow import _WorkflowWorker  # pyright: ignore[reportPrivateUsage]
from temporalio.workflow import ActivityConfig

from pydantic_ai_a2a.engines.dbos import DBOS, stream_events
from pydantic_ai_a2a.engines.temporal import Temporal
from pydantic_ai_a2a.server.conversion.failures import EngineFailure
from pydantic_ai_a2a.server.runs.engine import Engine

from .bounds import LIMIT


def _no_limit(_worker: object, _limit: object = None) -> None:
    """Have no limit, whatever is set."""


# Temporal takes two seconds of an activation for a deadlock, also on a machine that is slow or was stopped. Only its
# debug mode has no such limit, and that mode runs workflows in another thread.
setattr(_WorkflowWorker, '_deadlock_timeout_seconds', property(_no_limit, _no_limit))  # noqa: B010


def skip_without_dbos() -> None:
    """Skip a test that has DBOS keep its workflows in a file, where its own statements fail."""
    if sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42):
        pytest.skip('from Python 3.12 on, DBOS needs SQLite 3.42 for a file')


class NoEngine:
    """What a test needs to run agents without an engine, as each engine has it, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def agent(self, model: Any, *, streams: bool = False, **arguments: Any) -> Agent[Any, Any]:
        """An agent; with `streams`, its clients get the events of each run in any case."""
        options: Any = {'name': 'agent', **arguments}
        return Agent(model, **options)

    def options(self) -> dict[str, Any]:
        """The options of an app on the test's file."""
        return {'backend': f'sqlite:///{self.folder}/plain.db?synchronous=normal'}


class EngineSetup(NoEngine, ABC):
    """What a test needs of one engine."""

    attempts = 3
    """How often an engine that tries steps again calls one that fails."""
    after_a_broken_store: ClassVar[str]
    """What becomes of a workflow whose server cannot store an event."""

    @abstractmethod
    def capability(self, *, streams: bool = False) -> AbstractCapability[Any]:
        """The capability of an agent at this engine."""

    @abstractmethod
    def engine(self, *, empty: bool = False, **connection: Any) -> Engine:
        """The engine of another process; an `empty` one knows no workflow."""

    @abstractmethod
    async def workflows(self) -> dict[str, str]:
        """The ids of all workflows, and 'done', 'failed' or 'open'."""

    @abstractmethod
    async def stop(self, workflow: str) -> None:
        """Cancel a workflow, as its operator does."""

    async def history(self, workflow: str) -> bytes:
        """All that the engine keeps of a workflow, unless its data is its own business."""
        return b''

    def error(self, kind: type[Exception]) -> type[Exception]:
        """The class of an error in `on_failure`."""
        return kind

    def agent(self, model: Any, *, streams: bool = False, **arguments: Any) -> Agent[Any, Any]:
        """An agent at this engine."""
        capabilities = [self.capability(streams=streams), *arguments.pop('capabilities', ())]
        return super().agent(model, capabilities=capabilities, **arguments)

    def options(self, *, empty: bool = False, **connection: Any) -> dict[str, Any]:
        """The options of an app on the test's file, and an engine of its own."""
        return {
            'backend': f'sqlite:///{self.folder}/agent.db?synchronous=normal',
            'engine': self.engine(empty=empty, **connection),
        }


class DbosSetup(EngineSetup):
    after_a_broken_store = 'failed'
    _STATES: Mapping[str, str] = {'SUCCESS': 'done', 'PENDING': 'open', 'ENQUEUED': 'open'}

    def capability(self, *, streams: bool = False) -> AbstractCapability[Any]:
        return DBOSDurability(event_stream_handler=stream_events if streams else None)

    def engine(self, *, empty: bool = False, **connection: Any) -> Engine:
        skip_without_dbos()
        return DBOS(f'sqlite:///{self.folder}/{"empty" if empty else "dbos"}.db')

    async def workflows(self) -> dict[str, str]:
        listed = await dbos.DBOS.list_workflows_async()
        return {each.workflow_id: self._STATES.get(each.status, 'failed') for each in listed}

    async def stop(self, workflow: str) -> None:
        await dbos.DBOS.cancel_workflow_async(workflow)


class TemporalSetup(EngineSetup):
    after_a_broken_store = 'done'
    _STATES: Mapping[str, str] = {'COMPLETED': 'done', 'RUNNING': 'open'}

    def __init__(self, folder: Path, address: str) -> None:
        super().__init__(folder)
        self.address = address
        self.queue = uuid4().hex

    def capability(self, *, streams: bool = False) -> AbstractCapability[Any]:
        retries = RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=self.attempts)
        return TemporalDurability(
            event_stream_topic=TOPIC if streams else None,
            activity_config={**ACTIVITIES, 'retry_policy': retries},
        )

    def engine(self, *, empty: bool = False, **connection: Any) -> Engine:
        connection.setdefault('namespace', EMPTY if empty else 'default')
        interceptors = [Heartbeats(), *connection.pop('interceptors', ())]
        engine = Temporal(self.address, task_queue=self.queue, interceptors=interceptors, **connection)
        engine.cancel_time = LIMIT
        return engine

    async def workflows(self) -> dict[str, str]:
        client = await connect(self)
        listed = client.list_workflows(f'TaskQueue = "{self.queue}"')
        described = [await client.get_workflow_handle(each.id).describe() async for each in listed]
        return {
            each.id: self._STATES.get('' if each.status is None else each.status.name, 'failed') for each in described
        }

    async def history(self, workflow: str) -> bytes:
        history = await (await connect(self)).get_workflow_handle(workflow).fetch_history()
        assert len(history.events) > 10
        return b''.join(event.SerializeToString() for event in history.events)

    def error(self, kind: type[Exception]) -> type[Exception]:
        return EngineFailure  # another process may have raised it

    async def stop(self, workflow: str) -> None:
        await (await connect(self)).get_workflow_handle(workflow).cancel()


ACTIVITIES = ActivityConfig(
    start_to_close_timeout=timedelta(minutes=10),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=3),
)
"""Without a time for heartbeats, which come too late on a slow machine. `lose_activities` takes its place."""
TOPIC = WorkflowStreamTopic('events', batch_interval=timedelta(milliseconds=10))
EMPTY = 'empty'
"""A namespace of Temporal in which no workflow is."""


async def connect(kit: TemporalSetup) -> Client:
    """A client of the test's own: it does not read the payloads, which lie in the store."""
    return await Client.connect(kit.address)


class Heartbeats(Interceptor, worker.Interceptor):
    """Sends heartbeats of activities: with the answer, a cancelled activity hears of its cancel."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _WithHeartbeats(next)


class _WithHeartbeats(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        beating = asyncio.create_task(_beat())
        try:
            return await self.next.execute_activity(input)
        finally:
            beating.cancel()


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(0.5)


async def lose_activities(address: str, *task_ids: str) -> None:
    """End the activities that a killed worker ran for tasks, as Temporal does if no heartbeat comes in time."""
    client = await Client.connect(address)
    for task_id in task_ids:
        for run in count(1):
            workflow = f'{task_id}.{run}'
            try:
                described = await client.get_workflow_handle(workflow).describe()
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    break
                raise
            for pending in described.raw_description.pending_activities:
                assert pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
                lost = client.get_async_activity_handle(
                    workflow_id=workflow, run_id=None, activity_id=pending.activity_id
                )
                await lost.fail(RuntimeError('The worker is lost.'))
