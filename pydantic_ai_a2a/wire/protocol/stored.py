"""The stored form of messages, artifacts and events: A2A 1.0 JSON, built by joining bytes.

1.0 clients are sent the stored bytes, so a look-up or an event needs no JSON pass; other versions' codecs decode the
bytes. `pydantic_core` writes the JSON without raw line breaks, so SSE can carry it unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic_core import from_json

from ...json_values import dump_json
from ...types.a2a_objects import TaskState
from ...types.run_events import PARTIAL

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

# Live text: the events whose form depends on the reader of the stream. They are the pieces of the answer, its notes,
# and the whole text at the end of the pieces. They are A2A like all events, but with the ids of the task behind the
# artifact or the status instead of before it: so they are found without parsing.
NOTE = b'{"statusUpdate":{"status":'
"""The beginning of a `note`."""
_LIVE = (b'{"artifactUpdate":{"artifact":', NOTE)
_LAST = b',"lastChunk":true}}'
_PARTS = b'"parts":['


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
