"""Deliveries as their sender sees them: leased, done, failed or dead.

Who locks a configuration and one of its deliveries locks the configuration first; its task is locked before both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ....errors import UnsupportedOperationError
from ....types.stored_events import TaskEvent
from ..ports import DeadDelivery, Delivery, Leased, PushConfig
from .key_conditions import where
from .push_configs import NAMES
from .transaction import Transaction, sql

_CONFIG = 'agent = ? AND seq = ?'
_NEXT = sql("""
    -- the next delivery of a configuration, with the number of the lease that `_LEASE` makes
    SELECT
        d.id, d.task_id, task.owner, c.id, c.version, c.takes, c.body, d.n, d.state, d.payload, d.failures,
        c.seq, c.lease + 1, task.traceparent
    FROM push_config c
    JOIN delivery d ON d.agent = c.agent AND d.config = c.seq
    JOIN task ON task.agent = c.agent AND task.id = c.task_id
    WHERE c.agent = ? AND c.seq = ? AND d.died_at IS NULL
    ORDER BY d.seq LIMIT 1
""")
_LEASE = f'UPDATE push_config SET due_at = a2a_clock() + CAST(? AS BIGINT), lease = lease + 1 WHERE {_CONFIG}'
"""A lease is a later `due_at`. The new number refuses the result of an earlier holder."""
_GO_ON = sql(f"""
    -- The next delivery is due at once, if there is one that is not dead.
    UPDATE push_config SET
        due_at = CASE WHEN EXISTS (
            SELECT 1 FROM delivery
            WHERE delivery.agent = push_config.agent AND config = push_config.seq AND died_at IS NULL
        ) THEN 0 END,
        lease = lease + 1
    WHERE {_CONFIG}
