"""Deliveries of events to webhooks, written in the transaction of the events.

The column `push` of a task is 0 without configurations, and higher with configurations or a configuration for every
chunk: a task without webhooks needs no statement. The column `due_at` of a configuration is the time of the next try
by the clock of leases: 0 for now, NULL without a delivery.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pydantic_core import from_json

from ....types.stored_events import TaskEvent
from ....types.stored_tasks import TaskHeader
from ....wire.protocol import new_ids, stored
from .push_configs import TAKES
from .task_rows import OF_TASK
from .transaction import Transaction

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
        values = [(new_ids.new_id(), *event, agent, header.id, *takes) for event, takes in wanted]
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
