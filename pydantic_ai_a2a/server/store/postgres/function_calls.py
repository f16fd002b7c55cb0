"""Common writes as calls of functions of the database: a new task, events, checkpoint and end of a task, and filing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from time import time_ns
from typing import Any

from ....types.stored_events import TaskEvent
from ..model_messages import dump_message
from ..ports import Accepted, Checkpoint, Claim, Finish, Slot, Status, Submission
from ..ports.credentials import may_have_credentials
from ..run_usage import dump_usage
from ..sql import claims, conversations, emitting, filing, finishing, joined_items, submitting
from ..sql.queue_order import lock_rounds
from ..sql.submitting import replay_key
from ..sql.transaction import ContextKey, Done, Transaction
from .settings import Postgres
from .sql_translation import key_of

_RECORD = 'SELECT record, revision FROM {}.conversation WHERE agent = $1 AND owner = $2 AND id = $3'


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The call of a function that does the same as a write. The function says first if the function has done it."""

    statement: str
    values: Callable[[Sequence[Any]], Sequence[Any]]
    """Makes the values of the statement from the row of `record`, or from `(None, None)`."""
    result: Callable[[Sequence[Any]], Done[Any]]
    """Makes the result of the write from the row of the function."""
    record: tuple[str, Sequence[str]] | None = None
    """The statement that reads record and revision of the conversation; None if there is no record yet."""
    begins: Sequence[str] = ()
    """The task that may run in this process from the commit on."""
    possible: Done[Any] | None = None
    """The result to undo if the answers to all calls were lost; None for nothing to undo."""


def call_of(settings: Postgres, make: partial[Transaction[Any]]) -> FunctionCall | None:
    """Return the call for a write, or None if the generator does the write.

    A pooler in transaction mode changes connections between transactions. Without a cache of prepared statements,
    asyncpg prepares and executes in two steps, which have one connection only in the middle of a transaction.
    """
    call = _CALLS.get(make.func)
    if call is None or not settings.statement_cache_size:
        return None
    return call(settings, *make.args, **make.keywords)


@cache
def _statement(schema: str, function: str, count: int, further: str = '', joined: str = '') -> str:
    """Return the call of a function, with a further write, and a joined call. Both need `out_done` of the call."""
    numbers = ', '.join(f'${number}' for number in range(1, count + 1))
    call = f'SELECT * FROM {schema}.{function}({numbers})'
    if not (further or joined):
        return call
    writes = f', further AS ({further})' if further else ''
    return f'WITH call AS MATERIALIZED ({call}){writes} SELECT * FROM call {joined}'


def _lock_timeout(settings: Postgres) -> str:
    """Return the first value of each function: the time limit of each lock."""
    return f'{round(settings.statement_timeout * 1000)}ms'


def _first(settings: Postgres, context: ContextKey) -> tuple[Any, ...]:
    """Return the time limit of each lock, and the lock of the context."""
    return _lock_timeout(settings), key_of(context)


@lru_cache(maxsize=1024)
def _rounds(agent: str, owner: str) -> int:
    """Return the number of the lock of an owner's rounds."""
    return key_of(lock_rounds(agent, owner).name)


def _submit(
    settings: Postgres,
    agent: str,
    message: Submission,
    *,
    queue_limit: int,
    idempotency_window: int,
    slot: Slot | None,
    full: bool,
) -> FunctionCall | None:
    """Accept a new task, and take the task for a free slot, or queue the task."""
    if full or not submitting.begins_alone(message, slot):
        return None
    # Also without a slot, for the message of the task. No reader sees the event then.
    possible = submitting.started(agent, message, slot or Slot('', 0), None)
    (accepted, _), [(_, [event])] = possible.value, possible.events
    header, claimed = accepted.header, accepted.claim
    assert claimed is not None

    def result(row: Sequence[Any]) -> Done[submitting.Submitted]:
        _, taken, head = row
        if slot is None or not taken:
            return submitting.submitted(agent, Accepted(header, 0, replayed=False), [])
        return possible if head is None else submitting.started(agent, message, slot, head)

    values = (
        *_first(settings, (agent, message.owner, header.context_id)),
        agent,
        message.owner,
        header.id,
        header.context_id,
        message.dialect,
        message.traceparent,
        message.at,
        time_ns(),
        message.request,
        0 if message.logged else None,
        *(message.reader or (None, None)),
        replay_key(message, idempotency_window),
        message.digest,
        claimed.message,
        event.payload,
        _rounds(agent, message.owner),
        *((None, None) if slot is None else (slot.holder, slot.lease)),
    )
    n, added = len(values), ''
    if (credential := message.credential) is not None:
        # The credential is there already if this call is repeated, because the answer of a committed call was lost.
        added = f"""INSERT INTO {settings.schema}.credential (agent, task_id, id, until, body)
            SELECT $3, $5, ${n + 1}::TEXT, ${n + 2}::BIGINT, ${n + 3}::BYTEA FROM call WHERE out_done
            ON CONFLICT DO NOTHING"""
        values = (*values, credential.id, credential.until, credential.body)
    statement = _statement(settings.schema, 'a2a_submit', n, added)
    if slot is None:
        return FunctionCall(statement, lambda _: values, result)
    return FunctionCall(statement, lambda _: values, result, begins=[header.id], possible=possible)


