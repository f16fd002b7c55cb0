"""The model messages of one run, over all attempts, and their stored part: the checkpoint.

A run whose process dies is resumed by the next attempt. The messages of such a run are, in their order:

    history | before: stored by earlier attempts | new: added by this attempt | unsent: the next request, not yet sent

The history belongs to the conversation, which gets the other messages when the run ends. The runner calls `Turn.step`
after each node. Then the checkpoint has the messages from the first of `before` to `unsent`, if a run can resume after
them. Only messages that have changed since the last write are written (`Checkpoint.first`):

- A request gets its time and its instructions when it is sent. So an unsent request is written once more after that,
  also if the earlier attempt has stored it (`Turn.sent_again`).
- Pydantic AI sets the workspace of a response later. So a message is unchanged if it is the same object with the same
  workspace.

A run at an engine resumes from the steps of the engine. Its checkpoint has only marks, which are empty requests: one
for the start of the workflow, and one for each note that the server has stored (`Turn.mark`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import replace
from itertools import takewhile
from typing import Any, TypeAlias

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.usage import RunUsage

from ...types.run_events import Note
from ..store.ports import Checkpoint
from .enqueued_messages import enqueued_after, with_enqueued, without_enqueued

Save: TypeAlias = Callable[[Checkpoint, Note | None], Awaitable[None]]
"""Stores a checkpoint, together with the agent's note about the step."""

_Mark: TypeAlias = tuple[ModelMessage, Any]


class Turn:
    """The messages that a run adds to its conversation, stored step by step.

    Args:
        run: Names the run in all attempts.
        checkpoint: Progress of earlier attempts.
        save: Stores a checkpoint.
        answers: True if the run begins with results of calls of its conversation.
    """

    def __init__(self, run: str, checkpoint: Checkpoint | None, save: Save, *, answers: bool = False) -> None:
        self._run = run
        self._save = save
        self._answers = answers
        self._history: Sequence[ModelMessage] = ()
        self.marked = '' if checkpoint is None or stored_steps(checkpoint) else checkpoint.run
        """Id of the run that was started at an engine, or empty."""
        self._before: list[ModelMessage] = [] if checkpoint is None else stored_steps(checkpoint)
        self.enqueued = '' if checkpoint is None else enqueued_after(checkpoint.messages[-1])
        """Messages that waited for a later request after the last step, as JSON, or empty."""
        self.marks = len(checkpoint.messages) if checkpoint is not None and self.marked else 0
        """Number of stored marks of a run at an engine: one, and one for each note."""
        self._stored = _marked(self._before)

    @property
    def before(self) -> Sequence[ModelMessage]:
        """Messages of earlier attempts; empty without progress."""
        return self._before

    def after(self, history: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return the starting point of this attempt: the history of the run, and the messages of earlier attempts."""
        self._history = history
        return [*history, *self._before]

    def all(self, new: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return the whole turn, with the new messages of this attempt."""
        return [*self._before, *new]

    async def mark(self, run: str, note: Note | None = None) -> None:
        """Store that the run was started at an engine, which keeps the steps of the run; or one more note of the run.

        Raises:
            LeaseLost: The task is no longer ours.
        """
        first = max(0, self.marks - (note is None))
        await self._save(Checkpoint(run=run, messages=[ModelRequest(parts=[])], usage=RunUsage(), first=first), note)
        self.marked, self.marks = run, first + 1

    def sent_again(self, request: ModelRequest) -> None:
        """Replace the last message of earlier attempts as sent by this attempt, with new time and instructions."""
        if len(self._before) == 1:
            # The request also has results of the same response from the history.
            had = {id(part) for message in takewhile(_is_request, reversed(self._history)) for part in message.parts}
            request = replace(request, parts=[part for part in request.parts if id(part) not in had])
        self._before[-1] = request

    async def step(
        self,
        new: Sequence[ModelMessage],
        unsent: ModelRequest | None,
        usage: RunUsage,
        note: Note | None,
        *,
        enqueued: str = '',
    ) -> bool:
        """Store the progress of the run, if the run can resume there. Return False if nothing was stored.

        A run can resume after a response of the model, and after the execution of answered calls. Any other request
        would be merged with the conversation's last request. The only response of a run of one step is not stored,
        since the end of the task follows.

        Args:
            new: The new messages of this attempt.
            unsent: The next request to the model. Stored again after being sent.
            usage: Usage of the run.
            note: The agent's note, stored together with the step.
            enqueued: The messages that wait for a later request, see `enqueued_in`.
        """
        turn = self.all(new)
        if not (self._goes_on_after(turn[-1], unsent) if turn else self._answers and unsent):
            return False
        marked = _marked(turn)
        first = sum(1 for _ in takewhile(lambda pair: _same(*pair), zip(self._stored, marked, strict=False)))
        messages = turn[first:] if unsent is None else [*turn[first:], unsent]
        if enqueued:
            messages = with_enqueued(messages, enqueued)
        checkpoint = Checkpoint(run=self._run, messages=messages, usage=copy(usage), first=first)
        await self._save(checkpoint, note)
        self._stored = marked
        return True

    def _goes_on_after(self, last: ModelMessage, unsent: ModelRequest | None) -> bool:
        return isinstance(last, ModelResponse) and bool(self._stored or unsent or last.tool_calls)


def stored_steps(checkpoint: Checkpoint) -> list[ModelMessage]:
    """Return the messages of a checkpoint, without the mark of a run at an engine."""
    return [without_enqueued(message) for message in checkpoint.messages if message.parts]


def _is_request(message: ModelMessage) -> bool:
    return isinstance(message, ModelRequest)


def _marked(messages: Sequence[ModelMessage]) -> list[_Mark]:
    """Return the messages, each with the part set later by Pydantic AI: the tools' workspace of a response."""
    return [(message, getattr(message, 'workspace_ref', None)) for message in messages]


def _same(was: _Mark, now: _Mark) -> bool:
    return was[0] is now[0] and was[1] == now[1]
