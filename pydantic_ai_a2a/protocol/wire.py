"""Tasks and events as JSON values of A2A 1.0, for people and files."""

from __future__ import annotations

from typing import Any

from fasta2a.schema import StreamResponse, Task, TaskStatus
from pydantic_core import from_json

from .stored import STATE_NAMES, dump_artifact, dump_message

__all__ = ('event_json', 'task_json')


def task_json(task: Task) -> dict[str, Any]:
    """Return a task (§4.1.1)."""
    wire: dict[str, Any] = {'id': task['id'], 'contextId': task['context_id'], 'status': _status(task['status'])}
    if artifacts := task.get('artifacts'):
        wire['artifacts'] = [from_json(dump_artifact(artifact)) for artifact in artifacts]
    if history := task.get('history'):
        wire['history'] = [from_json(dump_message(message)) for message in history]
    return wire | _metadata(task)


def event_json(event: StreamResponse) -> dict[str, Any]:
    """Return an event of a stream (§3.2.3)."""
    if 'task' in event:
        return {'task': task_json(event['task'])}
    if 'message' in event:
        return {'message': from_json(dump_message(event['message']))}
    if 'status_update' in event:
        update = event['status_update']
        ids = {'taskId': update['task_id'], 'contextId': update['context_id']}
        return {'statusUpdate': {**ids, 'status': _status(update['status']), **_metadata(update)}}
    assert 'artifact_update' in event
    chunk = event['artifact_update']
    ids = {'taskId': chunk['task_id'], 'contextId': chunk['context_id']}
    flags = {name: True for name, key in (('append', 'append'), ('lastChunk', 'last_chunk')) if chunk.get(key)}
    artifact = from_json(dump_artifact(chunk['artifact']))
    return {'artifactUpdate': {**ids, 'artifact': artifact, **flags, **_metadata(chunk)}}


def _status(status: TaskStatus) -> dict[str, Any]:
    wire: dict[str, Any] = {'state': from_json(STATE_NAMES[status['state']])}
    if timestamp := status.get('timestamp'):
        wire['timestamp'] = timestamp
    if message := status.get('message'):
        wire['message'] = from_json(dump_message(message))
    return wire


def _metadata(value: Any) -> dict[str, Any]:
    return {'metadata': value['metadata']} if value.get('metadata') else {}
