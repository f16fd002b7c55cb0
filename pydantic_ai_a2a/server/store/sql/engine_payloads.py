"""The data of runs at an engine."""

from __future__ import annotations

from collections.abc import Mapping

from .transaction import LockTasks, Transaction

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
