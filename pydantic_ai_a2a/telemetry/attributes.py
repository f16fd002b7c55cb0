"""The attributes of spans and metrics: their names, and their values from params and states."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.util.types import AttributeValue

from ..types.a2a_objects import TaskState
from ..types.operation_params import SendParams

SCOPE = 'pydantic_ai_a2a'
"""Instrumentation scope of spans and metrics, and name of the logger."""
STATE = 'a2a.task.state'
"""The attribute with the state of a task."""
METHOD, TASK = 'a2a.method.name', 'a2a.task.id'
CONTEXT = 'gen_ai.conversation.id'


def state_name(state: TaskState) -> str:
    """Return a state as the attribute has it, which is A2A's name."""
    return f'TASK_STATE_{state.upper().replace("-", "_")}'


def ids_of(params: object) -> dict[str, AttributeValue]:
    """Return the attributes with the ids in the params of an operation."""
    if not isinstance(params, SendParams):
        task_id = getattr(params, 'task_id', None) or getattr(params, 'id', None)
        return present({TASK: task_id, CONTEXT: getattr(params, 'context_id', None)})
    message = params.message
    references = message.get('reference_task_ids')
    of_message = {'a2a.message.id': message['message_id'], 'a2a.message.reference_task_ids': references}
    return present({**of_message, TASK: message.get('task_id'), CONTEXT: message.get('context_id')})


def present(attributes: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    """Return the attributes that are not empty."""
    return {name: value for name, value in attributes.items() if value}
