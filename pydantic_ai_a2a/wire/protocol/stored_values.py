"""Tasks, messages, artifacts and events as values: to their stored form, and back.

`json_of` returns the stored form of a task, a message or an event as JSON values, for people and files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, cast

from pydantic_core import from_json

from ...json_values import dump_json
from ...notebooks import HtmlTask
from ...types.a2a_objects import Artifact, Message, Part, StreamResponse, Task, TaskStatus
from ...types.stored_tasks import StoredTask, TaskHeader
from .stored import STATE_NAMES, STATES, timestamp

# Messages, artifacts and tasks: the vocabulary to JSON and back.
_WIRE_NAMES = {
    'artifact_id': 'artifactId',
    'context_id': 'contextId',
    'media_type': 'mediaType',
    'message_id': 'messageId',
    'reference_task_ids': 'referenceTaskIds',
    'task_id': 'taskId',
}
_NAMES = {wire: name for name, wire in _WIRE_NAMES.items()}
_ROLE_NAMES = {'user': 'ROLE_USER', 'agent': 'ROLE_AGENT'}
ROLES = {wire: role for role, wire in _ROLE_NAMES.items()}
"""The roles by their names as stored."""


def dump_parts(parts: Iterable[Part]) -> bytes:
    """Write parts as a JSON array. NaN and infinity become null, as in Pydantic."""
    return dump_json([_renamed(part, _WIRE_NAMES) for part in parts], inf_nan_mode='null')


def dump_message(message: Message) -> bytes:
    """Write a message."""
    wire = _renamed(message, _WIRE_NAMES)
    wire |= {'role': _ROLE_NAMES[message['role']], 'parts': wire_parts(message['parts'])}
    return dump_json(wire, inf_nan_mode='null')


def dump_artifact(artifact: Artifact) -> bytes:
    """Write an artifact."""
    wire = _renamed(artifact, _WIRE_NAMES)
    wire['parts'] = [_renamed(part, _WIRE_NAMES) for part in artifact['parts']]
    return dump_json(wire, inf_nan_mode='null')


def load_message(body: bytes) -> Message:
    """Read the JSON of `dump_message`."""
    message: Any = _load(body)
    message['role'] = ROLES[message['role']]
    return message


def load_artifact(body: bytes) -> Artifact:
    """Read the JSON of `dump_artifact`."""
    return cast('Artifact', _load(body))


def load_task(task: StoredTask) -> Task:
    """Return a stored task as a value."""
    header = task.header
    status = TaskStatus(state=header.state, timestamp=timestamp(header.status_at).decode().strip('"'))
    if header.status_message is not None:
        status['message'] = load_message(header.status_message)
    loaded = Task(id=header.id, context_id=header.context_id, status=status)
    if task.artifacts:
        loaded['artifacts'] = [load_artifact(artifact) for artifact in task.artifacts]
    if task.history:
        loaded['history'] = [load_message(message) for message in task.history]
    if header.metadata is not None:
        loaded['metadata'] = from_json(header.metadata)
    return cast('Task', HtmlTask(loaded))


def task_at(update: bytes, task: StoredTask | None, owner: str) -> StoredTask:
    """Return a task with the status of a `statusUpdate` payload, and with its current messages and artifacts.

    Args:
        update: The payload.
        task: The task now; None if it was deleted.
        owner: Owner of the task.
    """
    wire: dict[str, Any] = from_json(update)['statusUpdate']
    status: dict[str, Any] = wire['status']
    at = datetime.fromisoformat(status['timestamp'])
    message = status.get('message')
    header = TaskHeader(
        id=wire['taskId'],
        context_id=wire['contextId'],
        owner=owner,
        state=STATES[status['state']],
        status_at=round(at.timestamp() * 1000),
        status_message=None if message is None else dump_json(message),
        metadata=None if task is None else task.header.metadata,
        last_event=0,
    )
    return StoredTask(header, None, None) if task is None else task._replace(header=header)


def json_of(value: Task | Message | StreamResponse) -> dict[str, Any]:
    """Return a task (§4.1.1), a message (§4.1.4), or an event of a stream (§3.2.3)."""
    if 'message_id' in value:
        return from_json(dump_message(value))
    if 'status' in value:
        return _task(value)
    if 'task' in value:
        return {'task': _task(value['task'])}
    if 'message' in value:
        return {'message': from_json(dump_message(value['message']))}
    if 'status_update' in value:
        update = value['status_update']
        ids = {'taskId': update['task_id'], 'contextId': update['context_id']}
        return {'statusUpdate': {**ids, 'status': _status(update['status']), **_metadata(update)}}
    assert 'artifact_update' in value
    chunk = value['artifact_update']
    ids = {'taskId': chunk['task_id'], 'contextId': chunk['context_id']}
    flags = {name: True for name, key in (('append', 'append'), ('lastChunk', 'last_chunk')) if chunk.get(key)}
    artifact = from_json(dump_artifact(chunk['artifact']))
    return {'artifactUpdate': {**ids, 'artifact': artifact, **flags, **_metadata(chunk)}}


def _renamed(item: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, value in item.items():
        if value is not None or key == 'data':
            renamed[names[key] if key in names else key] = value  # noqa: SIM401 - a call for each field
    return renamed


def wire_parts(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return parts as JSON values."""
    return [_renamed(part, _WIRE_NAMES) for part in parts]


def _load(body: bytes) -> dict[str, Any]:
    # The cache of strings is for repeated strings, and would keep the ids of the last thousands of tasks.
    item = _renamed(from_json(body, cache_strings='keys'), _NAMES)
    item['parts'] = [_renamed(part, _NAMES) for part in item['parts']]
    return item


def _task(task: Task) -> dict[str, Any]:
    wire: dict[str, Any] = {'id': task['id'], 'contextId': task['context_id'], 'status': _status(task['status'])}
    if artifacts := task.get('artifacts'):
        wire['artifacts'] = [from_json(dump_artifact(artifact)) for artifact in artifacts]
    if history := task.get('history'):
        wire['history'] = [from_json(dump_message(message)) for message in history]
    return wire | _metadata(task)


def _status(status: TaskStatus) -> dict[str, Any]:
    wire: dict[str, Any] = {'state': from_json(STATE_NAMES[status['state']])}
    if timestamp := status.get('timestamp'):
        wire['timestamp'] = timestamp
    if message := status.get('message'):
        wire['message'] = from_json(dump_message(message))
    return wire


def _metadata(value: Any) -> dict[str, Any]:
    return {'metadata': value['metadata']} if value.get('metadata') else {}
