"""A Pydantic AI agent as a `fasta2a.Worker`, for a FastA2A app of the user's own.

In `to_a2a(agent, workers=Workers(worker=...))` the package's own worker runs the tasks, and calls this class to read
messages and build artifacts. A subclass with its own `run_task` or `cancel_task` runs the tasks itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.abc
from fasta2a.broker import Broker, TaskOperation
from fasta2a.schema import Artifact, Message, Part, Task, TaskIdParams, TaskSendParams
from fasta2a.storage import Storage
from fasta2a.worker import Worker
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.messages import ModelMessage, ModelRequest, UserContent, UserPromptPart
from typing_extensions import Unpack

from ...clock import STOP_TIME
from ...errors import A2AError, StoreFailed
from ...settings.messages import HTTPS_ONLY
from ...task_states import TERMINAL
from ...types.run_events import Note, Step, TextDelta
from ...wire.protocol import new_ids
from ..agent.agent_inspection import models_of
from ..agent.run_arguments import RunArguments
from ..agent.run_info import RunInfo
from ..agent.run_options import DepsT, RunOptions
from ..agent.run_token import RunToken
from ..agent.runner import Runner
from ..conversion.accepted_content import Accepts
from ..conversion.failures import SHUTDOWN, Failure, classify
from ..conversion.model_history import model_messages
from ..conversion.model_profiles import accepts, resolve_audio_types, resolve_profile
from ..conversion.output_mapper import text_of
from ..conversion.output_modes import OutputModes
from ..conversion.user_prompts import user_prompt
from ..runs.exception_outcomes import Outcome, outcome_of
from ..store.conversation_turns import closed_turn
from .worker_outputs import WorkerOutputs, in_fasta2as_form

logger = logging.getLogger('pydantic_ai_a2a')

T = TypeVar('T')


@dataclass(init=False)
class AgentWorker(Worker[list[ModelMessage]]):
    """Runs the tasks of a `FastA2A` app with a Pydantic AI agent, as many at once as come in.

    ```python
    from collections.abc import AsyncGenerator
    from contextlib import asynccontextmanager

    from fasta2a import FastA2A
    from fasta2a.broker import InMemoryBroker
    from fasta2a.storage import InMemoryStorage
    from pydantic_ai import Agent
    from pydantic_ai_a2a import AgentWorker

    broker, storage = InMemoryBroker(), InMemoryStorage()
    worker = AgentWorker(agent=Agent('test'), broker=broker, storage=storage)


    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncGenerator[None]:
        async with app.task_manager, worker.agent, worker.run():
            yield


    app = FastA2A(storage=storage, broker=broker, lifespan=lifespan)
    ```

    Tasks of one context run one after another. The context in the storage is the conversation's list of messages. A
    cancel stops the run of a task and its async tools. Clients of such an app get FastA2A's answers and events. With
    `to_a2a(agent, workers=Workers(worker=...))`, clients get all features of this package.

    Args:
        agent: Any Pydantic AI agent; enter it for as long as the worker runs.
        broker: Carries the operations, and has the event bus for the worker's reports.
        storage: Holds tasks and contexts.
        allowed_file_url_schemes: Accepted schemes of clients' URLs, as in `to_a2a`.
        force_download: True to download the files here, as in `to_a2a`.
        options: Options of every run of the agent, by the names of `Agent.run`.

    Raises:
        TypeError: An option is unknown, or belongs to a request.
    """

    agent: AbstractAgent[Any, Any]
    options: RunOptions = field(default_factory=RunOptions, kw_only=True)
    """Given to every run."""
    allowed_file_url_schemes: frozenset[str] = field(default=HTTPS_ONLY, kw_only=True)
    """Accepted schemes of clients' URLs."""
    force_download: bool = field(default=True, kw_only=True)
    """True to download the files here."""

    def __init__(
        self,
        *,
        agent: AbstractAgent[DepsT, Any],
        broker: Broker,
        storage: Storage[Any],
        allowed_file_url_schemes: frozenset[str] = HTTPS_ONLY,
        force_download: bool = True,
        **options: Unpack[RunOptions[DepsT]],
    ) -> None:
        super().__init__(broker=broker, storage=storage)
        self.agent = agent
        self.options = options
        self.allowed_file_url_schemes = allowed_file_url_schemes
        self.force_download = force_download
        assert self.runner, 'checks the options'

    # Made on first use: a dataclass that inherits from this class has its own `__init__`.

    @cached_property
    def runner(self) -> Runner:
        """Runs the agent."""
        return Runner(self.agent, self.options, outputs=self.outputs)

    @cached_property
    def accepts(self) -> Accepts:
        """The parts accepted by the agent's model."""
        models = models_of(self.agent, self.options)
        return accepts(
            resolve_profile(models),
            self.allowed_file_url_schemes,
            force_download=self.force_download,
            audio_types=resolve_audio_types(models),
        )

    @cached_property
    def outputs(self) -> WorkerOutputs:
        """Converts the agent's outputs to artifacts."""
        return self.outputs_for()

    @cached_property
    def _running(self) -> dict[str, _RunSignals]:
        return {}

    @cached_property
    def _turns(self) -> WeakValueDictionary[str, asyncio.Lock]:
        return WeakValueDictionary()

    # --- what a subclass may change ---------------------------------------------------------------------------------

    def build_message_history(self, history: list[Message]) -> list[ModelMessage]:
        """Convert A2A messages to Pydantic AI messages.

        The last user prompt of the returned messages is the prompt of the run. All other messages are told to this run
        in front of the prompt, and are not kept in the context.

        Raises:
            InvalidParamsError: A part is malformed, or its URL must not be fetched.
            ContentTypeNotSupportedError: The agent's model does not take a part.
        """
        return model_messages(history, self.accepts)

    def build_artifacts(self, result: Any) -> list[Artifact]:
        """Convert a run's output to artifacts in FastA2A's form. The first artifact gets the id of its stream.

        Raises:
            UnserializableOutput: The output cannot be written as JSON.
        """
        return in_fasta2as_form(self.outputs.by_type(result, artifact_id=new_ids.new_id()))

    def read(self, history: Iterable[Message]) -> Prompt:
        """Return the input of a run, by `build_message_history`.

        Raises:
            ValueError: The messages have no user prompt.
        """
        # The storage may own the messages, and a subclass may change them.
        return prompt_of(self.build_message_history([message.copy() for message in history]))

    @property
    def reads_itself(self) -> bool:
        """True if a subclass overrides `build_message_history`."""
        return type(self).build_message_history is not AgentWorker.build_message_history

    @property
    def builds_itself(self) -> bool:
        """True if a subclass overrides `build_artifacts`."""
        return type(self).build_artifacts is not AgentWorker.build_artifacts

    @property
    def runs_itself(self) -> bool:
        """True if a subclass overrides `run_task` or `cancel_task`."""
        own = type(self)
        return (own.run_task, own.cancel_task) != (AgentWorker.run_task, AgentWorker.cancel_task)

    def outputs_for(self, modes: Sequence[str] | None = None, *, data_as_text: bool = False) -> WorkerOutputs:
        """Return the conversion of the agent's outputs for the card's media types; see `OutputMapper`."""
        output_type = self.options.get('output_type') or self.agent.output_type
        build = self.build_artifacts if self.builds_itself else None
        return WorkerOutputs(output_type, modes, data_as_text=data_as_text, build=build)

    def read_one(self, message: Message) -> Prompt:
        """Return the input of a run from one message. Errors of the agent's own reading name the message's fields."""
        return self.read([message]) if self.reads_itself else Prompt(user_prompt(message, self.accepts), ())

    # --- as a FastA2A worker ----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Carry out the broker's operations at once, until the block ends."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._receive, group)
            yield
            group.cancel_scope.cancel()

    async def _receive(self, group: anyio.abc.TaskGroup) -> None:
        async for operation in self.broker.receive_task_operations():
            group.start_soon(self._carry_out, operation)

    async def _carry_out(self, operation: TaskOperation) -> None:
        try:
            await self._handle_task_operation(operation)
        except Exception:  # the user's storage or event bus failed; the next operation may succeed
            logger.exception(
                'The storage failed, so task %s may stay without an end; the worker goes on with other tasks.',
                operation['params']['id'],
            )

    async def cancel_task(self, params: TaskIdParams) -> None:
        """Stop a task, and wait until the task has stopped. An ended task stays unchanged."""
        running = self._running.get(params['id'])
        if running is not None:
            running.token.cancel()
            await running.stopped.wait()
            return
        task = await self.storage.load_task(params['id'])
        if task is not None and task['status']['state'] not in TERMINAL:
            await self.storage.update_task(task['id'], 'canceled')

    async def run_task(self, params: TaskSendParams) -> None:
        """Run the agent on a submitted task, and write the end to the storage. Failures are written and logged.

        Raises:
            ValueError: The task is unknown, or was begun before.
        """
        running = self._running[params['id']] = _RunSignals()
        try:
            async with self._turns.setdefault(params['context_id'], asyncio.Lock()):
                await self._begin(params, running.token)
        finally:
            del self._running[params['id']]
            running.stopped.set()

    async def _begin(self, params: TaskSendParams, token: RunToken) -> None:
        task = await self.storage.load_task(params['id'])
        if task is None:
            raise ValueError(f'Task {params["id"]} not found')
        if token.cancelled:
            await self.storage.update_task(task['id'], 'canceled')
            return
        if (state := task['status']['state']) != 'submitted':
            raise ValueError(f'Task {params["id"]} has already been processed (state: {state})')
        own_task = asyncio.current_task()
        try:
            await self._run(task, self.outputs.accepted(params.get('accepted_output_modes', ())), token)
        except BaseException as error:  # such as the SystemExit of a hook
            outcome = outcome_of(error, own_task)
            if outcome is Outcome.EXIT:
                raise
            if outcome is Outcome.STOPPED:
                with anyio.move_on_after(STOP_TIME, shield=True):
                    await self._fail(task, SHUTDOWN)
                raise
            await self._fail(task, classify(error), error)

    async def _run(self, task: Task, accepted: OutputModes, token: RunToken) -> None:
        task_id, context_id = task['id'], task['context_id']
        await _stored(self.storage.update_task(task_id, 'working'))
        await self.publish_status(task_id, context_id, 'working')
        context = [*(await _stored(self.storage.load_context(context_id)) or ())]
        try:
            prompt = self.read(task.get('history', ()))
        except A2AError as refused:  # FastA2A has accepted the message before
            await self._fail(task, Failure('bad-input', refused.message))
            return
        chunks = _Chunks(self, task_id, context_id)
        try:
            arguments = RunArguments(
                prompt=prompt.content,
                history=[*context, *prompt.before],
                info=RunInfo(task_id=task_id, context_id=context_id, attempt=1, idempotency_key=task_id),
                run_id=task_id,
                token=token,
                watched=lambda: True,  # FastA2A's event bus does not count readers
                watched_live=lambda: True,
                emit=chunks.emit,
                text_output=self.outputs.streams_text and accepted.text,
            )
            result = await self.runner.run(arguments)
        except RunCancelled as canceled:
            if outcome_of(canceled, asyncio.current_task()) is not Outcome.CANCELED:
                raise
            await _stored(self.storage.update_context(context_id, [*context, *closed_turn(canceled.new_messages())]))
            await _stored(self.storage.update_task(task_id, 'canceled'))
            return
        artifacts = self.outputs.artifacts(
            result.output, artifact_id=chunks.artifact_id, files=result.files, accepted=accepted
        )
        if not self.builds_itself:
            artifacts = in_fasta2as_form(artifacts)
        await _stored(self.storage.update_context(context_id, [*(result.rewritten or (*context, *result.messages))]))
        text = text_of(result.output)
        answer = [] if text is None else [_agent_message(text)]
        await _stored(self.storage.update_task(task_id, 'completed', new_artifacts=artifacts, new_messages=answer))
        for artifact in artifacts:
            await self.publish_artifact(task_id, context_id, artifact)

    async def _fail(self, task: Task, failure: Failure, error: BaseException | None = None) -> None:
        task_id, context_id = task['id'], task['context_id']
        logger.error('Task %s failed (%s).', task_id, failure.kind, exc_info=error)
        message = _agent_message(failure.sentence, {'failure': failure.kind, 'correlationId': task_id})
        await self.storage.update_task(task_id, 'failed', new_messages=[message])
        await self.publish_status(task_id, context_id, 'failed', message)
        await self.broker.event_bus.close(task_id)


