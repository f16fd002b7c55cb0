"""The work of a task with a user's own `fasta2a.Worker`: relays its reports, and reads the end from the storage.

Such a worker writes states, artifacts and messages to the storage. The recorder's writes are for the event log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Coroutine
from typing import Any

from fasta2a.extensions import ACTIVATED_EXTENSIONS_KEY
from fasta2a.schema import Message, StreamResponse, Task, TaskSendParams
from fasta2a.worker import Worker
from pydantic_core import from_json

from ...clock import STOP_TIME
from ...task_states import STOPPED, TERMINAL
from ...wire.protocol import stored_values
from ..agent.hooks import Hooks
from ..agent.system_exits import contained
from ..runs.recorder import Recorder
from ..store.ports import Claim
from .stop_request import Stop
from .storage_tasks import context_key

logger = logging.getLogger('pydantic_ai_a2a')


class WorkerFailed(Exception):
    """A worker has left its task without an end. Never sent to a client."""


def task_params(claim: Claim) -> TaskSendParams:
    """Return the parameters of a task for a worker or a broker."""
    header = claim.header
    key = context_key(header.owner, header.context_id)
    message: Message = {**stored_values.load_message(claim.message), 'context_id': key}
    params = TaskSendParams(id=header.id, context_id=key, message=message)
    request: dict[str, Any] = {} if claim.request is None else from_json(claim.request)
    if modes := request.get('acceptedOutputModes'):
        params['accepted_output_modes'] = modes
    metadata: dict[str, Any] = request.get('metadata', {})
    if extensions := request.get('extensions'):
        metadata = {**metadata, ACTIVATED_EXTENSIONS_KEY: extensions}  # where FastA2A's workers look for them
    if metadata:
        params['metadata'] = metadata
    return params


class WorkerJob:
    """Does tasks with a worker of the user's own.

    Args:
        worker: The user's.
    """

    def __init__(self, worker: Worker[Any]) -> None:
        self._worker = worker
        self.hooks = Hooks()
        self.timeout = None

    def token(self) -> Stop:
        """Return a new token for one task."""
        return Stop()

    async def prepare(
        self, claim: Claim, recorder: Recorder, token: Stop, run_id: str
    ) -> Coroutine[Any, Any, tuple[_Relay, Task | None]]:
        """See `Job`."""
        return self._run(claim, _Relay(recorder), token)

    async def record(self, claim: Claim, recorder: Recorder, result: tuple[_Relay, Task | None]) -> Claim | None:
        """See `Job`. Without a stored end, the task was cancelled."""
        relay, task = result
        return await recorder.cancel((), None) if task is None else await relay.finish(task)

    async def _run(self, claim: Claim, relay: _Relay, token: Stop) -> tuple[_Relay, Task | None]:
        bus = self._worker.broker.event_bus
        async with bus.subscribe(claim.header.id) as events:
            relaying = asyncio.create_task(relay.run(events))
            working = asyncio.create_task(contained(self._worker.run_task(task_params(claim))))
            stopping = asyncio.create_task(token.wait())
            try:
                return relay, await self._watch(claim.header.id, working, relaying, stopping)
            finally:
                await _end(working, relaying, stopping)

    async def _watch(
        self, task_id: str, working: asyncio.Task[None], relaying: asyncio.Task[None], stopping: asyncio.Task[None]
    ) -> Task | None:
        """Return the stopped task; None if cancelled here without a stored end."""
        await asyncio.wait([working, relaying, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and not stopping.done():
            relaying.result()  # raises, unless the worker has closed the bus and still runs
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await self._cancel(task_id, working)
            task = await self._worker.storage.load_task(task_id)
            return task if task is not None and task['status']['state'] in TERMINAL else None
        working.result()
        return await self._stopped(task_id, relaying, stopping)

    async def _cancel(self, task_id: str, running: asyncio.Task[None]) -> None:
        try:
            await contained(self._worker.cancel_task({'id': task_id}))
        except Exception:  # the user's code failed; the task is stopped anyway
            logger.exception('cancel_task() of the worker failed; the run of task %s is stopped anyway.', task_id)
        await _end(running)

    async def _stopped(self, task_id: str, relaying: asyncio.Task[None], stopping: asyncio.Task[None]) -> Task | None:
        """Return the task from the storage, after all reports. The task may go on elsewhere until the bus closes."""
        bus, storage = self._worker.broker.event_bus, self._worker.storage
        task = await storage.load_task(task_id)
        if task is not None and task['status']['state'] in STOPPED:
            await bus.close(task_id)
            await asyncio.wait([relaying], timeout=STOP_TIME)
        else:
            await asyncio.wait([relaying, stopping], return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                await self._cancel(task_id, relaying)
                return None
            task = await storage.load_task(task_id)
        if relaying.done():
            relaying.result()
        if task is None or task['status']['state'] not in STOPPED:
            raise WorkerFailed(
                f'The worker returned without ending task {task_id}: run_task() must store a last state.'
            )
        return task


class _Relay:
    """Writes a worker's reports to the task's event log."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._begun: set[str] = set()
        """Ids of the reported artifacts."""
        self._whole: dict[str, bytes] = {}
        """Artifacts with a whole report."""

    async def run(self, events: AsyncIterable[StreamResponse]) -> None:
        """Relay until the bus closes."""
        async for event in events:
            if 'artifact_update' in event:
                update = event['artifact_update']
                await self._artifact(update['artifact'], update.get('append', False), update.get('last_chunk', False))
            elif 'message' in event:
                await self._recorder.relay_message(event['message'])
            elif 'status_update' in event:
                status = event['status_update']['status']
                if status['state'] == 'working' and 'message' in status:
                    await self._recorder.relay_message(status['message'])

    async def _artifact(self, artifact: Any, append: bool, last: bool) -> None:
        artifact_id, body = artifact['artifact_id'], stored_values.dump_artifact(artifact)
        append = append and artifact_id in self._begun  # in A2A, the first chunk cannot append
        self._begun.add(artifact_id)
        await self._recorder.relay_artifact(body, append=append, last=last)
        if last and not append:
            self._whole[artifact_id] = body

    async def finish(self, task: Task) -> Claim | None:
        """Record the end from the storage."""
        artifacts = {
            artifact['artifact_id']: stored_values.dump_artifact(artifact) for artifact in task.get('artifacts', ())
        }
        unreported = [body for artifact_id, body in artifacts.items() if self._whole.get(artifact_id) != body]
        status = task['status']
        return await self._recorder.relay_end(
            status['state'],
            status.get('message') or _reason(task),
            artifacts=list(artifacts.items()),
            unreported=unreported,
        )


def _reason(task: Task) -> Message | None:
    """Return the agent's last message of a task without a result: a FastA2A storage has no status message."""
    newest = task.get('history', [])[-1:]
    messages = [message for message in newest if message['role'] == 'agent']
    return messages[0] if messages and task['status']['state'] != 'completed' else None


async def _end(*tasks: asyncio.Task[None]) -> None:
    """Cancel asyncio tasks and wait until they have stopped, for at most `STOP_TIME`."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=STOP_TIME)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # the error was reported before
