"""A task as a client knows the task after each event (§4.2). No value is changed in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fasta2a.schema import Artifact, Part, StreamResponse, Task, TaskArtifactUpdateEvent

from ..notebooks import HtmlTask

__all__ = ('TaskSize', 'after', 'task_id_of')


def after(task: Task | None, event: StreamResponse) -> Task | None:
    """Return the task after an event; None while only an answer without a task has come."""
    if 'task' in event:
        return event['task']
    if 'status_update' in event:
        update = event['status_update']
        task = task or Task(id=update['task_id'], context_id=update['context_id'], status=update['status'])
        changed = cast('Task', HtmlTask(task, status=update['status']))
        if 'metadata' in update:
            changed['metadata'] = {**task.get('metadata', {}), **update['metadata']}
        return changed
    if 'artifact_update' in event:
        chunk = event['artifact_update']
        task = task or Task(id=chunk['task_id'], context_id=chunk['context_id'], status={'state': 'working'})
        return cast('Task', HtmlTask(task, artifacts=_artifacts(task.get('artifacts', ()), chunk)))
    return task


class TaskSize:
    """The size of a task that is assembled from events."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[str, str], int] = {}
        self.total = 0
        """Characters of the events from which the task is assembled. Content that was replaced does not count."""

    def add(self, event: StreamResponse, size: int) -> None:
        """Count an event of some characters."""
        if 'task' in event:
            self._pieces, self.total = {('task', ''): size}, size
        elif 'status_update' in event:
            self._put(('status', ''), size)
            for key in event['status_update'].get('metadata', ()):
                self._put(('metadata', key), size)
        elif 'artifact_update' in event:
            update = event['artifact_update']
            piece = ('artifact', update['artifact']['artifact_id'])
            self._put(piece, size + self._pieces.get(piece, 0) if update.get('append') else size)

    def _put(self, piece: tuple[str, str], size: int) -> None:
        self.total += size - self._pieces.get(piece, 0)
        self._pieces[piece] = size


def task_id_of(event: StreamResponse) -> str | None:
    """Return the task of an event; None for a message without a task."""
    if 'task' in event:
        return event['task']['id']
    if 'status_update' in event:
        return event['status_update']['task_id']
    return event['artifact_update']['task_id'] if 'artifact_update' in event else None


def _artifacts(artifacts: Sequence[Artifact], update: TaskArtifactUpdateEvent) -> list[Artifact]:
    chunk = update['artifact']
    changed = [*artifacts]
    for n, artifact in enumerate(changed):
        if artifact['artifact_id'] == chunk['artifact_id']:
            changed[n] = _appended(artifact, chunk) if update.get('append') else chunk
            return changed
    return [*changed, chunk]


def _appended(artifact: Artifact, chunk: Artifact) -> Artifact:
    parts = [*artifact['parts']]
    for part in chunk['parts']:
        if parts and _is_text_like(parts[-1], part):
            parts[-1] = cast('Part', {**parts[-1], 'text': parts[-1].get('text', '') + part.get('text', '')})
        else:
            parts.append(part)
    return cast('Artifact', {**artifact, **chunk, 'parts': parts})


def _is_text_like(part: Part, other: Part) -> bool:
    """Return True for two text parts that differ in their text only."""
    return 'text' in part and 'text' in other and {**part, 'text': ''} == {**other, 'text': ''}