""")


def wait(agent: str, *, limit: int, held: Mapping[str, int]) -> Transaction[int | None]:
    """Return how long the sender waits for its next delivery; see `Leased.wait`."""
    others, served = _others(held, limit)
    rows = yield (
        f'SELECT MIN(due_at) - a2a_clock() FROM push_config WHERE agent = ? AND due_at IS NOT NULL{others}',
        (agent, *served),
    )
    ms: int | None = rows[0][0]
    return None if ms is None else max(ms, 0)


def _others(held: Mapping[str, int], room: int) -> tuple[str, list[str]]:
    """Return a SQL condition, with its values, that skips owners without a free slot."""
    served = [owner for owner, count in held.items() if count >= room]
    return f' AND owner NOT IN ({", ".join("?" * len(served))})' if served else '', served


def lease(agent: str, *, lease: int, limit: int, held: Mapping[str, int]) -> Transaction[Leased]:
    """See `Outbox.lease`."""
    has, room = Counter(held), limit
    deliveries: list[Delivery] = []
    while room:
        others, served = _others(has, room)
        due = yield (
            # A subquery is evaluated once: PostgreSQL looks up the due rows in the index, and reads no others.
            f'SELECT seq, owner FROM push_config WHERE agent = ? AND due_at <= (SELECT a2a_clock()){others}'
            ' ORDER BY due_at, seq LIMIT ? /* FOR NO KEY UPDATE SKIP LOCKED */',
            (agent, *served, room),
        )
        last = len(due) < room
        for place, owner in due:
            if has[owner] < room:
                taken = yield from _take(agent, place, lease)
                deliveries += taken
                has[owner] += len(taken)
                room -= len(taken)
        if last:
            break
    return Leased(deliveries, (yield from wait(agent, limit=room, held=has)))


def _take(agent: str, place: int, lease: int) -> Transaction[list[Delivery]]:
    """Lease the next delivery of a configuration. If the configuration has none left, it is no longer due."""
    rows = yield _NEXT, (agent, place)
    yield _LEASE, (lease if rows else None, agent, place)
    return [_delivery(row) for row in rows]


def _delivery(row: Any) -> Delivery:
    id, task_id, owner, config_id, version, takes, body, n, state, payload, failures, place, lease, trace = row
    return Delivery(
        id=id,
        task_id=task_id,
        owner=owner,
        config=PushConfig(id=config_id, version=version, takes=NAMES[takes], body=body),
        event=TaskEvent(n, state, payload),
        failures=failures,
        place=place,
        lease=lease,
        traceparent=trace,
    )


def _held(agent: str, delivery: Delivery) -> Transaction[bool]:
    """Lock a delivery until the transaction ends; return true if the holder still has its lease."""
    rows = yield (
        f'SELECT lease FROM push_config WHERE {_CONFIG} /* FOR NO KEY UPDATE */',
        (agent, delivery.place),
    )
    return bool(rows) and rows[0][0] == delivery.lease


def _go_on(agent: str, delivery: Delivery) -> Transaction[None]:
    yield _GO_ON, (agent, delivery.place)


def done(agent: str, delivery: Delivery) -> Transaction[None]:
    """See `Outbox.done`."""
    if (yield from _held(agent, delivery)):
        yield 'DELETE FROM delivery WHERE agent = ? AND id = ?', (agent, delivery.id)
        yield from _go_on(agent, delivery)


def failed(agent: str, delivery: Delivery, *, at: int, pause: int | None, error: str) -> Transaction[None]:
    """See `Outbox.failed`."""
    if not (yield from _held(agent, delivery)):
        return
    yield (
        'UPDATE delivery SET failures = failures + 1, error = ?, died_at = CAST(? AS BIGINT)'
        ' WHERE agent = ? AND id = ?',
        (error, at if pause is None else None, agent, delivery.id),
    )
    if pause is None:
        yield from _go_on(agent, delivery)
    else:
        yield (
            f'UPDATE push_config SET due_at = a2a_clock() + ?, lease = lease + 1 WHERE {_CONFIG}',
            (pause, agent, delivery.place),
        )


def release(agent: str, delivery: Delivery) -> Transaction[None]:
    """See `Outbox.release`."""
    if (yield from _held(agent, delivery)):
        yield from _go_on(agent, delivery)


def dead(
    agent: str, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
) -> Transaction[list[DeadDelivery]]:
    """See `Outbox.dead`."""
    page, values = where(
        {'d.agent = ? AND d.died_at IS NOT NULL': agent, 'task.owner = ?': owner, '(d.died_at, d.id) > (?, ?)': after}
    )
    statement = f"""
        SELECT d.id, d.task_id, c.id, task.owner, d.n, d.state, d.died_at, d.failures, d.error
        FROM delivery d
        JOIN push_config c ON c.agent = d.agent AND c.seq = d.config
        JOIN task ON task.agent = d.agent AND task.id = d.task_id
        WHERE {page} ORDER BY d.died_at, d.id LIMIT ?
    """
    rows = yield sql(statement), (*values, limit)
    names = ('id', 'task_id', 'config_id', 'owner', 'n', 'state', 'at', 'failures', 'error')
    return [DeadDelivery(**dict(zip(names, row, strict=True))) for row in rows]


def retry(agent: str, delivery_id: str) -> Transaction[str]:
    """See `Outbox.retry`; gives the task's id."""
    places = yield 'SELECT config FROM delivery WHERE agent = ? AND id = ?', (agent, delivery_id)
    for (place,) in places:
        yield f'SELECT seq FROM push_config WHERE {_CONFIG} /* FOR NO KEY UPDATE */', (agent, place)
        rows = yield (
            'UPDATE delivery SET died_at = NULL, failures = 0 WHERE agent = ? AND id = ? AND died_at IS NOT NULL'
            ' RETURNING task_id',
            (agent, delivery_id),
        )
        for (task_id,) in rows:
            yield f'UPDATE push_config SET due_at = 0 WHERE {_CONFIG} AND due_at IS NULL', (agent, place)
            return task_id
    raise UnsupportedOperationError(
        'No dead delivery has this id: list the dead deliveries. A retried delivery is no longer dead.'
    )
