"""Tasks of canned remote agents: completed, and waiting for answers, by our extension or as ADK and kagent ask."""

from __future__ import annotations

from typing import Any

from ..canned_agent import TASK, agent_message, task_in_state

PNG = {'raw': 'aGVsbG8=', 'mediaType': 'image/png', 'filename': 'a.png'}


def task_with(*artifacts: Any, status: Any = None, history: Any = (), **fields: Any) -> dict[str, Any]:
    """A completed task.

    Args:
        artifacts: The parts of each artifact.
        status: The status message.
        history: The messages.
        fields: Other fields of the task.
    """
    listed = [{'artifactId': f'a{n}', 'parts': parts} for n, parts in enumerate(artifacts)]
    message = {} if status is None else {'message': status}
    return {**TASK, 'status': {**TASK['status'], **message}, 'artifacts': listed, 'history': [*history], **fields}


USER_MESSAGE = agent_message('Bern', role='ROLE_USER')
DONE = task_with([{'text': 'Done.'}])


def task_waiting_with(**pending: Any) -> dict[str, Any]:
    """A task that waits for answers, by the extension for pending calls."""
    media_type = 'application/vnd.pydantic-ai.pending-calls+json'
    parts: Any = ['Which one?', {'data': {'pending': [], **pending}, 'mediaType': media_type}]
    return task_in_state('INPUT_REQUIRED', agent_message(*parts))


def pending_call(kind: str = 'question', **fields: Any) -> dict[str, Any]:
    """A call of `task_waiting_with`."""
    return {'id': 'q', 'kind': kind, 'tool': 'ask', 'text': 'Which one?', **fields}


# --- as ADK and kagent ask


def task_asking(*artifacts: Any, **fields: Any) -> dict[str, Any]:
    """A task that waits for its client, without our extension."""
    task = task_with(*artifacts, **fields)
    return {**task, 'status': {**task['status'], 'state': 'TASK_STATE_INPUT_REQUIRED'}}


def adk_call(prefix: str = 'adk', name: str = 'adk_request_confirmation', **data: Any) -> dict[str, Any]:
    """A part with a function call that runs for long."""
    metadata = {f'{prefix}_type': 'function_call', f'{prefix}_is_long_running': True}
    return {'data': {'id': 'confirm', 'name': name, **data}, 'metadata': metadata}


def adk_confirmation(prefix: str = 'adk', call_id: str = 'confirm', **fields: Any) -> dict[str, Any]:
    """A part that asks for the approval of a tool call."""
    call = {'id': 'c', 'name': 'delete_file', 'args': {'path': 'a.txt'}}
    confirmation = {'hint': 'It is the only copy.', 'confirmed': False, **fields}
    return adk_call(prefix, id=call_id, args={'originalFunctionCall': call, 'toolConfirmation': confirmation})


CONFIRMATION_TEXT = 'Dear Ann,\nMay I call delete_file {"path":"a.txt"}?\nIt is the only copy.'
"""The text of a task with a confirmation."""


def adk_response(
    prefix: str = 'adk', call_id: str = 'confirm', name: str = 'adk_request_confirmation', **data: Any
) -> dict[str, Any]:
    """The part that answers a function call."""
    response = {'id': call_id, 'name': name, 'response': data}
    return {'data': response, 'metadata': {f'{prefix}_type': 'function_response'}}


def task_with_confirmations(*parts: Any) -> dict[str, Any]:
    """A task that waits as ADK's do: the draft is an earlier message, and results of tools follow the confirmation."""
    returned: Any = {'data': {'id': 'c', 'response': {}}, 'metadata': {'adk_type': 'function_response'}}
    history = [USER_MESSAGE, agent_message('Dear Ann,'), agent_message(returned)]
    return task_asking(status=agent_message(*parts), history=history)
