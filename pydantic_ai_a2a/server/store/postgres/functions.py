"""PL/pgSQL functions, created by the steps of the schema. A call of a function is one common transaction.

The functions exist for speed. A generator of `server.store.sql` takes a round trip for each step, and a call takes one.
The generators take 4 steps for the start of a task, 6 for a task that has to wait, 3 for events, 5 for a checkpoint and
5 to file tasks. For the end they take 7, and 3 more to claim the next task.

A function takes the locks of the generator first and then checks. At READ COMMITTED each statement of a VOLATILE
function sees what others have committed before the statement. In a case that is not common, a function *declines*: it
writes nothing and returns FALSE in `out_done`, and the generator does the whole write. Each function declines if the
transaction has another isolation, or is read-only. The generator is the oracle of the tests.

A connection may break after the commit of a call, and before its answer. Then the call is repeated. Its function
notices that the work is done, or declines, or writes the same rows once more.

`function_calls` decides which writes are calls. The text is translated like the statements of `server.store.sql`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..sql.claims import FIND_QUEUED, FIND_RELEASED, TAKE_NEXT
from ..sql.filing import EVERY
from ..sql.migrations import FIRST
from ..sql.queue_order import BEHIND, QUEUE_SEQ, ROUND
from ..sql.queue_pause import PAUSED

_BEGIN = """
    -- The defaults of the database may differ. A snapshot from before the lock would miss the writes of lock holders.
    IF current_setting('transaction_isolation') <> 'read committed'
        OR current_setting('transaction_read_only') = 'on' THEN
        RETURN;
    END IF;
    -- An assignment takes 0.5 us. PERFORM runs a query, and takes 3 us.
    ignored := set_config('lock_timeout', in_lock_timeout, TRUE);"""
_LOCK = """
    ignored := pg_advisory_xact_lock(in_lock);"""
_CONTEXT = ('in_agent', 'in_owner', 'in_context')
_IS_NEW = """NOT EXISTS (SELECT 1 FROM item WHERE agent = in_agent AND owner = in_owner AND replay_key = in_replay_key)
            AND NOT EXISTS (SELECT 1 FROM erasure WHERE agent = in_agent AND owner = in_owner)"""

# Mirrors `emitting.emit` for events without a status and without a checkpoint, of a task that was claimed without a
# webhook. Declines if the claim is lost, if the task has a webhook now, or if the events are stored already: the
# generator raises `LeaseLost`, or adds deliveries, or finds that an earlier commit had no answer.
_EMIT = f"""
CREATE OR REPLACE FUNCTION a2a_emit(
    in_lock_timeout TEXT, in_agent TEXT, in_id TEXT, in_fence BIGINT, in_holder TEXT, in_numbers BIGINT[],
    in_states TEXT[], in_payloads BYTEA[], OUT out_done BOOLEAN
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ignored TEXT;
BEGIN
    out_done := FALSE;{_BEGIN}
    -- The lock of the task and its conditions are one statement, which reads the newest row after a wait for the lock.
    INSERT INTO event (agent, task_id, n, state, payload)
    SELECT in_agent, in_id, added.* FROM (
        SELECT 1 FROM task WHERE agent = in_agent AND id = in_id AND fence = in_fence AND holder = in_holder
            AND state = 'working' AND push = 0 FOR NO KEY UPDATE
    ) AS held, unnest(in_numbers, in_states, in_payloads) AS added (n, state, payload)
    ON CONFLICT DO NOTHING;
    out_done := FOUND;
END $$
"""

# Mirrors `emitting.emit` with a checkpoint, with or without events, and declines like `a2a_emit`.
_CHECKPOINT = f"""
CREATE OR REPLACE FUNCTION a2a_checkpoint(
    in_lock_timeout TEXT, in_agent TEXT, in_id TEXT, in_fence BIGINT, in_holder TEXT, in_numbers BIGINT[],
    in_states TEXT[], in_payloads BYTEA[], in_first BIGINT, in_run TEXT, in_taken BIGINT, in_used BYTEA,
    in_messages BYTEA[], OUT out_done BOOLEAN
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ignored TEXT;
BEGIN
    out_done := FALSE;{_BEGIN}
    PERFORM 1 FROM task WHERE agent = in_agent AND id = in_id AND fence = in_fence AND holder = in_holder
        AND state = 'working' AND push = 0 FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF cardinality(in_numbers) > 0 THEN
        INSERT INTO event (agent, task_id, n, state, payload)
        SELECT in_agent, in_id, added.* FROM unnest(in_numbers, in_states, in_payloads) AS added (n, state, payload)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            RETURN; -- the answer of a committed call was lost
        END IF;
    END IF;
    DELETE FROM checkpoint WHERE agent = in_agent AND task_id = in_id AND n >= in_first;
    INSERT INTO checkpoint (agent, task_id, n, run, message, used, taken)
    SELECT in_agent, in_id, in_first + added.n - 1, in_run, added.message, in_used, in_taken
    FROM unnest(in_messages) WITH ORDINALITY AS added (message, n);
    out_done := TRUE;
END $$
"""

# Mirrors `finishing.finish` for a task that completes in its only run, with its artifacts, without charges of quotas,
# and without a rewritten conversation. Declines if the claim is lost (also by an earlier call: the generator finds the
# stored end), if the task has a webhook, a status message or the turn of a pause, if a message is unread, if another
# task of the context waits, or if the conversation has changed since its record was read.
_FINISH = f"""
CREATE OR REPLACE FUNCTION a2a_finish(
    in_lock_timeout TEXT, in_lock BIGINT, in_agent TEXT, in_owner TEXT, in_id TEXT, in_context TEXT, in_fence BIGINT,
    in_holder TEXT, in_read BIGINT, in_status_at BIGINT, in_status_message BYTEA, in_metadata BYTEA, in_ending BYTEA,
    in_numbers BIGINT[], in_states TEXT[], in_payloads BYTEA[], in_entries TEXT[], in_parents TEXT[],
    in_messages BYTEA[], in_next TEXT[], in_follows INTEGER[], in_known TEXT, in_head TEXT, in_revision TEXT,
    in_record BYTEA, OUT out_done BOOLEAN
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ignored TEXT;
    logged BIGINT;
    alone BOOLEAN;
    checkpointed BOOLEAN;
BEGIN
    out_done := FALSE;{_BEGIN}{_LOCK}
    SELECT logged_after INTO logged FROM task WHERE agent = in_agent AND id = in_id AND fence = in_fence
        AND holder = in_holder AND state = 'working' AND run = 1 AND push = 0 AND status_message IS NULL
        AND own_usage IS NULL AND own_messages IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- A statement after the lock of the task: it sees a message that was added during the wait for the lock.
    SELECT NOT EXISTS (SELECT 1 FROM item WHERE agent = in_agent AND task_id = in_id AND kind = 'message'
            AND seq > in_read AND answer = 0)
        AND NOT EXISTS (SELECT 1 FROM task WHERE agent = in_agent AND owner = in_owner AND context_id = in_context
            AND queued = 1)
        AND in_known IS NOT DISTINCT FROM
            (SELECT revision FROM conversation WHERE agent = in_agent AND owner = in_owner AND id = in_context),
        EXISTS (SELECT 1 FROM checkpoint WHERE agent = in_agent AND task_id = in_id)
    INTO alone, checkpointed;
    IF NOT alone THEN
        RETURN;
    END IF;
    IF checkpointed THEN
        DELETE FROM checkpoint WHERE agent = in_agent AND task_id = in_id;
    END IF;
    IF logged IS NOT NULL THEN
        INSERT INTO event (agent, task_id, n, state, payload)
        SELECT in_agent, in_id, n, state, payload FROM unnest(in_numbers, in_states, in_payloads)
            AS added (n, state, payload);
    END IF;
    INSERT INTO entry (agent, owner, id, parent_id, message, next_id, follows)
    SELECT in_agent, in_owner, added.* FROM unnest(in_entries, in_parents, in_messages, in_next, in_follows) AS added;
    INSERT INTO conversation (agent, owner, id, head_id, revision, updated_at, record)
    VALUES (in_agent, in_owner, in_context, in_head, in_revision, in_status_at, in_record)
    ON CONFLICT (agent, owner, id) DO UPDATE SET head_id = excluded.head_id, revision = excluded.revision,
        updated_at = excluded.updated_at, record = excluded.record;
    UPDATE task SET state = 'completed', status_at = in_status_at, status_message = in_status_message,
        metadata = in_metadata, last_event = in_numbers[cardinality(in_numbers)],
        stop_event = in_numbers[cardinality(in_numbers)], failure = NULL, inbox_read = in_read, ending = in_ending,
        pending = NULL, context_head = NULL, answer = NULL, holder = NULL, lease_until = NULL, cancel_requested = 0
    WHERE agent = in_agent AND id = in_id;
    out_done := TRUE;
END $$
"""

# Mirrors `filing.file`: a batch of stopped tasks, and the conversations of these tasks. Locked tasks and conversations
# are filed later, and tasks in an unknown state never. The condition repeats that of the index `task_unfiled`.
#
# PostgreSQL plans the statements of a new database without statistics, and keeps plans that read each row of an agent
# until the next round of autovacuum, up to a minute later. So the first full batch analyzes the tables, if the role
# owns them.
_FILE = f"""
CREATE OR REPLACE FUNCTION a2a_file(
    in_lock_timeout TEXT, in_agent TEXT, in_limit BIGINT, OUT out_done BOOLEAN, OUT out_more INTEGER
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ignored TEXT;
    ids TEXT[];
BEGIN
    out_done := FALSE;{_BEGIN}
    IF (SELECT reltuples < 0 AND pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = CAST('task' AS regclass))
        AND EXISTS (SELECT 1 FROM task WHERE agent = in_agent AND filed = 0
            AND state NOT IN ('submitted', 'working') OFFSET {EVERY - 1}) THEN
        ANALYZE task, item, event, entry, conversation;
    END IF;
    ids := ARRAY(SELECT id FROM task WHERE agent = in_agent AND filed = 0 AND state NOT IN ('submitted', 'working')
        AND state IN ('auth-required', 'canceled', 'completed', 'failed', 'input-required', 'rejected')
        ORDER BY owner, status_at LIMIT in_limit FOR NO KEY UPDATE SKIP LOCKED);
    UPDATE task SET filed = 1 WHERE agent = in_agent AND id = ANY (ids);
    UPDATE conversation SET listed_at = updated_at FROM (
        SELECT c.owner, c.id FROM task CROSS JOIN conversation c WHERE task.agent = in_agent AND task.id = ANY (ids)
            AND c.agent = task.agent AND c.owner = task.owner AND c.id = task.context_id AND c.listed_at IS NULL
        FOR NO KEY UPDATE OF c SKIP LOCKED
    ) AS unlisted
    WHERE conversation.agent = in_agent AND conversation.owner = unlisted.owner AND conversation.id = unlisted.id;
    out_done := TRUE;
    out_more := CAST(cardinality(ids) = in_limit AS INTEGER);
END $$
"""


def _named(sql: str, *names: str) -> str:
    """Return SQL with the names of arguments in place of the placeholders."""
    for name in names:
        sql = sql.replace('?', name, 1)
    return sql


# Mirrors `submitting.submit` for a message that begins a task, without a webhook and without limits of tasks
# (`begins_alone`). With a holder, the task starts at once, unless the queue is paused, another task waits for a worker,
# or a task of the context runs. Else the task waits. A task that starts at once has no round, so the owner's rounds are
# not locked. Declines if the message was sent before, or if data of the owner is being erased: the generator returns
# the task of the first message, or refuses the message.
_SUBMIT = f"""
CREATE OR REPLACE FUNCTION a2a_submit(
    in_lock_timeout TEXT, in_lock BIGINT, in_agent TEXT, in_owner TEXT, in_id TEXT, in_context TEXT, in_dialect TEXT,
    in_traceparent TEXT, in_at BIGINT, in_place BIGINT, in_request BYTEA, in_logged_after BIGINT,
    in_reader TEXT, in_wants INTEGER, in_replay_key TEXT, in_digest BYTEA, in_message BYTEA, in_event BYTEA,
    in_rounds BIGINT, in_holder TEXT, in_lease BIGINT, OUT out_done BOOLEAN, OUT out_claimed BOOLEAN, OUT out_head TEXT
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    ignored TEXT;
BEGIN
    out_done := FALSE;
    out_claimed := FALSE;{_BEGIN}{_LOCK}
    IF in_holder IS NOT NULL THEN
        INSERT INTO task (agent, id, owner, context_id, dialect, traceparent, state, status_at, queue_seq, request,
            logged_after, replay_key, digest, accepted_at, message, last_event, holder, lease_until, fence, attempt,
            run)
        SELECT in_agent, in_id, in_owner, in_context, in_dialect, in_traceparent, 'working', in_at, in_place,
            in_request, in_logged_after, in_replay_key, in_digest, in_at, in_message, 1, in_holder,
            a2a_clock() + in_lease, 1, 1, 1
        WHERE {_IS_NEW} AND NOT EXISTS ({PAUSED} in_agent)
            AND NOT EXISTS (SELECT 1 FROM task WHERE agent = in_agent AND queued = 1 AND behind = 0)
        ON CONFLICT DO NOTHING
        RETURNING (SELECT head_id FROM conversation WHERE agent = in_agent AND owner = in_owner AND id = in_context)
        INTO out_head;
        out_claimed := FOUND;
    END IF;
    IF out_claimed AND in_logged_after IS NOT NULL THEN
        INSERT INTO event (agent, task_id, n, state, payload) VALUES (in_agent, in_id, 1, 'working', in_event);
    END IF;
    IF NOT out_claimed THEN
        ignored := pg_advisory_xact_lock(in_rounds);
        INSERT INTO task (agent, id, owner, context_id, dialect, traceparent, state, status_at, queue_seq, request,
            logged_after, replay_key, digest, accepted_at, message, queued, behind, round)
        SELECT in_agent, in_id, in_owner, in_context, in_dialect, in_traceparent, 'submitted', in_at,
            {_named(QUEUE_SEQ, 'in_place', *_CONTEXT)},
            in_request, in_logged_after, in_replay_key, in_digest, in_at, in_message, 1,
            {_named(BEHIND, *_CONTEXT)},
            {_named(ROUND, 'in_agent', 'in_agent', 'in_owner')}
        WHERE {_IS_NEW}
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            -- The task has this place if this call is repeated, because the answer of a committed call was lost. The
            -- worker may have claimed it from the queue since, but not at the time of the message.
            SELECT state = 'working' AND holder = in_holder AND fence = 1 AND run = 1 AND status_at = in_at
            INTO out_claimed FROM task WHERE agent = in_agent AND id = in_id AND queue_seq >= in_place;
            IF NOT FOUND THEN
                RETURN;
            END IF;
            out_head := (SELECT head_id FROM conversation
                WHERE agent = in_agent AND owner = in_owner AND id = in_context);
        ELSIF in_reader IS NOT NULL THEN
            INSERT INTO reader (agent, task_id, process, wants) VALUES (in_agent, in_id, in_reader, in_wants)
            ON CONFLICT (agent, task_id, process) DO NOTHING;
        END IF;
    END IF;
    out_done := TRUE;
END $$
"""

# Mirrors `claims.take_next`, in one statement with `a2a_finish`, which says by `in_done` if the task has ended.
_RUN_ROW = """
    out_id TEXT, out_context_id TEXT, out_owner TEXT, out_state TEXT, out_status_at BIGINT, out_status_message BYTEA,
    out_metadata BYTEA, out_dialect TEXT, out_queued INTEGER, out_newest_event BIGINT, out_holder TEXT,
    out_fence BIGINT, out_attempt INTEGER, out_run INTEGER, out_turn INTEGER, out_tried BYTEA, out_request BYTEA,
    out_traceparent TEXT, out_own_messages BYTEA, out_pending BYTEA, out_head_at_pause TEXT, out_head_now TEXT,
    out_answer BIGINT, out_inbox_read BIGINT, out_prompt BIGINT, out_message BYTEA, out_push INTEGER,
    out_logged_after BIGINT, out_checkpointed BOOLEAN, out_wanted INTEGER"""
"""The columns of a `claims.RunRow`."""
_TAKE_NEXT = _named(TAKE_NEXT, 'in_at', 'in_holder', 'in_lease', 'in_ended', 'in_agent', 'queued_id', 'in_holder')
_NEXT = f"""
CREATE OR REPLACE FUNCTION a2a_next(
    in_done BOOLEAN, in_agent TEXT, in_at BIGINT, in_holder TEXT, in_lease BIGINT, in_ended TEXT
) RETURNS TABLE ({_RUN_ROW}
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    queued_id TEXT;
BEGIN
    IF NOT in_done THEN
        RETURN;
    END IF;
    PERFORM id FROM ({_named(FIND_RELEASED, 'in_agent', 'in_agent', '1')}) AS released;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT id INTO queued_id FROM ({_named(FIND_QUEUED, 'in_agent', 'in_agent', '1')}) AS queued;
    RETURN QUERY {_TAKE_NEXT};
END $$
"""

# Whether a call of the JSON in `task.pending` is an approval without an answer: for the triggers of `approval`.
# PostgreSQL does not read all escapes of JSON, such as \u0000. They are dropped, also from ids of calls. Infinite
# numbers and NaN are no JSON for PostgreSQL.
_HAS_OPEN_APPROVAL = r"""
CREATE FUNCTION a2a_has_open_approval(pending BYTEA) RETURNS BOOLEAN
LANGUAGE plpgsql IMMUTABLE SET standard_conforming_strings TO on AS $$
DECLARE
    written TEXT;
    parsed JSON;
BEGIN
    written := replace(replace(convert_from(pending, 'UTF8'), 'Infinity', '0'), 'NaN', '0');
    parsed := regexp_replace(written, '(\\\\)|\\u[0-9A-Fa-f]{4}', '\1', 'g');
    RETURN EXISTS (
        SELECT 1 FROM json_array_elements(parsed -> 'calls') AS waiting
        WHERE waiting ->> 'kind' = 'approval' AND parsed -> 'answers' -> (waiting ->> 'id') IS NULL
    );
EXCEPTION WHEN data_exception THEN
    RETURN FALSE; -- damaged
END $$
"""


FUNCTIONS: Mapping[int, Sequence[str]] = {
    FIRST + 1: (_SUBMIT, _EMIT, _CHECKPOINT, _FINISH, _FILE),
    FIRST + 4: (_HAS_OPEN_APPROVAL,),
    FIRST + 5: (_NEXT, _FILE),
}
"""The functions that each step of the schema creates or replaces, before the statements of the step.

Processes of the version before call them too. A function with other arguments, or another result, gets a new name.
"""
