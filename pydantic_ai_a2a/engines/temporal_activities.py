"""The activities of workflows: each one has the task of its workflow, and its errors become failures of the run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from temporalio import activity, exceptions
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from ..server.agent.current_task import Running, Writes, running
from ..server.agent.workflow_internals import was_changed
from ..server.conversion.chosen_states import Rejected
from ..server.conversion.failures import ENGINE_FAILED, UNKNOWN
from ..server.runs.engine import AtEngine
from .temporal_arguments import CLAIM
from .temporal_events import publish
from .temporal_failures import as_failure, changed_agent, with_failure
from .temporal_names import AGENT_ACTIVITIES, FAILED, REJECTED, task_of
from .temporal_workflow import InWorkflow, recorder_of

logger = logging.getLogger('pydantic_ai_a2a')
_VALIDATED_TWICE = (
    'Temporal validates the arguments of a tool twice, and a validator has refused its own result. Let validators'
    ' accept what they return, or change the values in the tool.'
)


class TaskInterceptor(Interceptor):
    """Gives activities the task of their workflow, for `a2a(ctx)`."""

    def __init__(self, app: AtEngine) -> None:
        self._app = app
        self._job = app.job()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _InTask(next, self)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return InWorkflow

    async def current(self, key: str) -> Running:
        """Return the run of a workflow."""
        backend, task_id = self._app.backend, task_of(key)
        body = await backend.payloads.get(task_id, key)
        task = await backend.reader.load(task_id, None, history_length=0, artifacts=False)
        if body is None or task is None or task.header.state != 'working':
            raise as_failure(FAILED, *ENGINE_FAILED)
        claim = CLAIM.validate_json(body)
        recorder = recorder_of(self._app, claim)
        current = self._job.current(claim, recorder, await self._job.validated(claim, recorder))
        return current._replace(writer=Writes(partial(publish, key)))


class _InTask(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, tasks: TaskInterceptor) -> None:
        super().__init__(next)
        self._tasks = tasks

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        running.set(await self._tasks.current(activity.info().workflow_id or ''))
        try:
            return await self.next.execute_activity(input)
        except Rejected as rejected:
            raise as_failure(REJECTED, rejected.reason) from rejected
        except Exception as error:
            if (changed := was_changed(error)) is not None:
                if changed:
                    raise changed_agent() from error
                logger.error(_VALIDATED_TWICE)
                raise as_failure(FAILED, *UNKNOWN) from error
            if isinstance(error, RPCError) and error.status is RPCStatusCode.INVALID_ARGUMENT:
                raise as_failure(FAILED, *ENGINE_FAILED) from error  # such as for one signal too many
            if (known := with_failure(error, input.args)) is None:
                raise
            raise known from error


@activity.defn(dynamic=True)
async def unknown_activity(arguments: Sequence[RawValue]) -> None:
    """Stand for the activities that the agent of this process does not have. Temporal would try again for ever."""
    name = activity.info().activity_type
    raise (
        changed_agent()
        if name.startswith(AGENT_ACTIVITIES)
        else exceptions.ApplicationError(name, type='NotFoundError')
    )
