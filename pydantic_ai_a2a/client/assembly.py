"""A task as a client knows the task after each event (§4.2).

An answer of n events takes n steps: no step copies the text of the steps before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from fasta2a.schema import Artifact, Message, Part, StreamResponse, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

from ..notebooks import HtmlTask
from ..types import TaskState

__all__ = ('START', 'TaskSize', 'Update', 'task_id_of')


class Update:
    """One event of a task, and the task after the event: `event, task = update`. Later events do not change both."""

    __slots__ = ('_artifacts', '_fields', 'event')

    def __init__(
        self, event: StreamResponse, fields: Task | None = None, artifacts: Mapping[str, _Artifact] | None = None
    ) -> None:
        self.event = event
        """Exactly one of `task`, `message`, `status_update` and `artifact_update`."""
        self._fields = fields
        self._artifacts = artifacts
        """The artifacts instead of the artifacts of `_fields`; None while no event has changed an artifact."""

    @property
    def task(self) -> Task | None:
        """The task assembled from all events so far; None if the agent answers with a message instead of a task.

        Each read joins the text that has come in pieces. `state` and `task_id` are cheaper.
        """
        if self._fields is None or self._artifacts is None:
            return self._fields
        artifacts = [artifact.value for artifact in self._artifacts.values()]
        return cast('Task', HtmlTask(self._fields, artifacts=artifacts))

    @property
    def task_id(self) -> str | None:
        """Id of the task; None without a task."""
        return None if self._fields is None else self._fields['id']

    @property
    def state(self) -> TaskState | None:
        """State of the task; None without a task."""
        return None if self._fields is None else self._fields['status']['state']

    @property
    def outcome(self) -> Task | Message:
        """The task, or the message of an agent that answers without a task."""
        task = self.task
        return cast('Message', self.event.get('message')) if task is None else task

    def __iter__(self) -> Iterator[Any]:
        """Yield the event and the task."""
        yield self.event
        yield self.task

    def followed_by(self, event: StreamResponse) -> Update:
        """Return the update of the next event."""
        if 'artifact_update' in event:
            update = event['artifact_update']
            fields = self._fields or Task(
                id=update['task_id'], context_id=update['context_id'], status={'state': 'working'}
            )
            return Update(event, fields, self._with_artifact(update))
        if 'status_update' in event:
            return Update(event, self._with_status(event['status_update']), self._artifacts)
        if 'task' in event:
            return Update(event, event['task'])
        return Update(event, self._fields, self._artifacts)

    def is_news_after(self, before: Update) -> bool:
        """Return True if the event has changed the task that the update before has."""
        if 'task' in self.event:
            return self.task != before.task
        return self._artifacts is not before._artifacts or self._fields != before._fields

    def _with_status(self, update: TaskStatusUpdateEvent) -> Task:
        task = self._fields or Task(id=update['task_id'], context_id=update['context_id'], status=update['status'])
        changed = cast('Task', HtmlTask(task, status=update['status']))
        if 'metadata' in update:
            changed['metadata'] = {**task.get('metadata', {}), **update['metadata']}
        return changed

    def _with_artifact(self, update: TaskArtifactUpdateEvent) -> dict[str, _Artifact]:
        chunk = update['artifact']
        artifact_id = chunk['artifact_id']
        artifacts = self._all_artifacts()
        before = artifacts.get(artifact_id) if update.get('append') else None
        artifacts[artifact_id] = _Artifact.of(chunk) if before is None else before.appended(chunk)
        return artifacts

    def _all_artifacts(self) -> dict[str, _Artifact]:
        if self._artifacts is not None:
            return {**self._artifacts}
        artifacts = () if self._fields is None else self._fields.get('artifacts', ())
        return {artifact['artifact_id']: _Artifact.of(artifact) for artifact in artifacts}


START = Update(StreamResponse())
"""The state before the first event."""


class _Artifact:
    """An artifact at one moment. The parts are shared with the same artifact at other moments."""

    __slots__ = ('_count', '_fields', '_length', '_parts', '_value')

    def __init__(self, fields: Mapping[str, Any], parts: _Parts) -> None:
        self._fields = fields
        self._parts = parts
        self._count, self._length = parts.count, parts.length
        self._value: Artifact | None = None

    @classmethod
    def of(cls, artifact: Artifact) -> _Artifact:
        """Return an artifact whose parts have come at once."""
        return cls(artifact, _Parts(artifact['parts']))

    @property
    def value(self) -> Artifact:
        """The artifact with its parts."""
        if self._value is None:
            parts = self._parts.until(self._count, self._length)
            self._value = cast('Artifact', {**self._fields, 'parts': parts})
        return self._value

    def appended(self, chunk: Artifact) -> _Artifact:
        """Return the artifact after a chunk."""
        for part in chunk['parts']:
            self._parts.append(part)
        return _Artifact({**self._fields, **chunk} if len(chunk) > 2 else self._fields, self._parts)


class _Parts:
    """The parts of an artifact. They grow at the end only, so that a count of parts and a length name each moment.

    The text of the last part is joined when somebody reads it. A copy for each piece took 20 seconds for 64 MiB in
    pieces of 60 kB.
    """

    __slots__ = ('_parts', '_pieces', 'count', 'length')

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = [*parts]
        self._pieces: list[str] = []
        """Pieces of text that the last part lacks."""
        self.count = len(parts)
        self.length = len(parts[-1].get('text', '')) if parts else 0
        """Characters of text in the last part, with all pieces."""

    def append(self, part: Part) -> None:
        """Append a part. Text becomes the end of the text before, if both parts differ in nothing else."""
        text = part.get('text')
        if text is not None and self._parts and _is_text_like(self._parts[-1], part):
            self._pieces.append(text)
            self.length += len(text)
        else:
            self._join()
            self._parts.append(part)
            self.count += 1
            self.length = len(text or '')

    def until(self, count: int, length: int) -> list[Part]:
        """Return the first parts, the last of them with the first characters of its text."""
        self._join()
        parts = self._parts[:count]
        if parts and 'text' in parts[-1]:
            parts[-1] = cast('Part', {**parts[-1], 'text': parts[-1]['text'][:length]})
        return parts

    def _join(self) -> None:
        if self._pieces:
            last = self._parts[-1]
            self._parts[-1] = cast('Part', {**last, 'text': ''.join((last.get('text', ''), *self._pieces))})
            self._pieces = []


def _is_text_like(part: Part, other: Part) -> bool:
    """Return True for two text parts that differ in their text only."""
    return 'text' in part and (len(part) == len(other) == 1 or {**part, 'text': ''} == {**other, 'text': ''})


class TaskSize:
    """The size of a task that is assembled from events. Content that was replaced does not count."""

    def __init__(self) -> None:
        self._pieces: dict[str, int] = {}
        self.characters = 0
        """Characters of the events from which the task is assembled."""
        self.entries = 0
        """Artifacts and keys of metadata, at most: an entry of the first event and of a later event counts twice."""

    def add(self, event: StreamResponse, size: int) -> None:
        """Count an event of some characters."""
        if 'artifact_update' in event:
            update = event['artifact_update']
            piece = f'artifact {update["artifact"]["artifact_id"]}'
            self._put(piece, size + self._pieces.get(piece, 0) if update.get('append') else size)
        elif 'status_update' in event:
            self._put('status', size)
            for key in event['status_update'].get('metadata', ()):
                self._put(f'metadata {key}', size)
        elif 'task' in event:
            task = event['task']
            self._pieces, self.characters = {'task': size}, size
            self.entries = len(task.get('artifacts', ())) + len(task.get('metadata', ()))

    def _put(self, piece: str, size: int) -> None:
        before = self._pieces.get(piece)
        self.entries += before is None
        self.characters += size - (before or 0)
        self._pieces[piece] = size


def task_id_of(event: StreamResponse) -> str | None:
    """Return the task of an event; None for a message without a task."""
    if 'artifact_update' in event:
        return event['artifact_update']['task_id']
    if 'status_update' in event:
        return event['status_update']['task_id']
    return event['task']['id'] if 'task' in event else None
