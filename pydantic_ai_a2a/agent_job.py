"""What a claimed task is when an agent does it: its message read, one run, its result recorded. Knows no queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any

from pydantic_ai import CancellationToken
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage
from pydantic_core import from_json

from .conversion.inbound import Accepts, user_prompt
from .conversion.modes import EVERYTHING, OutputModes
from .conversion.outbound import OutputMapper, text_of
from .conversion.pending import Asked, ask, asked_by, dump, load, results
from .ports import Backend, Claim
from .protocol import stored
from .quotas import Metering
from .recorder import Recorder
from .runner import RunInfo, Runner, RunOutput
from .turn import Turn
from .types import Message

__all__ = ('AgentJob', 'Read', 'plain_read')

Read = Callable[[Message], tuple[str | Sequence[UserContent], Sequence[ModelMessage]]]
"""What a message tells a run: its prompt, and what goes before that, after the context."""


def plain_read(accepts: Accepts) -> Read:
    """Reads a message as one prompt and nothing else."""
    return lambda message: (user_prompt(message, accepts), ())


class AgentJob:
    """Does tasks with one agent.

    Args:
        backend: Has the conversations, and knows who watches.
        runner: Runs the agent.
        read: Reads a client's message.
        outputs: Makes artifacts of what the agent returns.
        metering: Knows what a run may use at most.
        hidden: Names of the tools whose arguments clients are not shown when their calls wait.
    """

    def __init__(
        self,
        backend: Backend,
        runner: Runner,
        *,
        read: Read,
        outputs: OutputMapper,
        metering: Metering | None = None,
        hidden: Collection[str] = (),
    ) -> None:
        self._backend = backend
        self._runner = runner
        self._read = read
        self._outputs = outputs
        self._metering = metering
        self._hidden = hidden

    def token(self) -> CancellationToken:
        """What cancels a task: one for all its runs, so that a cancel between two of them holds for the second."""
        return CancellationToken()

    async def begin(
        self, claim: Claim, recorder: Recorder, token: CancellationToken, run_id: str
    ) -> Coroutine[Any, Any, RunOutput]:
        """See `Job`."""
        pending = None if claim.pending is None else load(claim.pending)
        prompt, before = None, ()
        if pending is None or not pending.answers:  # else the message is an answer and nothing besides
            prompt, before = self._read(stored.load_message(claim.message))
        history = await self._backend.history(claim)
        key = f'{claim.header.id}.{claim.run}' if claim.checkpoint is None else claim.checkpoint.run
        info: RunInfo = {
            'task_id': claim.header.id,
            'context_id': claim.header.context_id,
            'attempt': claim.attempt,
            'idempotency_key': key,
        }
        turn = Turn(key, claim.checkpoint, recorder.save) if self._backend.durable else None
        usage, left = turn.usage if turn is not None else None, None
        if self._metering is not None:
            usage = recorder.usage = usage or RunUsage()
            left = await self._metering.left(claim.header.owner)
        return self._runner.run(
            prompt,
            [*history, *before] if before else history,
            info=info,
            run_id=run_id,
            token=token,
            watched=partial(self._backend.events.watched, claim.header.id),
            emit=recorder.write,
            text_output=self._outputs.streams_text and self._accepted(claim).text,
            turn=turn,
            usage=usage,
            left=left,
            may_wait=True,
            answers=results(pending) if pending is not None and pending.calls else None,
        )

    async def record(self, claim: Claim, recorder: Recorder, result: RunOutput) -> Claim | None:
        """See `Job`."""
        if result.waits:
            await self._wait(recorder, result)
            return None
        artifacts = self._outputs.artifacts(
            result.output, artifact_id=recorder.artifact_id, files=result.files, accepted=self._accepted(claim)
        )
        said = text_of(result.output)
        first = artifacts[0]['parts'][:1] if artifacts else []
        return await recorder.complete(
            artifacts,
            # A string of another declared type, such as a Literal, is data.
            answer=said if first and first[0].get('text') == said else None,
            streamed=result.streamed,
            messages=result.messages,
            usage=result.usage,
        )

    async def _wait(self, recorder: Recorder, result: RunOutput) -> None:
        asked = self._asked(result)
        pending = None if asked.pending is None else dump(asked.pending)
        await recorder.interrupt(asked.state, asked.parts, result.messages, usage=result.usage, pending=pending)

    def _asked(self, result: RunOutput) -> Asked:
        if isinstance(result.output, DeferredToolRequests):
            return ask(result.output, result.schemas or {}, hidden=self._hidden)
        return asked_by(result.output)

    def _accepted(self, claim: Claim) -> OutputModes:
        """What the task's client takes."""
        if claim.request is None:
            return EVERYTHING
        return self._outputs.accepted(from_json(claim.request).get('acceptedOutputModes', ()))