async def _stored(work: Awaitable[T]) -> T:
    """Return the result of a storage call.

    Raises:
        StoreFailed: The storage raised an exception.
    """
    try:
        return await work
    except Exception as error:  # any exception of a user's storage
        raise StoreFailed from error


@dataclass(slots=True)
class _RunSignals:
    token: RunToken = field(default_factory=RunToken)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)


class _Chunks:
    """Publishes the events of a run: the text as chunks of one artifact, sent as a whole at the end."""

    def __init__(self, worker: AgentWorker, task_id: str, context_id: str) -> None:
        self.artifact_id = new_ids.new_id()
        self._worker = worker
        self._task_id = task_id
        self._context_id = context_id
        self._begun = False

    async def emit(self, event: TextDelta | Note | Step) -> None:
        if isinstance(event, TextDelta):
            chunk = Artifact(artifact_id=self.artifact_id, parts=[Part(text=event.text)])
            # As in FastA2A, the first chunk appends too. The text of a later response replaces.
            append = not (event.first and self._begun)
            self._begun = True
            await self._worker.publish_artifact(self._task_id, self._context_id, chunk, append=append, last_chunk=False)
        else:
            assert isinstance(event, Note), 'a runner that is not told to shows no steps'
            await self._worker.publish_status(self._task_id, self._context_id, 'working', _agent_message(event.text))


