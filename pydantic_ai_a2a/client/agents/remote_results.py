"""The answers to remote tasks that wait, as results of deferred tool calls. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai.exceptions import UserError
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved

from ...wire.extensions.remote_calls import ANSWER, WAITING
from ..question_answers import answer_to


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
