"""Runs as workflows of Temporal: `to_a2a(engine=Temporal('localhost:7233', task_queue='agents'))`.

A workflow runs in a worker, which may be on another machine than the server of the task. Servers and workers share the
database of the app. All payloads lie there: Temporal has only their ids.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from copy import copy
from dataclasses import fields, replace
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple, Union, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.durable_exec.temporal import AgentEventStream, AgentPlugin, PydanticAIPlugin, TemporalDurability
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, UserContent
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDefinition
from pydantic_ai.usage import RunUsage
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python
from temporalio import activity, converter, exceptions, workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, RetryConfig, WorkflowFailureError, WorkflowQueryFailedError
from temporalio.common import RawValue, SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.common import WorkflowIDReusePolicy as Reuse
from temporalio.contrib.workflow_streams import PollInput, PollResult, WorkflowStreamClient
from temporalio.plugin import SimplePlugin
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    Interceptor,
    Worker,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)
from temporalio.worker import UnsandboxedWorkflowRunner as Unsandboxed

from ..agent.current_task import Running, running
from ..agent.pydantic_ai_internals import was_changed
from ..agent.refused_files import check_files
from ..agent.run_options import RunInfo, RunOptions
from ..agent.run_output import RunOutput, stopped
from ..agent.runner import Emit, RunArguments
from ..agent.turn_messages import AddedMessages
from ..arguments import checked
from ..conversion.artifacts import Artifacts
from ..conversion.chosen_states import STATES, Rejected
from ..conversion.failures import CHANGED_AGENT, ENGINE_FAILED, UNKNOWN, EngineFailure, classify
from ..conversion.output_types import NO_ANSWERS, declared_types
from ..conversion.remote_calls import CallsRemoteAgent
from ..conversion.type_names import type_name
from ..conversion.typed_input import ValidatedInput
from ..errors import BackendUnusable, FileRefused, ResultForgotten, StoreUnavailable
from ..protocol import stored
from ..quotas import Left
from ..runs.agent_job import AgentJob
from ..runs.recorder import Recorder
from ..store.ports import Backend, Claim
from ..types import Message, Note, Part, ToolArtifact, without_surrogates
from .engine import AtEngine, Canceled, Engine, EngineEvent, EngineRun, WorkflowToken, perform

logger = logging.getLogger('pydantic_ai_a2a')

_NAME = 'pydantic_ai_a2a'
_WORKFLOW = f'{_NAME}.run'
_NOTES = f'{_NAME}.notes'
"""Topic of the workflow's stream with notes and artifacts."""
_POLL = '__temporal_workflow_stream_poll'
"""Query of Temporal for the events of the stream from an offset on."""
_TASK, _CONTEXT = map(SearchAttributeKey.for_keyword, ('a2aTask', 'a2aContext'))
_INLINE = 'pydantic_ai_a2a'
"""Key in the metadata of a payload that Temporal passes on and does not keep: the question and the answer of a poll."""
_LARGEST_POLL = 1_500_000
"""Bytes of a poll up to which Temporal passes it on. Temporal refuses payloads above 2 MB."""
_WATCHED, _UNWATCHED = 0.1, 2.0
"""Seconds between two polls for new events: of a task with a client that reads its events, and of any other."""
_POLL_TIME = timedelta(seconds=5)
"""Time in which a worker answers a poll."""
_HEARTBEATS = timedelta(seconds=1)
"""A cancelled activity hears of the cancel with the answer to a heartbeat."""
_CANCEL_TIME = 10.0
"""Seconds until a workflow that no worker has cancelled is terminated."""
_TAKEOVER = timedelta(seconds=3)
"""Time after which Temporal gives the next step of a workflow to another worker. By default as long as `_CANCEL_TIME`:
a cancel after the loss of a worker would terminate the workflow before another worker has it."""
_GRACE = timedelta(minutes=1)
"""Time after the `timeout` of a run until Temporal ends a workflow without a worker."""
_NONDETERMINISM = '[TMPRL1100]'
"""Temporal's number of the error, which begins its text."""
_OF_AGENTS = 'agent__'
"""Beginning of the names of Pydantic AI's activities."""
_UNTIL_BACK = RetryConfig(max_elapsed_time_millis=None, max_retries=2**31 - 1)
"""A server waits for a Temporal server that does not answer: the workflow goes on meanwhile."""

