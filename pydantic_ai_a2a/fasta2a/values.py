"""A user's FastA2A storage in our terms: the keys of its contexts, and its tasks as stored tasks. Pure; does no I/O.

FastA2A's storage knows no owners. So every owner but the anonymous one has keys of its own for its contexts, and a task
belongs to whoever the key of its context names: no value of one owner is ever found under the key of another, by us or
by a `fasta2a.Worker` that reads the storage itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from fasta2a.schema import Artifact, Message, Task
from pydantic_core import to_json

from ..protocol import stored
from ..types import ANONYMOUS, StoredTask, TaskHeader

__all__ = ('context_key', 'owner_of', 'stored_task')

_SCOPED = 'pydantic_ai_a2a:'


def context_key(owner: str, context_id: str) -> str:
    """Under which name the storage knows an owner's context: for the anonymous owner the plain contextId."""
    if owner == ANONYMOUS.owner and not context_id.startswith(_SCOPED):
        return context_id
    return f'{_SCOPED}{owner}:{context_id}'


def owner_of(key: str) -> tuple[str, str]:
    """The owner and the contextId that a key stands for. An owner has its colons quoted."""
    if not key.startswith(_SCOPED):
        return ANONYMOUS.owner, key
    owner, _, context_id = key.removeprefix(_SCOPED).partition(':')
    return owner, context_id


def stored_task(task: Task, known: StoredTask | None, *, history_length: int | None, artifacts: bool) -> StoredTask:
    """What the storage says of a task, with what only this process's memory knows: event number and partial results.

    Args:
        task: What the storage gave; it is not changed.
        known: The task in memory, with its artifacts so far.
        history_length: How many of its newest messages; None for all.
        artifacts: Whether its artifacts are wanted.
    """
    owner, context_id = owner_of(task['context_id'])
    header = _header(task, owner, context_id, None if known is None else known.header)
    history = _messages(task.get('history', ()), header)
    if history_length is not None:
        history = history[-history_length:] if history_length else []
    bodies = None
    if artifacts:
        bodies = _artifacts(task.get('artifacts', ()), () if known is None else known.artifacts or (), header)
    return StoredTask(header, history if history_length != 0 else None, bodies)


def _header(task: Task, owner: str, context_id: str, known: TaskHeader | None) -> TaskHeader:
    status, metadata = task['status'], task.get('metadata')
    said = status.get('message')
    read = TaskHeader(
        id=task['id'],
        context_id=context_id,
        owner=owner,
        state=status['state'],
        status_at=_ms(status.get('timestamp')),
        status_message=None if said is None else _message(said, task['id'], context_id),
        metadata=to_json(metadata) if metadata else None,
        last_event=0,
    )
    if known is None:
        return read
    read = replace(
        read,
        state=known.state if read.state == 'submitted' else read.state,  # the storage's state for every queued task
        metadata=read.metadata or known.metadata,
        last_event=known.last_event,
        dialect=known.dialect,
        queued=known.queued,
    )
    same = known.state == read.state
    return replace(read, status_at=known.status_at, status_message=known.status_message) if same else read


def _ms(timestamp: str | None) -> int:
    """A time in milliseconds; one without a zone, as FastA2A's own storage writes it, is local."""
    return 0 if timestamp is None else int(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _message(message: Message, task_id: str, context_id: str) -> bytes:
    return stored.dump_message({**message, 'task_id': task_id, 'context_id': context_id})


def _messages(history: Iterable[Message], header: TaskHeader) -> list[bytes]:
    """The history without what is the status message still: the storage has no other place for that."""
    said = None
    if header.status_message is not None:
        said = stored.load_message(header.status_message)['message_id']
    messages = (message for message in history if message['message_id'] != said)
    return [_message(message, header.id, header.context_id) for message in messages]


def _artifacts(artifacts: Iterable[Artifact], known: Sequence[bytes], header: TaskHeader) -> list[bytes]:
    """The newest of each artifact, since a storage only appends; of a live task, what it has streamed so far."""
    newest = {artifact['artifact_id']: stored.dump_artifact(artifact) for artifact in artifacts}
    if header.state == 'working':
        newest |= {stored.load_artifact(body)['artifact_id']: body for body in known}
    return list(newest.values())
