"""The artifacts of referenced tasks of the same caller, for the agent's model to read.

The artifacts are read at the start of the run. Tasks that are hidden from the caller, unknown or erased are left out
alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from pydantic_ai.messages import UserContent

from ...errors import A2AError
from ...types.a2a_objects import Message, Part
from ...wire.protocol import stored_values
from ..conversion.accepted_content import Accepts
from ..conversion.user_prompts import user_prompt
from ..store.ports import TaskReader

Refer: TypeAlias = Callable[[Iterable[str], TaskReader, str], Awaitable[list[UserContent]]]
"""Reads the artifacts of tasks of an owner."""

_TOO_LARGE = '(An artifact is left out: it is too large.)'
_NOT_TAKEN = '(A part is left out: it is of a kind that cannot be read here.)'


async def read_referenced(
    task_ids: Iterable[str], reader: TaskReader, owner: str, *, accepts: Accepts, size: int
) -> list[UserContent]:
    """Return the artifacts of tasks, as content in front of a prompt.

    Failed tasks are left out, because their artifacts may be half an answer.

    Args:
        task_ids: The tasks.
        reader: Reads the tasks.
        owner: Owner of the tasks.
        accepts: Media types accepted by the agent's model.
        size: Maximum bytes of all artifacts together, as JSON. Further artifacts are left out.
    """
    content: list[UserContent] = []
    for task_id in dict.fromkeys(task_ids):
        task = await reader.load(task_id, owner, history_length=0)
        if task is None or task.header.state == 'failed' or not task.artifacts:
            continue
        content.append(f'-----BEGIN ARTIFACTS task="{task_id}"-----')
        for body in task.artifacts:
            size -= len(body)
            content += [_TOO_LARGE] if size < 0 else _content(stored_values.load_artifact(body)['parts'], accepts)
        content.append(f'-----END ARTIFACTS task="{task_id}"-----')
    return content


def _content(parts: Sequence[Part], accepts: Accepts) -> list[UserContent]:
    content: list[UserContent] = []
    for part in parts:
        try:
            read = user_prompt(Message(role='user', parts=[part], message_id=''), accepts)
        except A2AError:
            read = _NOT_TAKEN
        content += [read] if isinstance(read, str) else read
    return content