_NO_DATA = (
    'engine=Temporal() passes the dependencies of the agent to activities as JSON. Give deps_type= a type that Pydantic'
    ' can write and read, such as a dataclass, and make live objects and secrets in the tools.'
)

_VALIDATED_TWICE = (
    'Temporal validates the arguments of a tool twice, and a validator has refused its own result. Let validators'
    ' accept what they return, or change the values in the tool.'
)

_PAUSE = 1.0
"""Seconds until another worker starts in the place of one that has failed."""
_changed_outputs = set[Any]()
"""Types of outputs that the log has named, because their values change on their way from the workflow."""
_apps: WeakValueDictionary[str, AtEngine] = WeakValueDictionary()
"""The apps with a worker in this process, by task queue: code of workflows finds its app here."""


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
            _dump_deps(agent, options.get('deps'))
        except UserError as error:
            raise TypeError(str(error)) from error

    @asynccontextmanager
    async def serving(self, app: AtEngine) -> AsyncGenerator[None]:
        await self._client(app.backend)  # also without a worker: the app serves once Temporal answers
        if not self._has_worker:
            yield
            return
        if _apps.setdefault(self._task_queue, app) is not app:
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
            _apps.pop(self._task_queue, None)

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
        _apps[self._task_queue] = app
        given: Any = {'sticky_queue_schedule_to_start_timeout': _TAKEOVER, **options}
        if 'deployment_config' not in options:
            given.setdefault('build_id', _NAME)  # without a name, Temporal compiles all loaded modules
        return Worker(
            client,
            task_queue=self._task_queue,
            workflows=[_Run],
            activities=[_unknown, *given.pop('activities', ())],
            plugins=[AgentPlugin(app.runner.agent)],
            interceptors=[_Tasks(app)],
            workflow_runner=Unsandboxed(),
            max_heartbeat_throttle_interval=_HEARTBEATS,
            default_heartbeat_throttle_interval=_HEARTBEATS,
            **given,
        )

    async def _client(self, backend: Backend) -> Client:
        if (client := self._clients.get(backend)) is None:
            options: dict[str, Any] = {'retry_config': _UNTIL_BACK, **self._connection}
            keeping = SimplePlugin(_NAME, data_converter=partial(_keeping_payloads, backend))
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
        run.handle = client.get_workflow_handle_for(_Run.run, run.key)
        if known:
            with _answered(f'Temporal has no workflow {run.key}.'):
                await run.handle.describe()
            return
        await backend.payloads.put(claim.header.id, {run.key: _CLAIM.dump_json(claim)})
        pairs = [SearchAttributePair(_TASK, claim.header.id), SearchAttributePair(_CONTEXT, claim.header.context_id)]
        # Another server may have started the workflow, and was killed before it could store that.
        with _answered(), suppress(exceptions.WorkflowAlreadyStartedError):
            await client.start_workflow(
                _Run.run,
                _dump_run(run),
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
                    _POLL, PollInput(from_offset=offset), result_type=PollResult, rpc_timeout=_POLL_TIME
                )
            except (RPCError, WorkflowQueryFailedError) as error:
                if not ended:  # no worker is free, or Temporal refuses calls: `result` says so
                    continue
                if isinstance(error, RPCError) and not run.result.exception():
                    raise StoreUnavailable(str(error)) from error
                return
            offset = page.next_offset
            for item in page.items:
                event = _event_of(item.topic, Payload.FromString(b64decode(item.data)).data)
                notes += isinstance(event, Note)
                if event is not None and not (isinstance(event, Note) and notes <= run.notes):
                    yield event
            if ended and not page.more_ready:
                return

    async def cancel(self, run: EngineRun) -> None:
        # The start may not have come to its handle.
        handle = run.handle or (await self._client(run.app.backend)).get_workflow_handle_for(_Run.run, run.key)
        try:
            with suppress(WorkflowFailureError):  # `result` says how it has ended
                try:
                    async with asyncio.timeout(_CANCEL_TIME):
                        await handle.signal(_Run.cancel)
                        await handle.result()
                except TimeoutError:
                    await handle.terminate('The task was cancelled, and no worker has cancelled the workflow.')
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                logger.warning('Temporal does not cancel %s, which ends before its next step: %s', run.key, error)

    async def result(self, run: EngineRun) -> RunOutput:
        try:
            with _answered():
                return _load_end(await run.handle.result(), run.app)
        except WorkflowFailureError as failed:
            raise _failure_of(failed) from failed


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


