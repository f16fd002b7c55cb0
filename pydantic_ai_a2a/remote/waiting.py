"""The state of remote tasks in the messages of a run, and the answers of a run to them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic.alias_generators import to_camel
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDefinition
from pydantic_ai.usage import RequestUsage

from ..client.cards import Place
from ..client.waiting import answer_to, waiting_task
from ..conversion.remote_calls import ANSWER, SYSTEM, WAITING, sign_in
from ..protocol.own_extensions import RUN_METADATA_URI
from ..protocol.run_metadata import USAGE_COUNTS
from ..types import INTERRUPTED, Message, Task, as_object, count_of

# --- the state of a remote conversation, as the messages of a run keep it ---------------------------------------------

APPROVAL = 'remote_approval'
"""Name of the tool whose calls are the remote calls that wait for an approval."""
QUESTION = 'remote_question'
"""Name of the tool whose calls are the remote questions, and the remote calls that wait for a result."""


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
            waiting = waiting_task(agent, answer)
            values = {'schema': waiting.get('schema'), 'authorization': sign_in(waiting)}
            found |= {name: value for name, value in values.items() if value}
    return found


def used(turn: RemoteTurn, answer: Task | Message) -> RequestUsage:
    """Return the usage of a response: the remote task's totals, without those of the task's earlier response."""
    if 'status' not in answer:
        return RequestUsage()
    before: Mapping[str, int] = turn.details.get('usage', {}) if turn.details.get('taskId') == answer['id'] else {}
    return RequestUsage(details=difference(totals(answer), before))


def local_tools(parameters: ModelRequestParameters) -> dict[str, ToolDefinition]:
    """Return the tools of the local agent, by name, without the tools for pending calls."""
    return {tool.name: tool for tool in parameters.function_tools if tool.name not in (APPROVAL, QUESTION)}


# --- answers to remote tasks that wait, as results of deferred tool calls ---------------------------------------------


def remote_results(requests: DeferredToolRequests, answers: Mapping[str, Any]) -> DeferredToolResults:
    """Return the results with which a run continues whose remote tasks wait.

    ```python
    from pydantic_ai import Agent, DeferredToolRequests

    from pydantic_ai_a2a import remote_results


    async def answer_all(agent: Agent, requests: DeferredToolRequests, history: list) -> None:
        results = remote_results(requests, {call.tool_call_id: True for call in requests.approvals})
        await agent.run(message_history=history, deferred_tool_results=results)
    ```

    Args:
        requests: The pending calls of the run.
        answers: The answer to each remote task, by the id of the local call. `requests.metadata[id]['a2a_waiting']` has
            the remote calls that wait. An approval is answered by True, False, `ToolApproved` (with other arguments) or
            `ToolDenied` (with a reason for the remote model). A question is answered by text or data. Several remote
            calls are answered by a mapping of answers by the ids of the remote calls.

    Raises:
        UserError: A call is unknown or waits for no remote task, or an answer does not suit the pending calls.
    """
    results, waiting_calls = DeferredToolResults(), requests.metadata
    for call_id, answer in answers.items():
        metadata = waiting_calls.get(call_id, {})
        if WAITING not in metadata:
            raise UserError(
                f'The tool call {call_id!r} waits for no remote task. Answer calls with the metadata "a2a_waiting".'
            )
        # Pydantic AI executes approved calls only. The tool tells a denial to the remote agent.
        results.approvals[call_id] = ToolApproved()
        results.metadata[call_id] = {**metadata, ANSWER: answer_to(metadata[WAITING], answer)}
    return results


# --- usage of remote tasks, from the run metadata extension -----------------------------------------------------------
# A remote agent may make its usage up. So the usage is a detail of the run's own usage, which no limit and no budget
# counts: the server of the remote agent has budgets for its own callers.

_DETAILS = {to_camel(name): f'remote_{name}' for name in USAGE_COUNTS}
"""The names of the counts in the details of a run's usage, by their names in the extension."""


def totals(task: Task) -> dict[str, int]:
    """Return the usage of all runs of a task, by the names of the extension; empty if unknown."""
    counts = as_object(as_object(task.get('metadata', {}).get(RUN_METADATA_URI)).get('usage'))
    return {name: count_of(counts[name]) for name in _DETAILS if name in counts}


def difference(used: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return the usage since an earlier state of the same task, as details of a run's usage."""
    rests = {_DETAILS[name]: count - before.get(name, 0) for name, count in used.items()}
    return {name: rest for name, rest in rests.items() if rest > 0}
