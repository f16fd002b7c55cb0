"""The stored form: A2A 1.0 JSON, built by joining bytes.

1.0 clients are sent the stored bytes, so a look-up or an event needs no JSON pass; other versions' codecs decode the
bytes. `pydantic_core` writes the JSON without raw line breaks, so SSE can carry it unchanged.

`json_of` returns the same JSON of a task, a message or an event as values, for people and files.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from os import urandom
from time import time_ns
from typing import Any, cast

from pydantic_core import from_json

from ..notebooks import HtmlTask
from ..types import (
    PARTIAL,
    Artifact,
    Message,
    Part,
    StoredTask,
    StreamResponse,
    Task,
    TaskHeader,
    TaskState,
    TaskStatus,
    dump_json,
)

STATE_NAMES: dict[TaskState, bytes] = {
    'submitted': b'"TASK_STATE_SUBMITTED"',
    'working': b'"TASK_STATE_WORKING"',
    'completed': b'"TASK_STATE_COMPLETED"',
    'failed': b'"TASK_STATE_FAILED"',
    'canceled': b'"TASK_STATE_CANCELED"',
    'input-required': b'"TASK_STATE_INPUT_REQUIRED"',
    'rejected': b'"TASK_STATE_REJECTED"',
    'auth-required': b'"TASK_STATE_AUTH_REQUIRED"',
}
"""The states as JSON strings (§4.1.3)."""
STATES: dict[str, TaskState] = {name.decode().strip('"'): state for state, name in STATE_NAMES.items()}
"""The states by their names as stored."""

PLAIN = 'text/plain'
"""The media type of text without another one."""

_SAME = ('role', 'context_id', 'task_id', 'reference_task_ids', 'metadata', 'extensions')
"""Members of a message in the digest, besides the parts."""
_PLAIN = ['user', *[None] * 8]
"""The JSON of common members and request values, written once."""
_PLAIN_JSON = json.dumps(_PLAIN).encode()

# Live text: the events whose form depends on the reader of the stream. They are the pieces of the answer, its notes,
# and the whole text at the end of the pieces. They are A2A like all events, but with the ids of the task behind the
# artifact or the status instead of before it: so they are found without parsing.
NOTE = b'{"statusUpdate":{"status":'
"""The beginning of a `note`."""
_LIVE = (b'{"artifactUpdate":{"artifact":', NOTE)
_LAST = b',"lastChunk":true}}'
_PARTS = b'"parts":['

_PIECE = 60_000
"""Bytes of joined values: with the separators less than 64 kB, which is one send."""
_UNCOPIED = 32_768
"""Bytes from which a value is a piece of its own."""

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


def new_id() -> str:
    """Return an id with 80 random bits. The id begins with the time: an index of ids grows at one end."""
    return f'{time_ns() // 1_000_000:012x}{urandom(10).hex()}'


def time_of(identifier: str) -> float:
    """Return the time at which `new_id` made an id, in seconds since the epoch."""
    return int(identifier[:12], 16) / 1000


@lru_cache(maxsize=16)
def _second(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime('%Y-%m-%dT%H:%M:%S').encode()


@lru_cache(maxsize=16)
def timestamp(ms: int) -> bytes:
    """Write a time as a JSON string: UTC with `Z`, in milliseconds (§5.6.1)."""
    return b'"%s.%03dZ"' % (_second(ms // 1000), ms % 1000)


def text_parts(text: str, media_type: str = PLAIN) -> bytes:
    """Write the parts of a message of the agent: one text part."""
    return b''.join((b'[{"text":', dump_json(text), b',"mediaType":', dump_json(media_type), b'}]'))


def message(message_id: str, role: bytes, parts: bytes, rest: bytes = b'') -> bytes:
    """Write a message. The ids of its task are part of `rest`, or `with_ids` adds the ids.

    Args:
        message_id: Id of the message.
        role: `b'ROLE_USER'` or `b'ROLE_AGENT'`.
        parts: The parts as a JSON array.
        rest: More members, as JSON, each with a comma before it.
    """
    # One `join`: each `+` would copy the parts, which may have megabytes.
    return b''.join((b'{"messageId":', dump_json(message_id), b',"role":"', role, b'","parts":', parts, rest, b'}'))


def with_ids(body: bytes, task_id: str, context_id: str) -> bytes:
    """Add the ids of its task to a message."""
    return b''.join((memoryview(body)[:-1], b',', ids(task_id, context_id), b'}'))


def digest(message: Mapping[str, Any], parts: bytes, *rest: object) -> bytes:
    """Return a digest of a message. A repeated message has the same id and the same digest.

    Args:
        message: The message of the client.
        parts: The parts, from `dump_parts`.
        rest: Further values of the request, as JSON values. Empty values are the same as None.
    """
    for part in message['parts']:
        if 'data' in part or 'metadata' in part:  # clients may send the keys in another order
            parts = json.dumps(_wire_parts(message['parts']), sort_keys=True).encode()
            break
    members: list[object] = []
    for name in _SAME:
        members += ((message[name] or None) if name in message else None,)  # `get` and `append` cost a call for each
    for value in rest:
        members += (value or None,)
    plain = members == _PLAIN
    return sha256(parts + (_PLAIN_JSON if plain else json.dumps(members, sort_keys=True).encode())).digest()


def status(state: TaskState, at: int, status_message: bytes | None) -> bytes:
    """Write a `TaskStatus` (§4.1.2)."""
    head = b'{"state":' + STATE_NAMES[state] + b',"timestamp":' + timestamp(at)
    return head + (b'}' if status_message is None else b',"message":' + status_message + b'}')


@lru_cache(maxsize=256)
def ids(task_id: str, context_id: str) -> bytes:
    """Write the ids of a task as members of an object."""
    return b'"taskId":' + dump_json(task_id) + b',"contextId":' + dump_json(context_id)


def status_update(task_id: str, context_id: str, task_status: bytes, metadata: bytes | None = None) -> bytes:
    """Write a `StreamResponse` with a status update (§4.2.1)."""
    tail = b'}}' if metadata is None else b',"metadata":' + metadata + b'}}'
    return b'{"statusUpdate":{' + ids(task_id, context_id) + b',"status":' + task_status + tail


def artifact_update(
    task_id: str, context_id: str, artifact: bytes, *, append: bool = False, last: bool = True
) -> bytes:
    """Write a `StreamResponse` with a chunk, or with a whole artifact in place of the streamed chunks."""
    tail = (b',"append":true' if append else b'') + (_LAST if last else b'}}')
    return b''.join((b'{"artifactUpdate":{', ids(task_id, context_id), b',"artifact":', artifact, tail))


def piece(update: bytes) -> tuple[bool, bool]:
    """Return for an artifact update if it is a whole artifact, and if it is the artifact's last chunk."""
    last = update.endswith(_LAST)
    return last and not update.endswith(b',"append":true,"lastChunk":true}}'), last


