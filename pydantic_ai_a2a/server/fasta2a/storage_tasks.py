"""Conversion of a user's FastA2A storage: the keys of its contexts, and its tasks as stored tasks.

FastA2A's storage has no owners. Therefore every owner except the anonymous one has its own keys for contexts, and the
key of its context names the owner of a task. Neither this package nor a `fasta2a.Worker` that reads the storage finds
values of one owner under the key of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from fasta2a.schema import Artifact, Message, Task
from pydantic_core import to_json

from ...types.callers import ANONYMOUS
from ...types.stored_tasks import StoredTask, TaskHeader
from ...wire.protocol import stored_values

_SCOPED = 'pydantic_ai_a2a:'


def context_key(owner: str, context_id: str) -> str:
    """Return the storage's key of an owner's context: the plain contextId for the anonymous owner."""
    if owner == ANONYMOUS.owner and not context_id.startswith(_SCOPED):
        return context_id
    return f'{_SCOPED}{owner}:{context_id}'


def owner_of(key: str) -> tuple[str, str]:
    """Return the owner and the contextId of a key. Colons in an owner are quoted."""
    if not key.startswith(_SCOPED):
        return ANONYMOUS.owner, key
    owner, _, context_id = key.removeprefix(_SCOPED).partition(':')
    return owner, context_id


def stored_task(
    task: Task, in_memory: StoredTask | None, *, history_length: int | None = None, artifacts: bool = True
) -> StoredTask:
    """Return a task of the storage, with the event number and partial results from this process's memory.

    Args:
        task: The task from the storage, not changed.
        in_memory: The task in memory, with its artifacts so far.
        history_length: Number of newest messages; None for all.
        artifacts: True to include the artifacts.
    """
    header = storage_header(task, None if in_memory is None else in_memory.header)
    history = _messages(task.get('history', ()), header)
    if history_length is not None:
        history = history[-history_length:] if history_length else []
    bodies = None
    if artifacts:
        bodies = _artifacts(task.get('artifacts', ()), () if in_memory is None else in_memory.artifacts or (), header)
    return StoredTask(header, history if history_length != 0 else None, bodies)


def storage_header(task: Task, in_memory: TaskHeader | None) -> TaskHeader:
    """Return the header of a task of the storage, with the parts that only this process's memory has."""
    owner, context_id = owner_of(task['context_id'])
    status, metadata = task['status'], task.get('metadata')
    message = status.get('message')
    read = TaskHeader(
        id=task['id'],
        context_id=context_id,
        owner=owner,
        state=status['state'],
        status_at=_ms(status.get('timestamp')),
        status_message=None if message is None else _message(message, task['id'], context_id),
        metadata=to_json(metadata) if metadata else None,
        last_event=0,
    )
    if in_memory is None:
        return read
    read = replace(
        read,
        state=in_memory.state if read.state == 'submitted' else read.state,  # the storage's state for every queued task
        metadata=read.metadata or in_memory.metadata,
        last_event=in_memory.last_event,
        dialect=in_memory.dialect,
        queued=in_memory.queued,
    )
    same = in_memory.state == read.state
    return replace(read, status_at=in_memory.status_at, status_message=in_memory.status_message) if same else read


def _ms(timestamp: str | None) -> int:
    """Return a time in milliseconds. A time without a zone is local, as in FastA2A's own storage."""
    return 0 if timestamp is None else int(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _message(message: Message, task_id: str, context_id: str) -> bytes:
    return stored_values.dump_message({**message, 'task_id': task_id, 'context_id': context_id})


def _messages(history: Iterable[Message], header: TaskHeader) -> list[bytes]:
    """Return the history without the status message, which the storage has no other place for."""
    status_id = None
    if header.status_message is not None:
        status_id = stored_values.load_message(header.status_message)['message_id']
    messages = (message for message in history if message['message_id'] != status_id)
    return [_message(message, header.id, header.context_id) for message in messages]


def _artifacts(artifacts: Iterable[Artifact], in_memory: Sequence[bytes], header: TaskHeader) -> list[bytes]:
    """Return the newest version of each artifact, since a storage only appends; of a live task, the streamed parts."""
    newest = {artifact['artifact_id']: stored_values.dump_artifact(artifact) for artifact in artifacts}
    if header.state == 'working':
        newest |= {stored_values.load_artifact(body)['artifact_id']: body for body in in_memory}
    return list(newest.values())
