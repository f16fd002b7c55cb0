"""A task as a client knows the task after each event (§4.2).

An answer of n events takes n steps: no step copies the text of the steps before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, cast

from typing_extensions import TypeVar

from ..notebooks import HtmlTask
from ..types.a2a_objects import (
    Artifact,
    Message,
    Part,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from .results import RemoteResult

OutputT = TypeVar('OutputT', default=Any)

_STEPS = ('thinking', 'tool')
"""Progress of an agent of this package: status messages that its history does not have."""


class Update(Generic[OutputT]):
    """One event of a task, and the task after the event: `event, task = update`. Later events do not change both."""

    __slots__ = ('_artifacts', '_context_id', '_count', '_fields', '_messages', 'event', 'result_of')

    result_of: Callable[[Task | Message], RemoteResult[OutputT]]
    """Makes the result of a task or message."""

    def __init__(
        self,
        event: StreamResponse,
        fields: Task | None = None,
        artifacts: Mapping[str, _Pieces] | None = None,
        messages: _TaskMessages | None = None,
        count: int = 0,
        *,
        context_id: str | None = None,
    ) -> None:
        self.event = event
        """Exactly one of `task`, `message`, `status_update` and `artifact_update`."""
        self._fields = fields
        self._artifacts = artifacts
        """The artifacts instead of the artifacts of `_fields`; None while no event has changed an artifact."""
        self._messages = messages
        """The history instead of the history of `_fields`; None while no event has brought a message."""
        self._count = count
        """Messages that have arrived until the event."""
        self._context_id = context_id
        """Conversation of the messages without a task."""

    @property
    def task(self) -> Task | None:
        """The task assembled from all events so far; None if the agent answers with a message instead of a task.

        Each read joins the text that has come in pieces. `state` and `task_id` are cheaper.
        """
        if self._fields is None:
            return None
        changed: dict[str, Any] = {}
        if self._artifacts is not None:
            changed['artifacts'] = [artifact.value for artifact in self._artifacts.values()]
        if self._messages is not None:
            changed['history'] = history = self._messages.until(self._count)
            if history[-1:] == [self._fields['status'].get('message')]:
                del history[-1]  # enters the history when the status changes, as in the task of the server
        task = cast('Task', HtmlTask(self._fields, **changed)) if changed else self._fields
        if 'history' in task and 'status_update' in self.event and self.state == 'completed':
            return cast('Task', HtmlTask(task, history=[*task['history'], *_unsent_answers(task, task['history'])]))
        return task

    @property
    def task_id(self) -> str | None:
        """Id of the task; None without a task."""
        return None if self._fields is None else self._fields['id']

    @property
    def context_id(self) -> str | None:
        """Id of the conversation; None for a message without one."""
        return self._context_id if self._fields is None else self._fields.get('context_id')

    @property
    def state(self) -> TaskState | None:
        """State of the task; None without a task."""
        return None if self._fields is None else self._fields['status']['state']

    @property
    def head(self) -> Task | Message:
        """The outcome without what has come in pieces, such as text, so that no read joins anything."""
        if self._fields is not None:
            return self._fields
        message = cast('Message', self.event.get('message'))
        return message if self._context_id is None else {**message, 'context_id': self._context_id}

    @property
    def outcome(self) -> Task | Message:
        """The task, or the message of an agent that answers without a task. Pieces of a message are joined."""
        if (task := self.task) is not None:
            return task
        assert self._messages is not None, 'an event without a task is a message'
        return self._messages.until(self._count)[-1]

    @property
    def result(self) -> RemoteResult[OutputT]:
        """The task so far, as `A2AClient.send` returns it. Each read joins the text that has come in pieces."""
        return self.result_of(self.outcome)

    @property
    def text(self) -> str:
        """New text of the event: of a status, an artifact, a thought or a message. Empty for a whole task."""
        event = self.event
        if 'artifact_update' in event:
            parts = event['artifact_update']['artifact']['parts']
        else:
            status = event['status_update']['status'] if 'status_update' in event else event
            parts = [] if (message := status.get('message')) is None else message['parts']
        return ''.join(part.get('text', '') for part in parts)

    def __repr__(self) -> str:
        """Return the kind of the event, the state of the task, and the new text."""
        text = f', text={self.text!r}' if self.text else ''
        return f'Update({next(iter(self.event), None)}, state={self.state!r}{text})'

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
            return Update(event, fields, self._with_artifact(update), self._messages, self._count)
        if 'status_update' in event:
            fields = self._with_status(event['status_update'])
            message = event['status_update']['status'].get('message')
            if message is not None and message.get('metadata', {}).get('progress') not in _STEPS:
                return self._with_message(event, fields, message)
            return Update(event, fields, self._artifacts, self._messages, self._count)
        if 'task' in event:
            # Some agents send tasks without the artifacts and messages that they have streamed.
            task = event['task']
            artifacts = None if 'artifacts' in task else self._all_artifacts() or None
            messages = None if 'history' in task else self._messages
            return Update(event, task, artifacts, messages, self._count)
        return self._with_message(event, self._fields, cast('Message', event.get('message')))

    def _with_message(self, event: StreamResponse, fields: Task | None, message: Message) -> Update:
        history = [] if self._fields is None else self._fields.get('history', [])
        messages = self._messages or _TaskMessages(history)
        count = messages.append(message, is_piece='message' in event)
        context_id = message.get('context_id') or self._context_id
        return Update(event, fields, self._artifacts, messages, count, context_id=context_id)

    def is_news_after(self, before: Update) -> bool:
        """Return True if the event has changed the task that the update before has."""
        # Without a comparison of texts, unless the event itself has them.
        is_changed = self._artifacts != before._artifacts or self._messages is not before._messages
        if 'task' in self.event and is_changed:
            return self.task != before.task
        return is_changed or self._count != before._count or self._fields != before._fields

    def _with_status(self, update: TaskStatusUpdateEvent) -> Task:
        task = self._fields or Task(id=update['task_id'], context_id=update['context_id'], status=update['status'])
        changed = cast('Task', HtmlTask(task, status=update['status']))
        if 'metadata' in update:
            changed['metadata'] = {**task.get('metadata', {}), **update['metadata']}
        return changed

    def _with_artifact(self, update: TaskArtifactUpdateEvent) -> dict[str, _Pieces]:
        chunk = update['artifact']
        artifact_id = chunk['artifact_id']
        artifacts = self._all_artifacts()
        before = artifacts.get(artifact_id) if update.get('append') else None
        artifacts[artifact_id] = _Pieces.of(chunk) if before is None else before.appended(chunk)
        return artifacts

    def _all_artifacts(self) -> dict[str, _Pieces]:
        if self._artifacts is not None:
            return {**self._artifacts}
        artifacts = () if self._fields is None else self._fields.get('artifacts', ())
        return {artifact['artifact_id']: _Pieces.of(artifact) for artifact in artifacts}


START = Update(StreamResponse())
"""The state before the first event."""


class _TaskMessages:
    """The messages of a task, in the order of their arrival. Each moment is a count of messages.

    A message in the stream of a task is a piece of an answer: it continues the message with its id, else the piece
    before it with the same metadata. A status message with the id of another one continues or replaces it.
    """

    def __init__(self, history: Sequence[Message]) -> None:
        self._arrived = [(message, False) for message in history]
        self._read = 0
        self._entries: dict[str, _Pieces] = {}
        self._values: dict[str, Message] = {}
        self._piece = ''
        """Key of the last piece."""

    def append(self, message: Message, *, is_piece: bool) -> int:
        """Append a message; return the number of messages that have arrived."""
        self._arrived.append((message, is_piece))
        return len(self._arrived)

    def until(self, count: int) -> list[Message]:
        """Return the messages after a number of arrivals."""
        if count < self._read:
            earlier = _TaskMessages([])
            earlier._arrived = self._arrived[:count]
            return earlier.until(count)
        changed = {self._add(*self._arrived[n]): None for n in range(self._read, count)}
        self._read = count
        self._values |= {key: self._entries[key].value for key in changed}
        return [*self._values.values()]

    def _add(self, message: Message, is_piece: bool) -> str:
        key = message['message_id'] or f'\n{len(self._entries)}'
        if is_piece:
            last = self._entries.get(self._piece)
            if key not in self._entries and last is not None and last.has_metadata_of(message):
                key = self._piece
            self._piece = key
        entry = self._entries.get(key)
        is_whole = entry is None or (not is_piece and entry.begins(message))
        self._entries[key] = _Pieces.of(message) if entry is None or is_whole else entry.appended(message)
        return key


class _Pieces:
    """An artifact or a message at one moment. The parts are shared with the same artifact at other moments."""

    __slots__ = ('_count', '_fields', '_length', '_parts', '_value')

    def __init__(self, fields: Mapping[str, Any], parts: _Parts) -> None:
        self._fields = fields
        self._parts = parts
        self._count, self._length = parts.count, parts.length
        self._value: Any = None

    @classmethod
    def of(cls, whole: Artifact | Message) -> _Pieces:
        """Return an artifact or a message whose parts have come at once."""
        return cls(whole, _Parts(whole['parts']))

    def has_metadata_of(self, message: Message) -> bool:
        """Return True if a message has the same metadata."""
        return self._fields.get('metadata') == message.get('metadata')

    def begins(self, message: Message) -> bool:
        """Return True if the text of a message begins with the text of this one."""
        text = ''.join(part.get('text', '') for part in message['parts'])
        return len(text) >= self._length and text.startswith(
            ''.join(part.get('text', '') for part in self.value['parts'])
        )

    @property
    def value(self) -> Any:
        """The artifact or the message with its parts."""
        if self._value is None:
            self._value = {**self._fields, 'parts': self._parts.until(self._count, self._length)}
        return self._value

    def appended(self, chunk: Artifact | Message) -> _Pieces:
        """Return the artifact or the message after a chunk."""
        for part in chunk['parts']:
            self._parts.append(part)
        return _Pieces({**self._fields, **chunk} if len(chunk) > 2 else self._fields, self._parts)


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


def _unsent_answers(task: Task, history: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages that agents of this package add to the history of a task for an answer that is one text.

    Their streams have only the artifact, because clients of other frameworks would show the answer twice.
    """
    sent = {message['message_id'] for message in history}
    for artifact in task.get('artifacts', ()):
        turn = artifact['artifact_id'].removesuffix('.result')
        texts = [n for n, part in enumerate(artifact['parts']) if 'text' in part]
        is_own = artifact.get('name') == 'result' and re.fullmatch(rf'{re.escape(task["id"])}\.\d+', turn)
        if is_own and texts == [0] and f'{turn}.answer' not in sent:
            message = Message(role='agent', message_id=f'{turn}.answer', parts=artifact['parts'][:1])
            yield {**message, 'context_id': task['context_id'], 'task_id': task['id']}


def _is_text_like(part: Part, other: Part) -> bool:
    """Return True for two text parts that differ in their text only."""
    return 'text' in part and (len(part) == len(other) == 1 or {**part, 'text': ''} == {**other, 'text': ''})


def task_id_of(event: StreamResponse) -> str | None:
    """Return the task of an event; None for a message without a task."""
    if 'message' in event:
        return event['message'].get('task_id')
    if 'artifact_update' in event:
        return event['artifact_update']['task_id']
    if 'status_update' in event:
        return event['status_update']['task_id']
    return event['task']['id'] if 'task' in event else None