def is_live(update: bytes) -> bool:
    """Return True for live text: a piece of an answer, the whole text after its pieces, or a note."""
    return update.startswith(_LIVE)


def is_note(update: bytes) -> bool:
    """Return True for the live text that is a note."""
    return update.startswith(NOTE)


def ends_pieces(update: bytes) -> bool:
    """Return True for the live text that ends the pieces of an answer with the whole text."""
    return update.endswith(_LAST)


def note(task_id: str, context_id: str, task_status: bytes) -> bytes:
    """Write a `StreamResponse` with a status update for readers of live text."""
    return b'{"statusUpdate":{"status":' + task_status + b',' + ids(task_id, context_id) + b'}}'


def whole_text(task_id: str, context_id: str, artifact: bytes) -> bytes:
    """Write a `StreamResponse` with a text artifact whose pieces readers of live text have."""
    return b''.join((b'{"artifactUpdate":{"artifact":', artifact, b',', ids(task_id, context_id), _LAST))


def without_text(update: bytes) -> bytes:
    """Return a `whole_text` as an empty last piece, for readers that have the pieces."""
    # No string within the artifact or the ids holds these bytes: a quote in a JSON string has a backslash before it.
    begin, end = update.index(_PARTS), update.rindex(b',"taskId":')
    found = update.rfind(b',"mediaType":', begin, end)
    media_type = b',"mediaType":"text/plain"}]}' if found < 0 else update[found:end]
    tail = update[end : -len(_LAST)] + b',"append":true' + _LAST
    return update[:begin] + _PARTS + b'{"text":""' + media_type + tail


class TextArtifact:
    """Writes the pieces of one text artifact from prebuilt bytes, because there may be thousands of pieces."""

    __slots__ = ('_head', '_tail')

    def __init__(self, task_id: str, context_id: str, artifact_id: str, name: str, media_type: str = PLAIN) -> None:
        names = b'"artifactId":' + dump_json(artifact_id) + b',"name":' + dump_json(name)
        self._head = b'{"artifactUpdate":{"artifact":{' + names + b',"parts":[{"text":'
        self._tail = b',"mediaType":' + dump_json(media_type) + b'}]},' + ids(task_id, context_id)

    def piece(self, text: str, *, first: bool) -> bytes:
        """Write a `StreamResponse` with one piece (§4.2.2): the first replaces, later pieces append."""
        return self._head + dump_json(text) + self._tail + (b'}}' if first else b',"append":true}}')


