"""The state of a remote conversation, as the messages of a run keep it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fasta2a.schema import Message, Task
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json

from ..conversion.remote_calls import SYSTEM, sign_in
from .usage import difference, totals
from .waiting import waiting_task

__all__ = ('APPROVAL', 'QUESTION', 'Remote', 'Turn', 'as_text', 'details', 'last_turn', 'local_tools', 'used')

APPROVAL = 'remote_approval'
"""Name of the tool whose calls are the remote calls that wait for an approval."""
QUESTION = 'remote_question'
"""Name of the tool whose calls are the remote questions, and the remote calls that wait for a result."""

_WAITING = ('input-required', 'auth-required')


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A remote agent, as its responses name it."""

    name: str
    url: str | None


@dataclass(frozen=True, kw_only=True)
class Turn:
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
        return self.details.get('taskId') if self.details.get('state') in _WAITING else None


def last_turn(messages: Sequence[ModelMessage], agent: Remote) -> Turn:
    """Return the agent's last response in a history, and the messages after it."""
    for n, message in reversed([*enumerate(messages)]):
        if isinstance(message, ModelResponse) and message.provider_name == SYSTEM:
            known = message.provider_details or {}
            if known.get('agent') == agent.name and message.provider_url == agent.url:
                return Turn(new=messages[n + 1 :], response=message, details=known)
    return Turn(new=messages)


def details(agent: Remote, answer: Task | Message) -> dict[str, Any]:
    """Return the provider details of a response."""
    found: dict[str, Any] = {'agent': agent.name}
    if context_id := answer.get('context_id'):
        found['contextId'] = context_id
    if 'status' in answer:
        found |= {'taskId': answer['id'], 'state': answer['status']['state']}
        if counts := totals(answer):
            found['usage'] = counts
        if found['state'] in _WAITING:
            waiting = waiting_task(agent.name, answer)
            values = {'schema': waiting.get('schema'), 'authorization': sign_in(waiting)}
            found |= {name: value for name, value in values.items() if value}
    return found


def used(turn: Turn, answer: Task | Message) -> RequestUsage:
    """Return the usage of a response: the remote task's totals, without those of the task's earlier response."""
    if 'status' not in answer:
        return RequestUsage()
    before: Mapping[str, int] = turn.details.get('usage', {}) if turn.details.get('taskId') == answer['id'] else {}
    usage = difference(totals(answer), before)
    return RequestUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )


def local_tools(parameters: ModelRequestParameters) -> dict[str, ToolDefinition]:
    """Return the tools of the local agent, by name, without the tools for pending calls."""
    return {tool.name: tool for tool in parameters.function_tools if tool.name not in (APPROVAL, QUESTION)}


def as_text(value: Any) -> str:
    """Return a value as text: text as it is, other values as JSON."""
    return value if isinstance(value, str) else to_json(value).decode()