def _failure_of(failed: WorkflowFailureError) -> Exception:
    """Return the failure of a run: the failure that the workflow or an activity has named, if any."""
    if (named := _named(failed.cause, EngineFailure)) is not None:
        return EngineFailure(*named.details)
    return EngineFailure(*(CHANGED_AGENT if _NONDETERMINISM in str(failed.cause) else ENGINE_FAILED))


def _named(error: BaseException | None, kind: type[BaseException]) -> exceptions.ApplicationError | None:
    """Return the failure in the place of an exception of a kind, among the causes of an error; None without one."""
    while error is not None and not (isinstance(error, exceptions.ApplicationError) and error.type == kind.__name__):
        error = error.__cause__
    return error


def _classified(error: BaseException | None) -> Sequence[Any] | None:
    """Return the failure that an activity has named, for the error that ends a run; None for another error."""
    if (named := _named(error, EngineFailure)) is not None:
        return named.details
    cause = error.cause if isinstance(error, exceptions.ActivityError) else None
    details = cause.details if isinstance(cause, exceptions.ApplicationError) else ()
    return details[1:] if details[:1] == (_NAME,) else None


def _with_failure(error: Exception, arguments: Sequence[Any]) -> Exception | None:
    """Return an error of an activity together with its failure; None for an error without a known failure.

    A workflow gets only the name of the error's class. Retries depend on that name and on the delay, so both stay.
    """
    raised = error
    if isinstance(error, exceptions.ApplicationError):  # of Pydantic AI, for an error that it does not try again
        if error.details or not isinstance(error.__cause__, Exception):
            return None
        raised = error.__cause__
    else:
        error = exceptions.ApplicationError(str(error), type=type(error).__name__)
    failure = classify(_of_files(raised, arguments))
    if failure == UNKNOWN:
        return None
    return exceptions.ApplicationError(
        error.message,
        _NAME,
        *failure,
        type=error.type,
        non_retryable=error.non_retryable,
        next_retry_delay=error.next_retry_delay,
    )


def _of_files(error: Exception, arguments: Sequence[Any]) -> Exception:
    """Return an error of an activity, or the `FileRefused` in its place for a request to a model with files."""
    messages: Sequence[ModelMessage] = getattr(arguments[0], 'messages', ()) if arguments else ()
    try:
        if messages:
            check_files(error, messages, messages[-1])
    except FileRefused as refused:
        return refused
    return error


def _as_failure(error: Exception, **options: Any) -> exceptions.ApplicationError:
    """Return an error of a workflow or activity that Temporal does not try again."""
    return exceptions.ApplicationError('', *error.args, type=type(error).__name__, non_retryable=True, **options)


# --- the code of workflows --------------------------------------------------------------------------------------------


@workflow.defn(name=_WORKFLOW, failure_exception_types=[Exception])  # otherwise, Temporal would try again for ever
class _Run:
    """The run of a task."""

    @workflow.init
    def __init__(self, data: bytes) -> None:
        self._events = AgentEventStream()
        self._token = WorkflowToken()

    @workflow.run
    async def run(self, data: bytes) -> bytes:
        app = _apps[workflow.info().task_queue]
        return _dump_end(await self._perform(app, data), app)

    async def _perform(self, app: AtEngine, data: bytes) -> RunOutput:
        notes = self._events.stream.topic(_NOTES)

        async def emit(event: Any) -> None:
            notes.publish(_dump_note(event))

        sent = _SENT.validate_json(data)
        claim, job, recorder = sent.claim, app.job(), _recorder(app, sent.claim)
        current = job.current(claim, recorder, _validated(job, sent.given))
        running.set(current._replace(writer=_Writes(emit), credential=_only_in_tools))
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
        deps_of = _deps_of(app.runner.agent)
        options: RunOptions = {} if sent.deps is None else {'deps': deps_of.validate_json(sent.deps)}
        try:
            return await perform(app.runner, arguments, options, partial(job.answer, claim, recorder))
        except EngineFailure as failure:
            if (rejected := _named(failure.__cause__, Rejected)) is not None:  # by a tool
                return stopped(
                    self._token.run,
                    AddedMessages(),
                    Rejected(*rejected.details),
                    None,
                    arguments.prompt,
                    usage=arguments.usage,
                    answers=arguments.answers is not None,
                )
            if (known := _classified(failure.__cause__)) is not None:  # by an activity
                failure = EngineFailure(*known, *failure.args[3:])
            raise _as_failure(failure) from failure

    @workflow.signal
    def cancel(self) -> None:
        """Cancel the run. Its messages are kept."""
        self._token.stop()


