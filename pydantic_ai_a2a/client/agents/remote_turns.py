"""The state of a remote conversation, as the messages of a run keep it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RequestUsage

from ...task_states import INTERRUPTED
from ...types.a2a_objects import Message, Task
from ...wire.extensions.remote_calls import SYSTEM, sign_in
from ..conversation_place import Place
from ..questions import question_of_task
from .remote_usage import difference, totals


@dataclass(frozen=True, kw_only=True)
class RemoteTurn:
    """The last response of a remote agent in a history, and the messages after it."""

    new: Sequence[ModelMessage]
    """The messages that the agent has not seen."""
    response: ModelResponse | None = None
    """The agent's last response; None for a new conversation."""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def context_id(self) -> str | None:
        """The conversation; None for a new conversation."""
        return self.details.get('contextId')

    @property
    def waiting_task(self) -> str | None:
        """The task that waits for its client; None for no task."""
        return self.details.get('taskId') if self.details.get('state') in INTERRUPTED else None


def last_turn(messages: Sequence[ModelMessage], place: Place) -> RemoteTurn:
    """Return the last response of the agent at a place in a history, and the messages after it."""
    for n, message in reversed([*enumerate(messages)]):
        if isinstance(message, ModelResponse) and message.provider_name == SYSTEM:
            known = message.provider_details or {}
            is_named = place.name in ('', str(known.get('agent', ''))[:200])
            if is_named and (message.provider_url, known.get('tenant', '')) == place[:2]:
                return RemoteTurn(new=messages[n + 1 :], response=message, details=known)
    return RemoteTurn(new=messages)


def details(agent: str, place: Place, answer: Task | Message) -> dict[str, Any]:
    """Return the provider details of a response of the agent with a name at a place."""
    found: dict[str, Any] = {'agent': agent, **({'tenant': place.tenant} if place.tenant else {})}
    if context_id := answer.get('context_id'):
        found['contextId'] = context_id
    if 'status' in answer:
        found |= {'taskId': answer['id'], 'state': answer['status']['state']}
        if counts := totals(answer):
            found['usage'] = counts
        if found['state'] in INTERRUPTED:
            waiting = question_of_task(agent, answer)
            values = {name: waiting.get(name) for name in ('schema', 'question')} | {'authorization': sign_in(waiting)}
            found |= {name: value for name, value in values.items() if value}
    return found


def used(turn: RemoteTurn, answer: Task | Message) -> RequestUsage:
    """Return the usage of a response: the remote task's totals, without those of the task's earlier response."""
    if 'status' not in answer:
        return RequestUsage()
    before: Mapping[str, int] = turn.details.get('usage', {}) if turn.details.get('taskId') == answer['id'] else {}
    return RequestUsage(details=difference(totals(answer), before))
