"""The job of a claim with an agent: read what the run needs, run the agent once, record the result.

`Attempts` calls `prepare`, awaits the run, and then calls `record`. The job keeps nothing of a run. `RunState` holds
what the run tells its recorder and its worker.

`prepare` turns a claim into `RunArguments`. The calls that waited, with the answers to them, come from `Claim.pending`,
the steps of earlier attempts from `Claim.checkpoint`, and the failed tries of the run from `Claim.tried`. `record`
completes the task, or lets it wait with the calls of the run.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, UserContent, UserPromptPart
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage
from pydantic_core import from_json

from ... import chains
from ...errors import StoreFailed
from ...settings.app_settings import Settings
from ...types.callers import Caller, load_caller, sender_of
from ...types.run_events import PartialArtifact
from ...wire.extensions.client_tools import ClientTools
from ...wire.extensions.own_extensions import wants_live
from ...wire.protocol import stored_values
from ..agent.current_task import Running, running, tool_artifact_prefix
from ..agent.dependencies import Dependencies
from ..agent.hooks import Hooks
from ..agent.partial_outputs import PartialOutputs
from ..agent.referenced_tasks import Refer
from ..agent.run_arguments import RunArguments
from ..agent.run_info import RunInfo
from ..agent.run_output import Answer, RunOutput
from ..agent.run_token import RunToken
from ..agent.runner import RunsAgent
from ..agent.steering import Content, Steering
from ..agent.turn_messages import Turn
from ..auth.credential_vault import CredentialVault
from ..conversion.answers_in_words import rules_of
from ..conversion.chosen_ends import asked_by
from ..conversion.client_output import SCHEMA_MARK, ClientOutput, client_output
from ..conversion.deferred_calls import Asked, ask
from ..conversion.deferred_results import approved_schemas, run_results
from ..conversion.failures import is_transient
from ..conversion.output_mapper import OutputMapper, text_of
from ..conversion.output_modes import OutputModes
from ..conversion.pending_calls import Pending, changed_arguments, dump, load, still_shown
from ..conversion.typed_input import TypedInput, ValidatedInput
from ..quotas import Metering
from ..store.ports import Backend, Claim
from .messages_for_model import Read, ReadTask, RunMessages
from .recorder import Recorder
from .run_state import RunState


class AgentJob:
    """Runs tasks with one agent.

    Args:
        backend: Stores the conversations, and tracks the readers of events.
        runner: Runs the agent.
        read: Reads a client's message.
        read_task: Reads all messages of a task instead, at the start of each run.
        outputs: Converts outputs to artifacts.
        settings: Settings of the app.
        metering: Checks and charges the budgets; None for none.
        refer: Reads the tasks to which a message refers.
        dependencies: Makes the `deps` of each run.
        hooks: Called at the ends of runs.
        vault: Reads the credentials of callers; None without credentials.
        client_tools: Reads the tools of clients; None if clients cannot declare tools.
        typed_input: Validates the data that begins a task; None for any data.
    """

    def __init__(
        self,
        backend: Backend,
        runner: RunsAgent,
        *,
        read: Read,
        read_task: ReadTask | None = None,
        outputs: OutputMapper,
        settings: Settings,
        metering: Metering | None = None,
        refer: Refer,
        dependencies: Dependencies | None = None,
        hooks: Hooks = Hooks(),
        vault: CredentialVault | None = None,
        client_tools: ClientTools | None = None,
        typed_input: TypedInput | None = None,
    ) -> None:
        self._backend = backend
        self._runner = runner
        self._messages = RunMessages(backend, read, read_task, refer)
        self._outputs = outputs
        self._results = settings.results
        self._metering = metering
        self._approvals = settings.approvals
        self._steers = settings.messages.while_working == 'steer'
        self._retry_on = settings.workers.retry_on or is_transient
        self._dependencies = dependencies
        self.hooks = hooks
        self._vault = vault
        self._client_tools = client_tools
        self.typed_input = typed_input
        """Validates the data that begins a task; None for any data."""

    def token(self) -> RunToken:
        """Return a token for all runs of a task: a cancel between two runs stops the second run."""
        return RunToken()

    @property
    def timeout(self) -> float | None:
        """Seconds of a run over all its tries; None for no limit."""
        return self._runner.timeout

    async def prepare(
        self, claim: Claim, recorder: Recorder, token: RunToken, run_id: str
    ) -> Coroutine[Any, Any, RunOutput]:
        """See `Job`."""
        state, request = recorder.state, claim.request
        chains.depth.set(from_json(request).get('depth', 0) if request is not None and b'"depth"' in request else 0)
        pending = None if claim.pending is None else load(claim.pending)
        asked = pending if pending is not None and pending.calls else None
        answers = None if asked is None else run_results(asked)

        # What the model gets.
        validated = None if self.typed_input is None else await self.validated(claim, recorder)
        prompt, history = await self._input(claim, recorder, pending, validated)

        # What earlier runs and attempts have left.
        key = f'{claim.header.id}.{claim.run}' if claim.checkpoint is None else claim.checkpoint.run
        turn, budget = None, None
        if self._backend.durable:
            turn = Turn(key, claim.checkpoint, recorder.save, answers=answers is not None)
        # A copy, because the usage of the run grows, and the claim keeps that of earlier attempts.
        usage = state.usage = RunUsage() if state.usage is None else deepcopy(state.usage)
        if self._metering is not None:
            budget = await recorder.store(partial(self._metering.left, claim.header.owner, claim.tried))
        if claim.checkpoint is not None:
            state.tool_artifacts.update(await recorder.store(partial(self._tool_artifacts, claim)))

        # What the client accepts and declares.
        client = None if request is None or SCHEMA_MARK not in request else self.client_output(claim)
        accepted = self._accepted(claim)
        state.text_type = accepted.text_type
        running.set(self.current(claim, recorder, validated))
        tools = () if self._client_tools is None else await self._messages.tools(self._client_tools, claim, recorder)

        # Asked again at each node, because readers come and go.
        watched_live = partial(self._backend.events.watched, claim.header.id, live=True)
        info: RunInfo = {
            'task_id': claim.header.id,
            'context_id': claim.header.context_id,
            'attempt': claim.attempt,
            'idempotency_key': key,
        }
        arguments = RunArguments(
            prompt=prompt,
            history=history,
            info=info,
            run_id=run_id,
            token=token,
            watched=partial(self._backend.events.watched, claim.header.id),
            # A message that enters the run may want live text, too.
            watched_live=(lambda: state.live or watched_live()) if state.live or self._steers else watched_live,
            emit=recorder.write,
            partial_outputs=self._partial_outputs(claim, recorder) if self._results.progress.partial_data else None,
            text_output=self._outputs.streams_text and client is None and accepted.text,
            turn=turn,
            usage=usage,
            budget=budget,
            may_wait=True,
            answers=answers,
            approved={} if asked is None else approved_schemas(asked),
            shown=() if pending is None else still_shown(pending),
            steering=self._steering(claim, recorder) if self._steers else None,
            client_tools=tools,
            client_output=client,
            spent=0.0 if claim.tried is None else claim.tried.spent,
            on_model_error=partial(self._model_failed, state),
        )
        if self._dependencies is None:
            return self._runner.run(arguments)
        return self._dependencies.use(
            claim, token, info, run_id, lambda deps: self._runner.run(arguments, {'deps': deps}), validated=validated
        )

    async def validated(self, claim: Claim, recorder: Recorder) -> ValidatedInput | None:
        """Return the validated data that has begun a task; None without `Messages.input_type`."""
        typed = self.typed_input
        return None if typed is None else await self._messages.validated(typed, claim, recorder)

    def current(self, claim: Claim, recorder: Recorder, validated: ValidatedInput | None) -> Running:
        """Return a run for `a2a(ctx)`."""
        credential = None if self._vault is None else partial(recorder.store, partial(self._vault.read, claim))
        return Running(claim, recorder, self._outputs, partial(self._accepted, claim), credential, validated)

    def _model_failed(self, state: RunState, error: Exception) -> None:
        if not isinstance(error, StoreFailed) and self._retry_on(error):
            state.transient = error

    async def _input(
        self, claim: Claim, recorder: Recorder, pending: Pending | None, validated: ValidatedInput | None
    ) -> tuple[str | Sequence[UserContent] | None, Sequence[ModelMessage]]:
        """Return the prompt of a run and the messages before it. Without a prompt, the message is only an answer."""
        messages, prompt, before = self._messages, None, ()
        if pending is None or pending.takes_prompt:
            prompt, before = await messages.read(claim, recorder, validated=validated)
        reads_task = messages.reads_tasks and prompt is not None
        if pending is not None and pending.unprompted and not reads_task:
            prompt, before = await messages.with_unprompted(pending.unprompted, claim, recorder, prompt, before)
        history = await recorder.store(partial(messages.history if reads_task else self._backend.history, claim))
        return prompt, [*history, *before] if before else history

    def _partial_outputs(self, claim: Claim, recorder: Recorder) -> PartialOutputs | None:
        outputs = self._outputs_of(claim)
        if not outputs.holds_data:
            return None
        artifact_id, accepted = recorder.artifact_id, self._accepted(claim)

        async def show(output: Any) -> None:
            for artifact in outputs.partial_artifacts(output, artifact_id=artifact_id, accepted=accepted):
                await recorder.write(PartialArtifact(artifact))

        results = self._results
        return PartialOutputs(show, results.interval, with_validators=results.progress.partial_data == 'with-functions')

    async def _tool_artifacts(self, claim: Claim) -> dict[str, bytes]:
        """Return the artifacts that tools have added in earlier attempts of the run."""
        task = await self._backend.reader.load(claim.header.id, None, history_length=0)
        artifacts = () if task is None else task.artifacts or ()
        by_id = {from_json(body)['artifactId']: body for body in artifacts}
        prefix = tool_artifact_prefix(claim)
        return {artifact_id: body for artifact_id, body in by_id.items() if artifact_id.startswith(prefix)}

    def _steering(self, claim: Claim, recorder: Recorder) -> Steering:
        sender, state = _sent_by(claim.request), recorder.state

        async def unread(after: int) -> Sequence[tuple[int, Sequence[Content]]]:
            messages = await recorder.store(partial(self._backend.reader.unread, claim.header.id, after))
            # Callers may share an owner. The run has the rights of its own caller, so it ends before a message of
            # another caller, which gets a run of its own.
            own = [*takewhile(lambda message: _sent_by(message[2]) == sender, messages)]
            state.live = state.live or any(wants_live(request) for _, _, request in own)
            return [(row, await self._messages.content(body, claim, recorder)) for row, body, _ in own]

        def take(row: int) -> None:
            state.taken = row

        return Steering(unread, state.taken or claim.inbox, take)

    async def record(self, claim: Claim, recorder: Recorder, result: RunOutput) -> Claim | None:
        """See `Job`."""
        if result.waits:
            return await self._wait(claim, recorder, result)
        artifacts, text = result.answer or self.answer(claim, recorder, result)
        following = await recorder.complete(
            artifacts,
            answer=text,
            streamed=result.streamed,
            messages=result.messages,
            # A run that has read all messages of its task has read more than the context.
            rewritten=None if self._messages.reads_tasks else result.rewritten,
            usage=result.usage,
        )
        if self.hooks.on_complete is not None:
            assert result.result is not None, 'the run has come to its end'
            await self.hooks.completed(claim.header.id, result.result)
        return following

    def answer(self, claim: Claim, recorder: Recorder, result: RunOutput) -> Answer:
        """Return the answer of a run for its task.

        Raises:
            UnserializableOutput, NotFinite, UnacceptableOutput: See `OutputMapper.artifacts`.
        """
        artifacts = self._outputs_of(claim).artifacts(
            result.output, artifact_id=recorder.artifact_id, files=result.files, accepted=self._accepted(claim)
        )
        text = text_of(result.output)
        first = artifacts[0]['parts'][:1] if artifacts else []
        # A string of another declared type, such as a Literal, is data.
        return artifacts, text if first and first[0].get('text') == text else None

    async def _wait(self, claim: Claim, recorder: Recorder, result: RunOutput) -> Claim | None:
        asked = self._asked(claim, result)
        before = None if claim.pending is None else load(claim.pending)
        pending = asked.pending
        if before is not None and result.keeps_pending:
            pending = replace(before, tried=True)
        if before is not None and pending is not None and not _has_prompt(result.messages):
            newest = [stored_values.load_message(claim.message)['message_id']] if before.takes_prompt else []
            pending = replace(pending, unprompted=[*before.unprompted, *newest])
        body = None if pending is None else dump(pending)
        return await recorder.interrupt(asked.state, asked.parts, result.messages, usage=result.usage, pending=body)

    def _asked(self, claim: Claim, result: RunOutput) -> Asked:
        # Each answer to a pause adds a run to a turn.
        rules = rules_of(self._approvals, first=claim.run == claim.turn)
        task_id = claim.header.id
        if not isinstance(result.output, DeferredToolRequests):
            return asked_by(result.output, rules, task_id)
        # A new response of the model has new calls, even with ids of earlier calls.
        same = claim.pending is not None and not any(isinstance(message, ModelResponse) for message in result.messages)
        before = load(claim.pending) if claim.pending is not None and same else None
        return ask(
            result.output,
            result.schemas or {},
            order=result.calls,
            changed={} if before is None else changed_arguments(before),
            shown_calls=result.shown,
            rules=rules,
            task_id=task_id,
            caller=sender_of(claim.request) if before is None else before.caller,
        )

    def _accepted(self, claim: Claim) -> OutputModes:
        """Return the output modes that the task's client accepts."""
        if claim.request is None:
            return self._outputs.everything
        return self._outputs_of(claim).accepted(from_json(claim.request).get('acceptedOutputModes', ()))

    def _outputs_of(self, claim: Claim) -> OutputMapper:
        """Return the conversion of the outputs of a run."""
        if claim.request is None or SCHEMA_MARK not in claim.request:
            return self._outputs
        client = self.client_output(claim)
        return self._outputs if client is None else client.outputs

    def client_output(self, claim: Claim) -> ClientOutput | None:
        """Return the output by the schema of the run's client; None for the output of the agent."""
        if claim.request is None or SCHEMA_MARK not in claim.request:
            return None
        return client_output(claim.request, data_as_text=self._results.data_as_text)


def _sent_by(request: bytes | None) -> Caller | None:
    """Return the sender of a message by the fields of its request; None if none is stored."""
    fields = sender_of(request)
    return None if fields is None else load_caller(fields)


def _has_prompt(messages: Sequence[ModelMessage]) -> bool:
    return any(isinstance(part, UserPromptPart) for message in messages for part in message.parts)
