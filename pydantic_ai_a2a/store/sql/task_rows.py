"""The vocabulary of the SQL state machine: header rows, and common steps of transactions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from ...conversion import stream
from ...errors import StoredDamaged, TaskNotFoundError
from ...protocol import stored
from ...types import LIVE, STOPPED, TaskEvent, TaskHeader
from ..model_messages import load_messages
from ..ports import SealedCredential, Status, Takes
from ..run_usage import load_usage
from ..status_events import status_event
from . import conversations
from .queue_order import NEXT, release_context
from .transaction import LockName, LockTasks, Statement, Transaction, Write

LAST_EVENT = (
    'COALESCE((SELECT MAX(n) FROM event WHERE event.agent = task.agent AND event.task_id = task.id'
    ' AND event.n > task.last_event), last_event)'
)
_LOG_FROM_NOW = f'UPDATE task SET logged_after = {LAST_EVENT} WHERE agent = ? AND id = ? AND logged_after IS NULL'
HEADER = f'id, context_id, owner, state, status_at, status_message, metadata, dialect, queued, {LAST_EVENT}'
HEADER_SIZE = 10
_STATES = LIVE | STOPPED
_BY_ID = f'SELECT {HEADER} FROM task WHERE agent = ? AND id = ?'
BY_ID_AND_OWNER = f'{_BY_ID} AND (owner = ? OR CAST(? AS TEXT) IS NULL)'
TASK = 'agent = ? AND id = ?'
OF_TASK = 'agent = ? AND task_id = ?'
HELD = f"{TASK} AND fence = ? AND holder = ? AND state = 'working'"
IS_DUE = 'COALESCE(lease_until, 0) <= (SELECT a2a_clock())'  # reads the clock once for all rows
"""The pause of a released task is over."""
MESSAGE_OF_TASK = "item.agent = task.agent AND item.task_id = task.id AND item.kind = 'message'"
UNREAD = f'{MESSAGE_OF_TASK} AND item.seq > task.inbox_read AND item.answer = 0'
"""A message after the first that is to be the prompt of a run, and was not yet."""

FIRST_UNREAD = f'CASE WHEN task.inbox_read = 0 THEN 1 ELSE (SELECT MIN(seq) FROM item WHERE {UNREAD}) END'
"""The number of the next prompt of a task; NULL for none."""
NEXT_ITEM = '(SELECT COALESCE(MAX(seq), 1) + 1 FROM item WHERE agent = ? AND task_id = ? AND kind = ?)'
"""The number of a new item (agent, task, kind). The caller has locked the task."""
_ADD_ITEM = f'INSERT INTO item (agent, task_id, kind, seq, id, body) VALUES (?, ?, ?, {NEXT_ITEM}, ?, ?)'
_MESSAGE_TO_HISTORY = (
    "INSERT INTO item (agent, task_id, kind, seq, id, body) SELECT agent, id, 'message',"
    f' (SELECT COALESCE(MAX(seq), 1) + 1 FROM item WHERE {MESSAGE_OF_TASK}),'
    f" '', status_message FROM task WHERE {TASK} AND status_message IS NOT NULL"
)


def header_of(row: Sequence[Any]) -> TaskHeader:
    """Return the header of a `HEADER` row.

    Raises:
        StoredDamaged: The row has an unknown state.
    """
    task_id, context_id, owner, state, status_at, message, metadata, dialect, queued, last_event = row[:HEADER_SIZE]
    if state not in _STATES:
        raise unknown_state(task_id, state)
    return TaskHeader(
        id=task_id,
        context_id=context_id,
        owner=owner,
        state=state,
        status_at=status_at,
        status_message=message,
        metadata=metadata,
        last_event=last_event,
        dialect=dialect,
        queued=bool(queued),
    )


def unknown_state(task_id: str, state: str) -> StoredDamaged:
    """Return the error of a task whose state is damaged, or is of a newer version."""
    return StoredDamaged(f'Task {task_id} is in the unknown state {state!r}.')


def find(agent: str, task_id: str, owner: str | None) -> Transaction[TaskHeader]:
    """Return the header of an owner's task.

    Raises:
        TaskNotFoundError: The owner has no such task.
    """
    return header_of((yield from _find_row(agent, task_id, owner)))


def _find_row(agent: str, task_id: str, owner: str | None) -> Transaction[Sequence[Any]]:
    rows = yield BY_ID_AND_OWNER, (agent, task_id, owner, owner)
    if not rows:
        raise TaskNotFoundError
    return rows[0]


def find_locked(agent: str, task_id: str, owner: str | None) -> Transaction[TaskHeader]:
    """Lock a task and the context against other writers, and return the result of `find`."""
    return header_of((yield from find_row_locked(agent, task_id, owner)))


def find_row_locked(agent: str, task_id: str, owner: str | None) -> Transaction[Sequence[Any]]:
    """Lock a task like `find_locked`, and return the `HEADER` row. The row may have an unknown state."""
    _, context_id, task_owner, *_ = yield from _find_row(agent, task_id, owner)
    yield LockName((agent, task_owner, context_id))
    yield LockTasks(agent, [task_id])
    return (yield from _find_row(agent, task_id, owner))


def set_status(agent: str, task_id: str, status: Status) -> list[Write]:
    """Write a status; the previous status message moves into the history (§3.7)."""
    update = f'UPDATE task SET state = ?, status_at = ?, status_message = ?, filed = 0 WHERE {TASK}'
    return [message_to_history(agent, task_id), (update, [(*status, agent, task_id)])]


def message_to_history(agent: str, task_id: str) -> Write:
    """Copy the status message into the history, before a new status replaces the message."""
    return _MESSAGE_TO_HISTORY, [(agent, task_id)]


def add_items(agent: str, task_id: str, items: Sequence[tuple[str, str, bytes]]) -> Write:
    """Add messages and artifacts: (kind, id, JSON)."""
    return _ADD_ITEM, [(agent, task_id, kind, agent, task_id, kind, id, body) for kind, id, body in items]


ADD_EVENT = 'INSERT INTO event (agent, task_id, n, state, payload) VALUES (?, ?, ?, ?, ?)'


def add_events(agent: str, task_id: str, events: Sequence[TaskEvent]) -> Write:
    """Add events to the log. The caller has checked the fence."""
    return ADD_EVENT, [(agent, task_id, *event) for event in events]


def log_from_now(agent: str, task_id: str) -> Write:
    """Let the log of a task that is not over have all events from now on. The caller has locked the task."""
    return _LOG_FROM_NOW, [(agent, task_id)]


def drop_checkpoint(agent: str, task_id: str) -> Write:
    """Delete the checkpoint of a task."""
    return f'DELETE FROM checkpoint WHERE {OF_TASK}', [(agent, task_id)]


def delete_due(agent: str, table: str, key: str, due: str, until: int, *, limit: int) -> Transaction[int]:
    """Delete rows that are due, the oldest ones up to a limit, and return their number.

    Args:
        agent: Namespace.
        table: The table.
        key: Columns that name a row of the namespace.
        due: Column with the time from which on a row is due.
        until: The latest such time.
        limit: The most rows.
    """
    of_rows = f'FROM {table} WHERE agent = ? AND {due} <= ?'
    rows = yield (
        f'DELETE {of_rows} AND ({key}) IN (SELECT {key} {of_rows} ORDER BY {due} LIMIT ?) RETURNING {due}',
        (agent, until, agent, until, limit),
    )
    return len(rows)


_UPDATES = (
    f'SELECT payload FROM event WHERE {OF_TASK} AND (state IS NULL OR substr(payload, 1, {len(stored.NOTE)}) = ?)'
    ' ORDER BY n'
)


def updates(agent: str, task_id: str) -> Statement:
    """Return the query of the logged artifact updates of a task, and of its notes for readers of live text."""
    return _UPDATES, (agent, task_id, stored.NOTE)


def keep_streamed(agent: str, task_id: str) -> Transaction[None]:
    """Store the streamed artifacts of a task without a result: readers have seen the artifacts (§4.2.2)."""
    rows = yield updates(agent, task_id)
    if not rows:
        return
    before = yield f"DELETE FROM item WHERE {OF_TASK} AND kind = 'artifact' RETURNING body", (agent, task_id)
    bodies = stored.assemble((row[0] for row in before), (row[0] for row in rows), partial=False)
    items = [('artifact', stored.load_artifact(body)['artifact_id'], body) for body in bodies]
    yield [add_items(agent, task_id, items)]


def end_unheld(agent: str, header: TaskHeader, status: Status, failure: str | None = None) -> Transaction[TaskEvent]:
    """End a task without the holder: the new fence refuses a late result of the holder."""
    event = status_event(header, status, header.last_event + 1)
    rows = yield (
        f'SELECT run, own_messages, own_usage, {conversations.RECORD_OF_TASK}, push, logged_after, {NEXT} FROM task'
        f' WHERE {TASK}',
        (agent, header.id),
    )
    run, own_messages, own_usage, record, push, logged_after, following = rows[0]
    if status.state == 'canceled' and own_messages is not None:
        messages = stream.closed(load_messages(own_messages))
        usage = None if own_usage is None else load_usage(own_usage)
        run_id = f'{header.id}.{run}'
        yield conversations.append(
            agent, header.owner, header.context_id, record, messages, run_id=run_id, usage=usage, at=status.at
        )
    yield from keep_streamed(agent, header.id)
    freed = (
        'UPDATE task SET queued = 0, fence = fence + 1, holder = NULL, lease_until = NULL, own_messages = NULL,'
        f' pending = NULL, own_usage = NULL, last_event = ?, stop_event = ?, failure = ? WHERE {TASK}'
    )
    ended = (freed, [(event.n, event.n, failure, agent, header.id)])
    log = add_events(agent, header.id, [event] if logged_after is not None else [])
    drops = drop_checkpoint(agent, header.id), drop_credentials(agent, header.id)
    yield [*set_status(agent, header.id, status), ended, log, *drops]
    if following is not None and header.state in LIVE:
        yield [release_context(agent, header.owner, following)]
    if push:
        yield from enqueue_deliveries(agent, header, push, [event])
    return event


# --- the encrypted credentials of tasks -------------------------------------------------------------------------------


def add_credential(agent: str, task_id: str, credential: SealedCredential) -> Write:
    """Store a credential of a task."""
    row = (agent, task_id, credential.id, credential.until, credential.body)
    return 'INSERT INTO credential (agent, task_id, id, until, body) VALUES (?, ?, ?, ?, ?)', [row]


def load_credentials(agent: str, task_id: str, credential_id: str) -> Transaction[SealedCredential | None]:
    """See `CredentialStore.load`."""
    rows = yield f'SELECT until, body FROM credential WHERE {OF_TASK} AND id = ?', (agent, task_id, credential_id)
    return SealedCredential(id=credential_id, until=rows[0][0], body=bytes(rows[0][1])) if rows else None


def drop_credentials(agent: str, task_id: str) -> Write:
    """Delete the credentials of a task."""
    return f'DELETE FROM credential WHERE {OF_TASK}', [(agent, task_id)]


# --- data of runs at an engine ----------------------------------------------------------------------------------------


_PUT_PAYLOAD = (
    'INSERT INTO payload (agent, task_id, id, body) SELECT agent, id, ?, ? FROM task WHERE agent = ? AND id = ?'
    ' ON CONFLICT DO NOTHING'
)


def put_payloads(agent: str, task_id: str, payloads: Mapping[str, bytes]) -> Transaction[None]:
    """See `PayloadStore.put`."""
    yield LockTasks(agent, [task_id])  # an erasure finds the payloads
    rows = [(*payload, agent, task_id) for payload in payloads.items()]
    yield [(_PUT_PAYLOAD, rows)]


def get_payload(agent: str, task_id: str, payload_id: str) -> Transaction[bytes | None]:
    """See `PayloadStore.get`."""
    rows = yield 'SELECT body FROM payload WHERE agent = ? AND task_id = ? AND id = ?', (agent, task_id, payload_id)
    return bytes(rows[0][0]) if rows else None


# --- deliveries of events to webhooks, written in the transaction of the events ---------------------------------------
# The column `push` of a task is 0 without configurations, and higher with configurations or a configuration for every
# chunk: a task without webhooks needs no statement. The column `due_at` of a configuration is the time of the next try
# by the clock of leases: 0 for now, NULL without a delivery.

TAKES: Mapping[Takes, int] = {'statuses': 0, 'artifacts': 1, 'chunks': 2}
"""The values of the column `push_config.takes`."""
_ALL, _WHOLE, _CHUNKS = (0, 2), (1, 2), (2, 2)
_INSTEAD_OF_CHUNKS = (1, 1)
_ADD = (
    'INSERT INTO delivery (agent, task_id, config, id, n, state, payload)'
    " SELECT agent, task_id, seq, CAST(? AS TEXT) || '.' || CAST(seq AS TEXT), ?, ?, ?"
    ' FROM push_config WHERE agent = ? AND task_id = ? AND takes BETWEEN ? AND ?'
)

# The statement also writes a row that is due already. The row lock makes a transaction that ends a delivery wait;
# without the lock, that transaction would miss the new event and find no delivery left.
_WAKE = 'UPDATE push_config SET due_at = COALESCE(due_at, 0) WHERE agent = ? AND task_id = ?'


def enqueue_deliveries(
    agent: str,
    header: TaskHeader,
    push: int,
    events: Iterable[TaskEvent],
    artifacts: Sequence[tuple[str, bytes]] | None = None,
) -> Transaction[None]:
    """Write the deliveries of events in the transaction of the events. The caller has checked the fence.

    Args:
        agent: The namespace.
        header: Header of the task.
        push: Column `push` of the locked task, not 0.
        events: The events in the order of numbers.
        artifacts: The final artifacts of the task, if known: (artifactId, JSON).
    """
    rows: list[tuple[TaskEvent, tuple[int, int]]] = []
    for event in events:
        if event.state is not None:
            if not stored.is_note(event.payload):  # a note for readers of live text is not for webhooks
                rows.append((event, _ALL))
            continue
        whole, last = stored.piece(event.payload)
        rows.append((event, _WHOLE if whole else _CHUNKS))
        if last and not whole:
            body = yield from _whole(agent, header, event, dict(artifacts or ()))
            rows.append((TaskEvent(event.n, None, body), _INSTEAD_OF_CHUNKS))
    wanted = [(event, takes) for event, takes in rows if takes != _CHUNKS or push >= TAKES['chunks']]
    if wanted:
        values = [(stored.new_id(), *event, agent, header.id, *takes) for event, takes in wanted]
        yield [(_ADD, values), (_WAKE, [(agent, header.id)])]


def _whole(agent: str, header: TaskHeader, last: TaskEvent, final: Mapping[str, bytes]) -> Transaction[bytes]:
    """Return an update with the whole artifact of a last chunk (§4.2.2)."""
    artifact_id: str = from_json(last.payload)['artifactUpdate']['artifact']['artifactId']
    artifact = final.get(artifact_id)
    if artifact is None:
        items = yield f"SELECT body FROM item WHERE {OF_TASK} AND kind = 'artifact' ORDER BY seq", (agent, header.id)
        updates = yield (
            f'SELECT payload FROM event WHERE {OF_TASK} AND state IS NULL AND n <= ? ORDER BY n',
            (agent, header.id, last.n),
        )
        bodies = stored.assemble((row[0] for row in items), (row[0] for row in updates))
        artifact = next(body for body in bodies if from_json(body)['artifactId'] == artifact_id)
    return stored.artifact_update(header.id, header.context_id, artifact)