def _emit(
    settings: Postgres,
    agent: str,
    claimed: Claim,
    events: Sequence[TaskEvent],
    *further: *tuple[Status | None, Checkpoint | None],
) -> FunctionCall | None:
    """Store events, a checkpoint or both of a running task without webhooks."""
    status, checkpoint = further
    nothing = not events and checkpoint is None
    if claimed.push or status is not None or nothing:
        return None
    columns = _columns(events, len(TaskEvent._fields))
    values = (_lock_timeout(settings), agent, claimed.header.id, claimed.fence, claimed.holder, *columns)
    function = 'a2a_emit'
    if checkpoint is not None:
        bodies = [dump_message(message) for message in checkpoint.messages]
        values += (checkpoint.first, checkpoint.run, checkpoint.taken, dump_usage(checkpoint.usage), bodies)
        function = 'a2a_checkpoint'
    return FunctionCall(
        _statement(settings.schema, function, len(values)),
        lambda _: values,
        lambda _: Done(None, [(claimed.header.id, events)]),
    )


def _finish(settings: Postgres, agent: str, claimed: Claim, end: Finish) -> FunctionCall | None:
    """Complete a task at the end of the only run, and claim the next queued task for the slot of the run."""
    rare = claimed.run > 1 or end.artifacts is None or end.charges or end.rewritten is not None
    if end.status.state != 'completed' or rare:
        return None
    header, read = claimed.header, end.taken or claimed.inbox
    conversation = (agent, header.owner, header.context_id)
    events = [*end.events, end.final]
    values = (
        *_first(settings, conversation),
        agent,
        header.owner,
        header.id,
        header.context_id,
        claimed.fence,
        claimed.holder,
        read,
        end.status.at,
        end.status.message,
        header.metadata if end.metadata is None else end.metadata,
        joined_items.join_items(finishing.items_of(None, end, goes_on=False)),
        *_columns(events, len(TaskEvent._fields)),
    )

    count, joined, values_of_next = len(values) + 9, '', ()
    if end.slot is not None:
        arguments = f'call.out_done, $3, $10, $8, ${count + 1}::BIGINT, ${count + 2}::TEXT'
        joined = f'LEFT JOIN LATERAL {settings.schema}.a2a_next({arguments}) ON TRUE'
        values_of_next = end.slot.lease, claims.name_of(claimed)

    def values_after(before: Sequence[Any]) -> Sequence[Any]:
        record, known = before
        (_, entries), (_, [newest]) = conversations.append(
            *conversation, record, end.messages, run_id=f'{header.id}.{claimed.run}', usage=end.usage, at=end.status.at
        )
        _, _, _, head, revision, _, body, _ = newest
        columns = _columns([entry[2:] for entry in entries], 5)
        return *values, *columns, known, head, revision, body, *values_of_next

    def result(row: Sequence[Any]) -> Done[Claim | None]:
        done = Done[Claim | None](None, [(header.id, events)])
        _, *columns = row
        if not any(columns):
            return done
        return finishing.and_begins(agent, done, *claims.taken_row(claims.RunRow(*columns), end.status.at))

    dropped = f'DELETE FROM {settings.schema}.credential USING call WHERE out_done AND agent = $3 AND task_id = $5'
    has_credentials = claimed.request is not None and may_have_credentials(claimed.request)
    return FunctionCall(
        _statement(settings.schema, 'a2a_finish', count, dropped if has_credentials else '', joined),
        values_after,
        result,
        record=None if claimed.head is None else (_RECORD.format(settings.schema), conversation),
    )


def _file(settings: Postgres, agent: str) -> FunctionCall:
    """File a batch of stopped tasks."""
    values = _lock_timeout(settings), agent, filing.BATCH
    return FunctionCall(
        _statement(settings.schema, 'a2a_file', len(values)), lambda _: values, lambda row: Done(row[1])
    )


def _columns(rows: Sequence[Sequence[Any]], count: int) -> list[list[Any]]:
    """Return the columns of rows: a function takes rows as one array for each column."""
    return [[row[n] for row in rows] for n in range(count)]


_CALLS: dict[Callable[..., Any], Callable[..., FunctionCall | None]] = {
    submitting.submit: _submit,
    emitting.emit: _emit,
    finishing.finish: _finish,
    filing.file: _file,
}
"""Makes the call for a write of each kind."""