def joined(values: Sequence[bytes], separator: bytes) -> list[bytes]:
    """Join values with a separator, in pieces of about 60 kB. Long values are not copied.

    Thousands of short values take no calls of Python for each value.
    """
    ends = [*accumulate(map(len, values))]
    pieces: list[bytes] = []
    begin = size = 0
    while begin < len(values):
        end = max(begin + 1, bisect_right(ends, size + _PIECE))
        if end == begin + 1 and ends[begin] - size >= _UNCOPIED:
            pieces += (separator, values[begin]) if begin else (values[begin],)
        else:
            pieces.append(separator.join([b'', *values[begin:end]] if begin else values[:end]))
        begin, size = end, ends[end - 1]
    return pieces


def assemble(artifacts: Iterable[bytes], updates: Iterable[bytes], *, partial: bool = True) -> list[bytes]:
    """Return the artifacts after `artifactUpdate` payloads, with adjacent text chunks joined (§4.2.2).

    A note shows that the pieces before it were no answer: the artifact is as it was before them.

    Args:
        artifacts: The stored artifacts.
        updates: The payloads, with the notes.
        partial: False to leave out artifacts with partial data, of runs that have ended without a result.
    """
    parts: dict[str, dict[str, Any]] = {}
    for body in artifacts:
        artifact = from_json(body)
        parts[artifact['artifactId']] = artifact
    before, text_id = parts.copy(), None
    for payload in updates:
        if is_note(payload):
            if text_id is not None:
                del parts[text_id]
                parts |= {text_id: before[text_id]} if text_id in before else {}
                text_id = None
            continue
        update = from_json(payload)['artifactUpdate']
        artifact = update['artifact']
        if is_live(payload):
            text_id = None if ends_pieces(payload) else artifact['artifactId']
        whole = parts.get(artifact['artifactId'])
        if whole is None or not update.get('append'):
            parts[artifact['artifactId']] = artifact
        else:
            whole['parts'].extend(artifact['parts'])
    return [
        dump_json({**artifact, 'parts': _join_text(artifact['parts'])})
        for artifact in parts.values()
        if partial or artifact.get('metadata') != PARTIAL
    ]


def _join_text(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    joined: list[dict[str, Any]] = []
    run: list[str] = []
    for part in parts:
        if 'text' in part and run:
            run.append(part['text'])
            continue
        _close_run(joined, run)
        joined.append(part)
        if 'text' in part:
            run.append(part['text'])
    _close_run(joined, run)
    return joined


def _close_run(joined: list[dict[str, Any]], run: list[str]) -> None:
    if len(run) > 1:
        joined[-1] = {**joined[-1], 'text': ''.join(run)}
    run.clear()


def _renamed(item: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, value in item.items():
        if value is not None or key == 'data':
            renamed[names[key] if key in names else key] = value  # noqa: SIM401 - a call for each field
    return renamed


def _wire_parts(parts: Iterable[Part]) -> list[dict[str, Any]]:
    return [_renamed(part, _WIRE_NAMES) for part in parts]


def dump_parts(parts: Iterable[Part]) -> bytes:
    """Write parts as a JSON array. NaN and infinity become null, as in Pydantic."""
    return dump_json([_renamed(part, _WIRE_NAMES) for part in parts], inf_nan_mode='null')


def dump_message(message: Message) -> bytes:
    """Write a message."""
    wire = _renamed(message, _WIRE_NAMES)
    wire |= {'role': _ROLE_NAMES[message['role']], 'parts': _wire_parts(message['parts'])}
    return dump_json(wire, inf_nan_mode='null')


def dump_artifact(artifact: Artifact) -> bytes:
    """Write an artifact."""
    wire = _renamed(artifact, _WIRE_NAMES)
    wire['parts'] = [_renamed(part, _WIRE_NAMES) for part in artifact['parts']]
    return dump_json(wire, inf_nan_mode='null')


def _load(body: bytes) -> dict[str, Any]:
    # The cache of strings is for repeated strings, and would keep the ids of the last thousands of tasks.
    item = _renamed(from_json(body, cache_strings='keys'), _NAMES)
    item['parts'] = [_renamed(part, _NAMES) for part in item['parts']]
    return item


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
