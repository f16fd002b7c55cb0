"""The workflow of a run: the agent runs in it, and its steps are activities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast
from weakref import WeakValueDictionary

from pydantic_ai.durable_exec.temporal import AgentEventStream
from pydantic_ai.exceptions import UserError
from temporalio import workflow
from temporalio.worker import ExecuteWorkflowInput, WorkflowInboundInterceptor

from ..server.agent.added_messages import AddedMessages
from ..server.agent.current_task import Running, Writes, running
from ..server.agent.run_arguments import RunArguments
from ..server.agent.run_options import RunOptions
from ..server.agent.run_output import RunOutput, stopped
from ..server.conversion.chosen_states import Rejected
from ..server.conversion.failures import EngineFailure
from ..server.conversion.typed_input import ValidatedInput
from ..server.runs.agent_job import AgentJob
from ..server.runs.engine import AtEngine
from ..server.runs.recorder import Recorder
from ..server.runs.workflow_run import perform
from ..server.runs.workflow_token import WorkflowToken
from ..server.store.ports import Claim
from ..types.a2a_objects import Message, Part
from .temporal_arguments import load_run
from .temporal_dependencies import deps_adapter
from .temporal_events import dump_note
from .temporal_failures import as_failure, classified_failure, named_failure
from .temporal_names import CANCEL_SIGNAL, FAILED, NOTES_TOPIC, REJECTED, WORKFLOW
from .temporal_result import dump_end

apps_by_queue: WeakValueDictionary[str, AtEngine] = WeakValueDictionary()
"""The apps with a worker in this process, by task queue: code of workflows finds its app here."""


@workflow.defn(name=WORKFLOW, failure_exception_types=[Exception])  # otherwise, Temporal would try again for ever
class RunWorkflow:
    """The run of a task."""

    @workflow.init
    def __init__(self, data: bytes) -> None:
        self._events = AgentEventStream()
        self._token = WorkflowToken()

    @workflow.run
    async def run(self, data: bytes) -> bytes:
        app = apps_by_queue[workflow.info().task_queue]
        return dump_end(await self._perform(app, data), app)

    async def _perform(self, app: AtEngine, data: bytes) -> RunOutput:
        notes = self._events.stream.topic(NOTES_TOPIC)

        async def emit(event: Any) -> None:
            notes.publish(dump_note(event))

        sent = load_run(data)
        claim, job, recorder = sent.claim, app.job(), recorder_of(app, sent.claim)
        current = job.current(claim, recorder, _validated(job, sent.given))
        running.set(current._replace(writer=Writes(emit), credential=_only_in_tools))
        arguments = RunArguments(
            prompt=sent.prompt,
            history=sent.history,
            info=sent.info,
            run_id=workflow.info().workflow_id,
            token=self._token,
            watched=bool,
            watched_live=bool,
            emit=emit,
            text_output=sent.text_output,
            usage=sent.usage,
            budget=sent.budget,
            may_wait=True,
            answers=sent.answers,
            approved=sent.approved,
            shown=sent.shown,
            client_tools=sent.client_tools,
            client_output=job.client_output(claim),
            spent=sent.spent,
        )
        deps_of = deps_adapter(app.runner.agent)
        options: RunOptions = {} if sent.deps is None else {'deps': deps_of.validate_json(sent.deps)}
        try:
            return await perform(app.runner, arguments, options, partial(job.answer, claim, recorder))
        except EngineFailure as failure:
            if (rejected := named_failure(failure.__cause__, REJECTED)) is not None:  # by a tool
                return stopped(
                    self._token.run,
                    AddedMessages(),
                    Rejected(*rejected.details),
                    None,
                    arguments.prompt,
                    usage=arguments.usage,
                    answers=arguments.answers is not None,
                )
            if (known := classified_failure(failure.__cause__)) is not None:  # by an activity
                failure = EngineFailure(*known, *failure.args[3:])
            raise as_failure(FAILED, *failure.args) from failure

    @workflow.signal(name=CANCEL_SIGNAL)
    def cancel(self) -> None:
        """Cancel the run. Its messages are kept."""
        self._token.stop()


def _validated(job: AgentJob, given: Sequence[Any]) -> ValidatedInput | None:
    """Return the validated data that has begun a task."""
    if job.typed_input is None or not given:
        return None
    return job.typed_input.validated(Message(role='user', message_id='', parts=[Part(data=given[0])]))


async def _only_in_tools() -> str | None:
    raise UserError('a2a(ctx).credential() works in tools: other code of the agent runs in a workflow of Temporal.')


def recorder_of(app: AtEngine, claim: Claim) -> Recorder:
    """Return the recorder of a run, for the code in its workflow and its activities."""
    return Recorder(claim, app.backend.queue, app.backend.now)


class InWorkflow(WorkflowInboundInterceptor):
    """Says in a child workflow that `a2a(ctx)` does not work there."""

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        running.set(cast('Running', _NoTask()))  # of a child workflow: `RunWorkflow` sets its own
        return await self.next.execute_workflow(input)


class _NoTask:
    @property
    def claim(self) -> Claim:
        raise UserError('a2a(ctx) does not work in a child workflow of Temporal: remove child_workflow from the tool.')