async def _only_in_tools() -> str | None:
    raise UserError('a2a(ctx).credential() works in tools: other code of the agent runs in a workflow of Temporal.')


class _Writes(NamedTuple):
    """Writes the notes and the artifacts of code in a workflow, or of a tool."""

    write: Emit


# --- activities -------------------------------------------------------------------------------------------------------


class _Tasks(Interceptor):
    """Gives activities the task of their workflow, for `a2a(ctx)`."""

    def __init__(self, app: AtEngine) -> None:
        self._app = app
        self._job = app.job()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _InTask(next, self)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _InWorkflow

    async def current(self, key: str) -> Running:
        """Return the run of a workflow."""
        backend, task_id = self._app.backend, _task_of(key)
        body = await backend.payloads.get(task_id, key)
        task = await backend.reader.load(task_id, None, history_length=0, artifacts=False)
        if body is None or task is None or task.header.state != 'working':
            raise _as_failure(EngineFailure(*ENGINE_FAILED))
        claim = _CLAIM.validate_json(body)
        recorder = _recorder(self._app, claim)
        current = self._job.current(claim, recorder, await self._job.validated(claim, recorder))
        return current._replace(writer=_Writes(partial(_publish, key)))


class _InWorkflow(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        running.set(cast('Running', _NoTask()))  # of a child workflow: `_Run` sets its own
        return await self.next.execute_workflow(input)


class _NoTask:
    @property
    def claim(self) -> Claim:
        raise UserError('a2a(ctx) does not work in a child workflow of Temporal: remove child_workflow from the tool.')


class _InTask(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, tasks: _Tasks) -> None:
        super().__init__(next)
        self._tasks = tasks

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        running.set(await self._tasks.current(activity.info().workflow_id or ''))
        try:
            return await self.next.execute_activity(input)
        except Rejected as rejected:
            raise _as_failure(rejected) from rejected
        except Exception as error:
            if (changed := was_changed(error)) is not None:
                if changed:
                    raise _changed_agent() from error
                logger.error(_VALIDATED_TWICE)
                raise _as_failure(EngineFailure(*UNKNOWN)) from error
            if isinstance(error, RPCError) and error.status is RPCStatusCode.INVALID_ARGUMENT:
                raise _as_failure(EngineFailure(*ENGINE_FAILED)) from error  # such as for one signal too many
            if (known := _with_failure(error, input.args)) is None:
                raise
            raise known from error


@activity.defn(dynamic=True)
async def _unknown(arguments: Sequence[RawValue]) -> None:
    """Stand for the activities that the agent of this process does not have. Temporal would try again for ever."""
    name = activity.info().activity_type
    raise _changed_agent() if name.startswith(_OF_AGENTS) else exceptions.ApplicationError(name, type='NotFoundError')


def _changed_agent() -> exceptions.ApplicationError:
    """Return the failure of a run whose steps the agent of this process does not have. The server logs it."""
    return _as_failure(EngineFailure(*CHANGED_AGENT), category=exceptions.ApplicationErrorCategory.BENIGN)


async def _publish(key: str, event: Any) -> None:
    """Publish a note or an artifact of a tool. Return once the workflow has it: it outlives the server."""
    async with WorkflowStreamClient.create(activity.client(), key) as stream:
        stream.topic(_NOTES).publish(_dump_note(event))


def _recorder(app: AtEngine, claim: Claim) -> Recorder:
    return Recorder(claim, app.backend.queue, app.backend.now)


# --- data -------------------------------------------------------------------------------------------------------------


_STATES: dict[str, type[Any]] = {state.__name__: state for state in (*STATES, Canceled)}

_CONFIG = ConfigDict(ser_json_bytes='base64', val_json_bytes='base64')
_CLAIM: TypeAdapter[Claim] = TypeAdapter(Claim)


class _End(NamedTuple):
    """The end of a run, as JSON."""

    kind: str
    """Name of the state that is the output; or number of the output's type among those of the agent; or empty for an
    output that only JSON has, and for each output of the versions before."""
    values: str
    """JSON array of the state's arguments, or of the output."""
    rest: RunOutput
    artifacts: list[str] | None = None
    """The artifacts of the answer, as stored; None for an end without an answer."""
    text: str | None = None
    """The answer, if it is a text."""


_END: TypeAdapter[_End] = TypeAdapter(_End, config=_CONFIG)
_EVENT: TypeAdapter[AgentStreamEvent] = TypeAdapter(AgentStreamEvent)
_DEFERRED: TypeAdapter[list[Any]] = TypeAdapter(list[DeferredToolRequests], config=_CONFIG)


class _Sent(NamedTuple):
    """The data of a run for its workflow, as JSON."""

    claim: Claim
    deps: str | None
    """The `deps` of `deps_factory`, as JSON."""
    shown: list[str]
    prompt: str | Sequence[UserContent] | None
    history: Sequence[ModelMessage]
    info: RunInfo
    text_output: bool
    usage: RunUsage | None
    budget: Left | None
    answers: DeferredToolResults | None
    client_tools: Sequence[ToolDefinition]
    spent: float
    given: list[Any] = []  # noqa: RUF012 - never changed
    """The data of the client for `Messages.input_type`, if any. Servers of the versions before do not send it."""
    approved: Mapping[str, dict[str, Any]] = {}
    """See `RunArguments.approved`. Servers of the version before do not send it."""


_SENT: TypeAdapter[_Sent] = TypeAdapter(_Sent, config=_CONFIG)


def _dump_run(run: EngineRun) -> bytes:
    """Write the data of a run.

    Raises:
        UserError: The `deps` would change on their way.
    """
    arguments, validated = run.arguments, run.current.validated
    sent = _Sent(
        # The messages of the claim are in the history.
        claim=replace(run.current.claim, own_messages=None, checkpoint=None, pending=None, tried=None),
        deps=None if run.options is None else _dump_deps(run.app.runner.agent, run.options.get('deps')).decode(),
        shown=[*arguments.shown],
        prompt=arguments.prompt,
        history=arguments.history,
        info=arguments.info,
        text_output=arguments.text_output,
        usage=arguments.usage,
        budget=arguments.budget,
        answers=arguments.answers,
        approved=arguments.approved,
        client_tools=arguments.client_tools,
        spent=arguments.spent,
        given=[] if validated is None else [validated.given],
    )
    return _SENT.dump_json(sent)


def _dump_note(event: Note | ToolArtifact) -> bytes:
    return to_json(event) if isinstance(event, Note) else stored.dump_artifact(event.artifact)


def _event_of(topic: str, body: bytes) -> EngineEvent | None:
    """Return an event of a workflow's stream; None for the result of the agent, which the workflow returns, too."""
    if topic == _NOTES:
        return Note(*from_json(body)) if body.startswith(b'[') else ToolArtifact(stored.load_artifact(body))
    return None if from_json(body)['event_kind'] == 'agent_run_result' else _EVENT.validate_json(body)


def _dump_end(ended: RunOutput, app: AtEngine) -> bytes:
    """Write the end of a run."""
    output, answer = ended.output, ended.answer
    kind = next((name for name, state in _STATES.items() if isinstance(output, state)), '')
    if kind:
        values = to_json([getattr(output, field.name) for field in fields(_STATES[kind])])
    elif ended.waits:
        values = _DEFERRED.dump_json([output])
    else:
        kind, values = _dump_output(output, _outputs_of(app))
    end = _End(kind, values.decode(), ended._replace(output=None, result=None, answer=None))
    if answer is not None:
        artifacts, text = answer
        end = end._replace(artifacts=[stored.dump_artifact(artifact).decode() for artifact in artifacts], text=text)
    return _END.dump_json(end)


def _load_end(body: bytes, app: AtEngine) -> RunOutput:
    """Read the JSON of `_dump_end`."""
    end = _END.validate_json(body)
    rest = end.rest
    if end.artifacts is not None:
        rest = rest._replace(answer=([stored.load_artifact(item.encode()) for item in end.artifacts], end.text))
    if (state := _STATES.get(end.kind)) is not None:
        return rest._replace(output=state(*from_json(end.values)))
    if rest.waits:
        return rest._replace(output=_DEFERRED.validate_json(end.values)[0])
    if end.artifacts is None:  # of the version before
        union = cast('Any', Union)[tuple(_outputs_of(app)) or (object,)]
        return rest._replace(output=_adapter_of(union).validate_json(end.values)[0])
    return rest._replace(output=_load_output(end, _outputs_of(app)))


def _dump_output(output: Any, kinds: Sequence[Any]) -> tuple[str, bytes]:
    """Return the number of the type of an output among those of the agent, and the JSON that is read as this output.

    The number is empty if no type reads its JSON as an equal value, such as after a validator that changes each value.
    """
    for kind in sorted(kinds, key=lambda kind: kind is not type(output)):  # first the class of the output
        with suppress(Exception):  # also of a validator of the user, for the output of another type
            adapter = _adapter_of(kind)
            body = adapter.dump_json([output], by_alias=False, round_trip=True, warnings='error')
            [back] = _read_output(adapter, body)
            if type(back) is type(output) and back == output:
                return f'{kinds.index(kind)}', body
    body = to_json([output], bytes_mode='base64', inf_nan_mode='strings', fallback=_plain)
    if not _equal(from_json(body), [output]) and type(output) not in _changed_outputs:
        _changed_outputs.add(type(output))
        logger.warning(
            'Outputs of the type %s change on their way from a workflow: on_complete gets their JSON, and clients get'
            ' them unchanged.',
            type_name(type(output)),
        )
    return '', body


def _plain(value: object) -> object:
    """Return values with JSON in the place of an object that Pydantic cannot write."""
    return {**value} if isinstance(value, Artifacts) else repr(value)


def _equal(value: object, other: object) -> bool:
    with suppress(Exception):  # of a class whose comparison is no bool, such as an array
        return bool(value == other)
    return False


def _load_output(end: _End, kinds: Sequence[Any]) -> Any:
    """Return the output of an end for the hooks: as its type, or else as JSON."""
    if end.kind:
        try:
            return _read_output(_adapter_of(kinds[int(end.kind)]), end.values.encode())[0]
        except Exception:  # also of a validator of the user, in another process than before
            logger.warning('on_complete gets the JSON of an output that this process cannot read as its type.')
    return from_json(end.values)[0]


def _read_output(adapter: TypeAdapter[list[Any]], body: bytes) -> list[Any]:
    return adapter.validate_json(body, by_alias=False, by_name=True)


def _adapter_of(kind: Any) -> TypeAdapter[list[Any]]:
    return TypeAdapter(cast('Any', list)[kind], config=_CONFIG)


def _outputs_of(app: AtEngine) -> list[Any]:
    """Return the types of the answers of an agent."""
    return [kind for kind in declared_types(app.runner.output_type) if kind not in NO_ANSWERS]


def _dump_deps(agent: AbstractAgent[Any, Any], deps: Any) -> bytes:
    """Write dependencies as Pydantic AI does for activities.

    Raises:
        UserError: They do not come back equal.
    """
    try:
        body = to_json(deps)
        back = _deps_of(agent).validate_json(body)
    except (PydanticUserError, PydanticSerializationError, ValidationError) as error:
        raise UserError(_NO_DATA) from error
    if type(back) is not type(deps) or back != deps:
        raise UserError(f'{_NO_DATA} Those of type {type_name(type(deps))} come back changed.')
    return body


def _deps_of(agent: AbstractAgent[Any, Any]) -> TypeAdapter[Any]:
    kind = cast('Any', agent.deps_type)
    return TypeAdapter(Any if kind in (object, type(None)) else kind | None)


def _validated(job: AgentJob, given: Sequence[Any]) -> ValidatedInput | None:
    """Return the validated data that has begun a task."""
    if job.typed_input is None or not given:
        return None
    return job.typed_input.validated(Message(role='user', message_id='', parts=[Part(data=given[0])]))


def _task_of(key: str) -> str:
    return key.partition('.')[0]


# --- payloads ---------------------------------------------------------------------------------------------------------


def _keeping_payloads(backend: Backend, own: converter.DataConverter | None) -> converter.DataConverter:
    """Return a data converter that keeps payloads in the database of an app, in the place of a user's.

    Small payloads, too: Temporal then has no text of clients and models, also not in errors. Only polls go through
    Temporal, in no history. Polls are known by their type: a selector sees no query, and a text can begin as a poll.
    """
    assert own is not None, 'PydanticAIPlugin comes before'
    driver = _Payloads(backend)
    storage = converter.ExternalStorage(
        [driver],
        driver_selector=lambda _, payload: None if _INLINE in payload.metadata else driver,
        payload_size_threshold=0,
    )
    kind = own.payload_converter_class
    return replace(
        own,
        payload_converter_class=type(kind.__name__, (_MarksPolls,), {'kind': kind}),
        payload_codec=None if own.payload_codec is None else _KeepsMarks(own.payload_codec),
        failure_converter_class=converter.DefaultFailureConverterWithEncodedAttributes,
        external_storage=storage,
    )


class _MarksPolls(converter.PayloadConverter, converter.WithSerializationContext):
    """The payload converter of a user, which marks the payloads of polls."""

    kind: ClassVar[Any]

    def __init__(self) -> None:
        self._own = self.kind()

    def with_context(self, context: converter.SerializationContext) -> _MarksPolls:
        marking = copy(self)
        marking._own = self._own.with_context(context)
        return marking

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        return self._own.from_payloads(payloads, type_hints)

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        try:
            payloads = self._own.to_payloads(values)
        except PydanticSerializationError:  # also for half of an emoji in a text of a model or a tool
            payloads = self._own.to_payloads(without_surrogates(to_jsonable_python(values)))
        if len(values) == 1 and isinstance(values[0], (PollInput, PollResult)):
            for payload in payloads:
                if len(payload.data) <= _LARGEST_POLL:
                    payload.metadata[_INLINE] = b'poll'
        return payloads


class _KeepsMarks(converter.PayloadCodec, converter.WithSerializationContext):
    """The payload codec of a user, which leaves polls marked."""

    def __init__(self, own: converter.PayloadCodec) -> None:
        self._own = own

    def with_context(self, context: converter.SerializationContext) -> _KeepsMarks:
        own = self._own
        return _KeepsMarks(own.with_context(context)) if isinstance(own, converter.WithSerializationContext) else self

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        encoded = await self._own.encode(payloads)
        if all(_INLINE in payload.metadata for payload in payloads):
            for payload in encoded:
                payload.metadata[_INLINE] = b'poll'
        return encoded

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self._own.decode(payloads)


class _Payloads(converter.StorageDriver):
    """Keeps the payloads of workflows in the database of an app."""

    def __init__(self, backend: Backend) -> None:
        self._store = backend.payloads

    def name(self) -> str:
        return _NAME

    async def store(
        self, context: converter.StorageDriverStoreContext, payloads: Sequence[Payload]
    ) -> list[converter.StorageDriverClaim]:
        assert isinstance(context.target, converter.StorageDriverWorkflowInfo), 'an app starts activities in workflows'
        task_id = _task_of(context.target.id or '')
        bodies = [payload.SerializeToString() for payload in payloads]
        ids = [blake2b(body, digest_size=16).hexdigest() for body in bodies]
        await self._store.put(task_id, dict(zip(ids, bodies, strict=True)))
        return [converter.StorageDriverClaim({'task': task_id, 'id': name}) for name in ids]

    async def retrieve(
        self, context: converter.StorageDriverRetrieveContext, claims: Sequence[converter.StorageDriverClaim]
    ) -> list[Payload]:
        keys = [(claim.claim_data['task'], claim.claim_data['id']) for claim in claims]
        bodies = await asyncio.gather(*(self._store.get(*key) for key in keys))
        if None in bodies:
            logger.error('Task %s was erased, or is in a database of other servers.', claims[0].claim_data['task'])
        # No converter reads the empty payload: the workflow fails. An error here would be tried again for ever.
        return [Payload() if body is None else Payload.FromString(body) for body in bodies]
