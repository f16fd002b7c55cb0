"""The tables, indexes and triggers of a store.

The text is SQL of SQLite, and `server.store.postgres.sql_translation` translates it. A blank line ends a statement.
Text between `/*` and `*/` is for PostgreSQL only.

- `agent` is the namespace of an agent. All keys begin with it, so that one database serves many agents.
- `owner` is a tenant and a caller, as in `tenant/caller`.
- Times are milliseconds since the epoch, unless the comment of a column says otherwise. Leases are measured by a clock
  of their own, which nobody can set: "clock of leases", also in milliseconds.
- `seq` numbers the rows of a table over all agents.

A SQLite file keeps the comments of a step that was released, so they stay too. Where they name the module `runs`, see
`filing`; for `contexts`, `queue_order`; for `vocabulary`, `joined_items`; for `reads`, `totals`.
"""

from __future__ import annotations

import re

_SQL = """
-- Tasks. The fill factor leaves room on each page: a changed row then often stays on its page.
CREATE TABLE task (
    agent TEXT NOT NULL,
    id TEXT NOT NULL,
    owner TEXT NOT NULL,
    context_id TEXT NOT NULL,
    dialect TEXT NOT NULL, -- codec that read the first message
    traceparent TEXT, -- trace and baggage of the request that created the task, as JSON
    -- The status that clients see.
    state TEXT NOT NULL,
    status_at BIGINT NOT NULL, -- time of the status
    filed INTEGER NOT NULL DEFAULT 0, -- 1: a stopped task is in the indexes of lists; see the module `runs`
    failure TEXT, -- class of the failure of a failed task
    retried_as TEXT, -- id of the task that repeats this dead letter
    -- The queue: see the module `contexts`.
    queued INTEGER NOT NULL DEFAULT 0, -- 1 while the task waits for a worker (2 inside the transaction of a new task)
    queue_seq BIGINT NOT NULL, -- order in which the tasks of a context run: see the module `contexts`
    behind INTEGER NOT NULL DEFAULT 0, -- 1 while an earlier task of the context is queued or running
    round BIGINT NOT NULL DEFAULT 0, -- round in which the task is claimed; counts once `behind` is 0
    -- The claim.
    holder TEXT, -- worker that runs the task
    lease_until BIGINT, -- clock of leases; without a holder: when a run is tried again, or NULL
    fence BIGINT NOT NULL DEFAULT 0, -- number of claims; a write with an older number is refused
    cancel_requested INTEGER NOT NULL DEFAULT 0, -- 1: the holder has to cancel the run
    -- Numbers of the work on the task, each from 1.
    attempt INTEGER NOT NULL DEFAULT 0, -- holders that were lost, and the present one
    run INTEGER NOT NULL DEFAULT 0, -- agent runs
    turn INTEGER NOT NULL DEFAULT 1, -- prompts that were run; a run after a pause belongs to the same turn
    tried BLOB, -- tries of the run that errors of the model have ended: number, seconds, usage; as JSON
    -- Messages and events.
    inbox_read BIGINT NOT NULL DEFAULT 0, -- `item.seq` of the newest message that a run has read
    answer BIGINT, -- `item.seq` of the message that ended a pause and begins the next run
    last_event BIGINT NOT NULL DEFAULT 0, -- newest event when the last run began or ended; `event` may hold newer ones
    stop_event BIGINT NOT NULL DEFAULT 0, -- newest event that ended or interrupted the task
    logged_after BIGINT, -- all events after this number are in `event`; NULL: nobody has read the events so far
    events_swept INTEGER NOT NULL DEFAULT 0, -- 1 once retention has deleted the events
    watched_until BIGINT NOT NULL DEFAULT 0, -- until when some process reads the events: clock of leases
    push INTEGER NOT NULL DEFAULT 0, -- webhooks: 0 none so far, 1 some, 2 at least one that takes every chunk
    -- The turn of a task that waits for its client: the next run goes on with it.
    context_head TEXT, -- `entry.id` of the newest entry of the conversation when the turn began
    pending BLOB, -- questions and calls of tools that the task waits with, as JSON
    own_usage BLOB, -- usage of the turn so far, as JSON
    own_messages BLOB, -- model messages of the turn so far, as JSON
    -- Other JSON.
    paid BLOB, -- what quotas were charged for a run: its number, requests, tokens, billionths of a US dollar
    request BLOB, -- what a run needs of the request that created the task
    metadata BLOB, -- metadata of the task, as clients read it
    status_message BLOB, -- message of the status
    -- The message that created the task. Its number is 1.
    replay_key TEXT, -- the same for a message that is sent again; NULL: no message counts as sent again
    digest BLOB NOT NULL, -- of the content: the same id with another digest is refused
    accepted_at BIGINT NOT NULL,
    message BLOB NOT NULL, -- JSON of A2A 1.0
    ending BLOB, -- messages and artifacts that the end of the task has added: see the module `vocabulary`
    PRIMARY KEY (agent, id)
) /* WITH (fillfactor = 80) */

-- Lists the stopped tasks of an owner that are not filed. This index alone is written when a task stops.
CREATE INDEX task_unfiled ON task (agent, owner, status_at, id)
    WHERE filed = 0 AND state NOT IN ('submitted', 'working')

-- Lists the filed tasks of an owner, in the order of pages.
CREATE INDEX task_owner ON task (agent, owner, state, status_at, id, filed) WHERE filed = 1

-- Lists the filed tasks of a context, in the order of pages.
CREATE INDEX task_context ON task (agent, owner, context_id, state, status_at, id, filed) WHERE filed = 1

-- Finds the queued tasks of a context, in their order.
CREATE INDEX task_line ON task (agent, owner, context_id, queue_seq) WHERE queued = 1

-- Keeps a context from running two tasks at once, and finds running tasks.
CREATE UNIQUE INDEX task_running ON task (agent, owner, context_id) WHERE state = 'working' AND queued = 0

-- Finds running tasks that have to be cancelled.
CREATE INDEX task_canceling ON task (agent, cancel_requested) WHERE state = 'working' AND cancel_requested = 1

-- Finds the task that is claimed next, and counts the queue.
CREATE INDEX task_queued ON task (agent, behind, round, queue_seq) WHERE queued = 1

-- Finds the newest round of an owner.
CREATE INDEX task_round ON task (agent, owner, behind, round) WHERE queued = 1

-- Finds the ended tasks that a sweep deletes next, or whose events it deletes next.
CREATE INDEX task_ended ON task (agent, events_swept DESC, status_at)
    WHERE filed = 1 AND state NOT IN ('auth-required', 'input-required')

-- Finds waiting tasks that expire.
CREATE INDEX task_waiting ON task (agent, status_at) WHERE state IN ('input-required', 'auth-required')

-- Lists dead letters.
CREATE INDEX task_dead ON task (agent, status_at, id) WHERE failure IN ('attempts', 'storage')

-- Finds tasks whose events other processes read.
CREATE INDEX task_watched ON task (agent, watched_until) WHERE watched_until > 0

-- Finds the task of a message that is sent again.
CREATE UNIQUE INDEX task_replay ON task (agent, owner, replay_key) WHERE replay_key IS NOT NULL

-- Messages and artifacts of tasks, without the first message, and without the additions of the end. The columns from
-- `owner` on belong to messages that clients have sent.
CREATE TABLE item (
    agent TEXT NOT NULL,
    task_id TEXT NOT NULL,
    kind TEXT NOT NULL, -- 'message' or 'artifact'
    seq BIGINT NOT NULL, -- from 2 for each task and kind; messages have no gaps
    id TEXT NOT NULL, -- messageId or artifactId; empty for the message of an earlier status
    body BLOB NOT NULL, -- JSON of A2A 1.0
    owner TEXT,
    replay_key TEXT, -- the same for a message that is sent again; NULL: no message counts as sent again
    digest BLOB, -- of the content: the same id with another digest is refused
    after_event BIGINT, -- newest event of the task when the message was accepted
    accepted_at BIGINT,
    answer INTEGER, -- 0: prompt of a run, 1: ended a pause, 2: answered calls of tools; NULL: not from a client
    request BLOB, -- like `task.request`, for a later message: NULL stands for that of the task, empty for none
    PRIMARY KEY (agent, task_id, kind, seq)
) WITHOUT ROWID

-- Finds a message that is sent again.
CREATE UNIQUE INDEX item_replay ON item (agent, owner, replay_key) WHERE replay_key IS NOT NULL

-- The event logs of tasks with a reader. Of other tasks, only what a run stores while it works, so that an artifact in
-- parts is not lost.
CREATE TABLE event (
    agent TEXT NOT NULL,
    task_id TEXT NOT NULL,
    n BIGINT NOT NULL, -- from 1 for each task; without gaps after `task.logged_after`
    state TEXT, -- state of a status update; NULL for an artifact update
    push INTEGER NOT NULL DEFAULT 0, -- `task.push` when a run stored the event
    payload BLOB NOT NULL, -- JSON of A2A 1.0
    PRIMARY KEY (agent, task_id, n)
) WITHOUT ROWID

-- Model messages of runs that are not over, for the next attempt.
CREATE TABLE checkpoint (
    agent TEXT NOT NULL,
    task_id TEXT NOT NULL,
    n BIGINT NOT NULL, -- place of the message in the run
    run TEXT NOT NULL, -- id of the run, the same in all its attempts
    taken BIGINT NOT NULL, -- `item.seq` of the newest message that has entered the run while it worked
    used BLOB NOT NULL, -- usage of the run so far, as JSON
    message BLOB NOT NULL, -- the model message, as JSON
    PRIMARY KEY (agent, task_id, n)
) WITHOUT ROWID

-- Encrypted credentials that runs use on behalf of callers, until the end of their task.
CREATE TABLE credential (
    agent TEXT NOT NULL,
    task_id TEXT NOT NULL,
    id TEXT NOT NULL, -- id in the request of the message
    until BIGINT NOT NULL, -- when the credential expires
    body BLOB NOT NULL, -- encrypted
    PRIMARY KEY (agent, task_id, id)
) WITHOUT ROWID

-- Finds expired credentials, which sweeps delete.
CREATE INDEX credential_until ON credential (agent, until)

-- Contexts, as conversations of Pydantic AI.
CREATE TABLE conversation (
    agent TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL, -- the context id
    head_id TEXT, -- `entry.id` of the newest message
    revision TEXT NOT NULL, -- changes with each write
    updated_at BIGINT NOT NULL,
    listed_at BIGINT, -- an `updated_at` of now or before, for sweeps; NULL: not listed; see the module `runs`
    record BLOB NOT NULL, -- the whole ConversationRecord, as JSON
    PRIMARY KEY (agent, owner, id)
) WITHOUT ROWID

-- Finds the oldest conversations.
CREATE INDEX conversation_listed ON conversation (agent, listed_at) WHERE listed_at IS NOT NULL

-- Model messages of conversations. Conversations that were forked share them.
CREATE TABLE entry (
    agent TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    parent_id TEXT, -- the message before; NULL for the first one
    next_id TEXT, -- the message after it in the same turn; NULL for the last one
    follows INTEGER NOT NULL DEFAULT 0, -- 1: `parent_id` is a message of the same turn, and names this one as `next_id`
    message BLOB NOT NULL, -- the model message, as JSON
    PRIMARY KEY (agent, owner, id)
)

-- Finds the turns that follow a message.
CREATE INDEX entry_parent ON entry (agent, owner, parent_id) WHERE parent_id IS NOT NULL AND follows = 0

-- Newest messages of the branches that a conversation has left, and of conversations that share the newest message.
CREATE TABLE conversation_branch (
    agent TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL, -- the conversation
    tip TEXT NOT NULL, -- `entry.id`
    PRIMARY KEY (agent, owner, tip, id)
) WITHOUT ROWID

-- Newest messages of erased conversations: sweeps delete these messages, and those before them.
CREATE TABLE entry_erased (
    agent TEXT NOT NULL,
    owner TEXT NOT NULL,
    tip TEXT NOT NULL, -- `entry.id`
    PRIMARY KEY (agent, owner, tip)
) WITHOUT ROWID

-- Owners and contexts that are being erased: their messages are refused.
CREATE TABLE erasure (
    agent TEXT NOT NULL,
    owner TEXT NOT NULL,
    context_id TEXT NOT NULL, -- empty for all contexts of the owner
    until BIGINT NOT NULL, -- when messages are accepted again, unless the erasure continues
    PRIMARY KEY (agent, owner, context_id)
) WITHOUT ROWID

-- Webhooks of tasks.
CREATE TABLE push_config (
    seq INTEGER PRIMARY KEY,
    agent TEXT NOT NULL,
    task_id TEXT NOT NULL,
    owner TEXT NOT NULL, -- owner of the task
    id TEXT NOT NULL, -- id that clients use
    version TEXT NOT NULL, -- codec that writes the notifications
    takes INTEGER NOT NULL, -- 0: statuses, 1: whole artifacts, too, 2: every chunk
    due_at BIGINT, -- when the next delivery is tried: clock of leases, 0 for at once; NULL: there is none
    lease BIGINT NOT NULL DEFAULT 0, -- number of leases; a sender with an older number changes nothing
    body BLOB NOT NULL -- the configuration with its credentials, encrypted if the server has a key
)

-- Finds a webhook by its id, and the webhooks of a task.
CREATE UNIQUE INDEX push_config_id ON push_config (agent, task_id, id)

-- Finds the webhooks whose delivery is due. Those of an owner are passed over without a look at their rows.
CREATE INDEX push_config_due ON push_config (agent, due_at, seq, owner) WHERE due_at IS NOT NULL

-- Events that a webhook has not received.
CREATE TABLE delivery (
    seq INTEGER PRIMARY KEY, -- order of the deliveries
    agent TEXT NOT NULL,
    task_id TEXT NOT NULL,
    config BIGINT NOT NULL, -- `push_config.seq`
    id TEXT NOT NULL, -- the same in each attempt
    n BIGINT NOT NULL, -- number, state and payload of the event
    state TEXT,
    failures INTEGER NOT NULL DEFAULT 0, -- attempts that have failed
    error TEXT, -- why the last attempt failed
    died_at BIGINT, -- when the sender gave up
    payload BLOB NOT NULL
)

-- Finds a delivery by its id.
CREATE UNIQUE INDEX delivery_id ON delivery (agent, id)

-- Finds the next delivery of a webhook.
CREATE INDEX delivery_next ON delivery (agent, config, seq) WHERE died_at IS NULL

-- Finds the deliveries of a task.
CREATE INDEX delivery_task ON delivery (agent, task_id)

-- Lists dead deliveries.
CREATE INDEX delivery_dead ON delivery (agent, died_at, id) WHERE died_at IS NOT NULL

-- Rates of requests.
CREATE TABLE bucket (
    agent TEXT NOT NULL,
    subject TEXT NOT NULL, -- who is counted: a caller or a tenant
    name TEXT NOT NULL, -- which rate
    full_at BIGINT NOT NULL, -- when the whole burst is free again (microseconds since the epoch)
    PRIMARY KEY (agent, subject, name)
) WITHOUT ROWID

-- Finds full buckets, which sweeps delete.
CREATE INDEX bucket_full ON bucket (agent, full_at)

-- What runs have used, in sliding windows.
CREATE TABLE spending (
    agent TEXT NOT NULL,
    subject TEXT NOT NULL, -- who is charged: a caller or a tenant
    span BIGINT NOT NULL, -- length of the window (ms)
    until BIGINT NOT NULL, -- when the row no longer counts
    requests BIGINT NOT NULL, -- requests to models
    tokens BIGINT NOT NULL,
    cost BIGINT NOT NULL, -- billionths of a US dollar
    PRIMARY KEY (agent, subject, span, until)
) WITHOUT ROWID

-- Finds rows that no longer count, which sweeps delete.
CREATE INDEX spending_until ON spending (agent, until)

-- Numbers of filed tasks and of listed conversations, up to the last sweep: see the module `reads`.
CREATE TABLE total (
    agent TEXT NOT NULL,
    owner TEXT NOT NULL, -- empty for all owners together
    kind TEXT NOT NULL, -- state of the tasks, or 'conversation'
    number BIGINT NOT NULL,
    PRIMARY KEY (agent, owner, kind)
) WITHOUT ROWID

-- Changes of totals since the last sweep.
CREATE TABLE total_change (
    seq INTEGER PRIMARY KEY,
    agent TEXT NOT NULL,
    owner TEXT NOT NULL,
    old_kind TEXT, -- counted once less
    new_kind TEXT -- counted once more
)

CREATE TRIGGER task_filed AFTER UPDATE OF filed ON task FOR EACH ROW WHEN (OLD.filed = 0 AND NEW.filed = 1) BEGIN
    INSERT INTO total_change (agent, owner, new_kind) VALUES (NEW.agent, NEW.owner, NEW.state);
END

CREATE TRIGGER task_moved AFTER UPDATE OF filed ON task FOR EACH ROW WHEN (OLD.filed = 1 AND NEW.filed = 0) BEGIN
    INSERT INTO total_change (agent, owner, old_kind) VALUES (NEW.agent, NEW.owner, OLD.state);
END

CREATE TRIGGER task_deleted AFTER DELETE ON task FOR EACH ROW WHEN (OLD.filed = 1) BEGIN
    INSERT INTO total_change (agent, owner, old_kind) VALUES (OLD.agent, OLD.owner, OLD.state);
END

CREATE TRIGGER conversation_added AFTER INSERT ON conversation FOR EACH ROW WHEN (NEW.listed_at IS NOT NULL) BEGIN
    INSERT INTO total_change (agent, owner, new_kind) VALUES (NEW.agent, '', 'conversation');
END

CREATE TRIGGER conversation_listed AFTER UPDATE OF listed_at ON conversation FOR EACH ROW
    WHEN (OLD.listed_at IS NULL AND NEW.listed_at IS NOT NULL) BEGIN
    INSERT INTO total_change (agent, owner, new_kind) VALUES (NEW.agent, '', 'conversation');
END

CREATE TRIGGER conversation_deleted AFTER DELETE ON conversation FOR EACH ROW WHEN (OLD.listed_at IS NOT NULL) BEGIN
    INSERT INTO total_change (agent, owner, old_kind) VALUES (OLD.agent, '', 'conversation');
END
"""
_KEEPS_UP = """
-- The oldest version of the schema whose processes may use the database: the maximum of all steps. A step that such
-- processes cannot bear raises it: UPDATE a2a_schema SET min_reader = ...
ALTER TABLE a2a_schema ADD COLUMN min_reader INTEGER NOT NULL DEFAULT 8

-- The queue of a namespace. A missing row means: none counted, not paused.
CREATE TABLE queue (
    agent TEXT PRIMARY KEY,
    queued BIGINT NOT NULL DEFAULT 0, -- tasks in the queue: see the module `contexts`
    counted_at BIGINT NOT NULL DEFAULT 0, -- time of the count: clock of leases
    paused_at BIGINT -- since when no task is claimed; NULL: tasks are claimed
)

-- Finds the tasks without a holder that a worker may take now, in their order. A renewed lease changes no index.
CREATE INDEX task_released ON task (agent, holder, queue_seq)
    WHERE state = 'working' AND queued = 0 AND holder IS NULL

-- Lists failed tasks. With one condition alone, SQLite would take the index for other queries.
CREATE INDEX task_failed ON task (agent, status_at, id) WHERE state = 'failed' AND failure IS NOT NULL

-- Processes that read tasks or run tasks. In PostgreSQL, each listens to a channel of its own.
CREATE TABLE process (
    agent TEXT NOT NULL,
    id TEXT NOT NULL,
    until BIGINT NOT NULL, -- until when the process counts, unless it renews this time: clock of leases
    hears INTEGER NOT NULL, -- notifications: 0 none, 1 of tasks that it reads, 2 of readers too, 3 of queued tasks too
    PRIMARY KEY (agent, id)
) WITHOUT ROWID

-- The tasks that processes read, or wait for, and do not run.
CREATE TABLE reader (
    agent TEXT NOT NULL,
    task_id TEXT NOT NULL,
    process TEXT NOT NULL, -- `process.id`
    wants INTEGER NOT NULL, -- 0 the end of the run, 1 the events, 2 live text, too
    PRIMARY KEY (agent, task_id, process)
) WITHOUT ROWID

-- Finds the tasks of a process.
CREATE INDEX reader_process ON reader (agent, process)
"""
_ENGINES = """
-- Data of runs at an engine such as Temporal, which keeps only the ids: no text lies there, and no value is too large.
CREATE TABLE payload (
    agent TEXT NOT NULL,
    task_id TEXT NOT NULL,
    id TEXT NOT NULL, -- unique in the task
    body BLOB NOT NULL,
    PRIMARY KEY (agent, task_id, id)
) WITHOUT ROWID
"""
_NEXT_TASKS = """
-- The claim whose end has claimed this task: see the module `claims`.
ALTER TABLE task ADD COLUMN begun_by TEXT
"""
TENANT = "substr(NEW.owner, 1, instr(NEW.owner, '/') - 1)"
_PENDING = "replace(replace(CAST(NEW.pending AS TEXT), 'Infinity', '0'), 'NaN', '0')"
"""Infinite numbers and NaN are no JSON for databases."""
HAS_OPEN_APPROVAL = f"""CASE WHEN json_valid({_PENDING}) THEN EXISTS (
        SELECT 1 FROM json_each({_PENDING}, '$.calls') AS waiting
        WHERE json_extract(waiting.value, '$.kind') = 'approval' AND NOT EXISTS (
            SELECT 1 FROM json_each({_PENDING}, '$.answers') AS answered
            WHERE answered.key = json_extract(waiting.value, '$.id')
        )
    ) ELSE FALSE END"""