def _agent_message(text: str, metadata: dict[str, Any] | None = None) -> Message:
    message = Message(role='agent', parts=[Part(text=text)], message_id=new_ids.new_id())
    if metadata is not None:
        message['metadata'] = metadata
    return message


class Prompt(NamedTuple):
    """The input of one run."""

    content: str | Sequence[UserContent]
    """The user's newest message."""
    before: Sequence[ModelMessage]
    """Further messages, between the context and the prompt."""


def prompt_of(messages: Sequence[ModelMessage]) -> Prompt:
    """Return the last user prompt, and all other messages.

    Raises:
        ValueError: The messages have no user prompt.
    """
    for index in reversed(range(len(messages))):
        request = messages[index]
        prompts = [part for part in request.parts if isinstance(part, UserPromptPart)]
        if isinstance(request, ModelRequest) and prompts:
            rest = [part for part in request.parts if not isinstance(part, UserPromptPart)]
            request_rest = [ModelRequest(parts=rest)] if rest else []
            return Prompt(_content(prompts), [*messages[:index], *request_rest, *messages[index + 1 :]])
    raise ValueError('build_message_history() of the worker must return a ModelRequest with a UserPromptPart.')


def _content(prompts: Sequence[UserPromptPart]) -> str | Sequence[UserContent]:
    if len(prompts) == 1:
        return prompts[0].content
    contents = ([part.content] if isinstance(part.content, str) else part.content for part in prompts)
    return [item for content in contents for item in content]
