"""The tables and indexes. Every key begins with the agent's namespace, so that one database serves many agents."""

from __future__ import annotations

from . import conversations

__all__ = ('LISTS', 'SCHEMA', 'TURN')

SCHEMA = (
    """
    CREATE TABLE task (
        agent TEXT NOT NULL,
        id TEXT NOT NULL,
        owner TEXT NOT NULL,
        context_id TEXT NOT NULL,
        state TEXT NOT NULL,
        status_at BIGINT NOT NULL,
        status_message BLOB,
        metadata BLOB,
        queue_seq BIGINT NOT NULL,
        holder TEXT,
        lease_until BIGINT,
        fence BIGINT NOT NULL DEFAULT 0,
        attempt INTEGER NOT NULL DEFAULT 0,
        run INTEGER NOT NULL DEFAULT 0,
        cancel_requested INTEGER NOT NULL DEFAULT 0,
        watched_until BIGINT NOT NULL DEFAULT 0,
        last_event BIGINT NOT NULL DEFAULT 0,
        events_swept INTEGER NOT NULL DEFAULT 0,
        context_head TEXT,
        inbox_read BIGINT NOT NULL DEFAULT 0,
        own_messages BLOB,
        checkpoint BLOB,
        request BLOB,
        traceparent TEXT,
        dialect TEXT NOT NULL,
        failure TEXT,
        PRIMARY KEY (agent, id)
    )
    """,
    "CREATE UNIQUE INDEX task_running ON task (agent, owner, context_id) WHERE state = 'working'",
    "CREATE INDEX task_live ON task (agent, owner, context_id, queue_seq) WHERE state IN ('submitted', 'working')",
    'CREATE INDEX task_state ON task (agent, state, queue_seq)',
    'CREATE INDEX task_seq ON task (agent, queue_seq)',
    'CREATE INDEX task_owner ON task (agent, owner, status_at, id)',
    'CREATE INDEX task_context ON task (agent, owner, context_id, status_at, id)',
    """
    CREATE INDEX task_ended ON task (agent, events_swept DESC, status_at)
        WHERE state IN ('completed', 'failed', 'canceled', 'rejected')
    """,
    "CREATE INDEX task_waiting ON task (agent, status_at) WHERE state IN ('input-required', 'auth-required')",
    """
    CREATE TABLE item (
        seq INTEGER PRIMARY KEY,
        agent TEXT NOT NULL,
        task_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        id TEXT NOT NULL,
        body BLOB NOT NULL
    )
    """,
    'CREATE INDEX item_task ON item (agent, task_id, kind, seq)',
    """
    CREATE TABLE inbox (
        seq INTEGER PRIMARY KEY,
        agent TEXT NOT NULL,
        owner TEXT NOT NULL,
        replay_key TEXT,
        digest BLOB NOT NULL,
        task_id TEXT NOT NULL,
        item BIGINT NOT NULL,
        after_event BIGINT NOT NULL,
        accepted_at BIGINT NOT NULL
    )
    """,
    'CREATE UNIQUE INDEX inbox_replay ON inbox (agent, owner, replay_key) WHERE replay_key IS NOT NULL',
    'CREATE INDEX inbox_task ON inbox (agent, task_id, seq)',
    """
    CREATE TABLE event (
        agent TEXT NOT NULL,
        task_id TEXT NOT NULL,
        n BIGINT NOT NULL,
        state TEXT,
        payload BLOB NOT NULL,
        PRIMARY KEY (agent, task_id, n)
    ) WITHOUT ROWID
    """,
    *conversations.SCHEMA,
)

TURN = ('ALTER TABLE task ADD COLUMN turn INTEGER NOT NULL DEFAULT 1',)
"""Number of the task's current turn: see `Claim.turn`."""
LISTS = (
    'DROP INDEX task_state',
    "CREATE INDEX task_canceling ON task (agent, cancel_requested) WHERE state = 'working' AND cancel_requested = 1",
    'CREATE INDEX task_owner_state ON task (agent, owner, state, status_at, id)',
    'CREATE INDEX task_context_state ON task (agent, owner, context_id, state, status_at, id)',
)
"""A migration: indexes that have the tasks of a state in the order of lists, and one of running tasks to cancel."""