"""A call of the pending JSON is an approval without an answer, as in `Pending.open`."""
_ADD_APPROVAL = f"""INSERT INTO approval (agent, tenant, status_at, task_id, owner)
    SELECT NEW.agent, {TENANT}, NEW.status_at, NEW.id, NEW.owner{{of}}
    WHERE NEW.state = 'input-required' AND NEW.pending IS NOT NULL AND {HAS_OPEN_APPROVAL}"""
_APPROVALS = f"""
-- Tasks with an open approval, so that approvers find them. Only triggers write this table, so that it also has what
-- processes of earlier versions store.
CREATE TABLE approval (
    agent TEXT NOT NULL,
    tenant TEXT NOT NULL, -- tenant of the owner
    status_at BIGINT NOT NULL, -- time of the status
    task_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    PRIMARY KEY (agent, tenant, status_at, task_id, owner)
) WITHOUT ROWID

-- Finds the row of a task.
CREATE UNIQUE INDEX approval_task ON approval (agent, task_id)

CREATE TRIGGER task_waits AFTER UPDATE OF state, status_at, pending ON task FOR EACH ROW
    WHEN (OLD.state = 'input-required' OR NEW.state = 'input-required') BEGIN
    DELETE FROM approval WHERE agent = OLD.agent AND task_id = OLD.id;
    {_ADD_APPROVAL.format(of='')};
END

CREATE TRIGGER waiting_task_deleted AFTER DELETE ON task FOR EACH ROW WHEN (OLD.state = 'input-required') BEGIN
    DELETE FROM approval WHERE agent = OLD.agent AND task_id = OLD.id;
END

{_ADD_APPROVAL.format(of=' FROM task AS NEW')}

-- Random keys of a namespace, which no client gets.
CREATE TABLE secret (
    agent TEXT NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL, -- 32 bytes
    PRIMARY KEY (agent, name)
) WITHOUT ROWID

-- Calls of the hook `on_waiting` that have not returned yet, one for each pause of a task.
CREATE TABLE hook_call (
    agent TEXT NOT NULL,
    task_id TEXT NOT NULL,
    run BIGINT NOT NULL, -- `task.run` of the run that has paused
    due_at BIGINT NOT NULL, -- until when the call belongs to a process: clock of leases
    PRIMARY KEY (agent, task_id, run)
) WITHOUT ROWID

-- Finds the calls of processes that have died.
CREATE INDEX hook_call_due ON hook_call (agent, due_at)
"""
SCHEMA, _ADDED, ENGINES, APPROVALS, NEXT_TASKS = (
    tuple(text.strip().split('\n\n')) for text in (_SQL, _KEEPS_UP, _ENGINES, _APPROVALS, _NEXT_TASKS)
)
INDEX = re.compile(r'CREATE (UNIQUE )?INDEX (\w+) ON ')
KEEPS_UP = tuple(statement for statement in _ADDED if not INDEX.search(statement))
KEEPS_UP_INDEXES = tuple(statement for statement in _ADDED if INDEX.search(statement))
