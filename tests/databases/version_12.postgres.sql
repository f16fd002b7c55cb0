SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
CREATE SCHEMA a2a;
CREATE FUNCTION a2a.a2a_checkpoint(in_lock_timeout text, in_agent text, in_id text, in_fence bigint, in_holder text, in_numbers bigint[], in_states text[], in_payloads bytea[], in_first bigint, in_run text, in_taken bigint, in_used bytea, in_messages bytea[], OUT out_done boolean) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$
DECLARE
    ignored TEXT;
BEGIN
    out_done := FALSE;
    -- The defaults of the database may differ. A snapshot from before the lock would miss the writes of lock holders.
    IF current_setting('transaction_isolation') <> 'read committed'
        OR current_setting('transaction_read_only') = 'on' THEN
        RETURN;
    END IF;
    -- An assignment takes 0.5 us. PERFORM runs a query, and takes 3 us.
    ignored := set_config('lock_timeout', in_lock_timeout, TRUE);
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
END $$;
CREATE FUNCTION a2a.a2a_emit(in_lock_timeout text, in_agent text, in_id text, in_fence bigint, in_holder text, in_numbers bigint[], in_states text[], in_payloads bytea[], OUT out_done boolean) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$
DECLARE
    ignored TEXT;
BEGIN
    out_done := FALSE;
    -- The defaults of the database may differ. A snapshot from before the lock would miss the writes of lock holders.
    IF current_setting('transaction_isolation') <> 'read committed'
        OR current_setting('transaction_read_only') = 'on' THEN
        RETURN;
    END IF;
    -- An assignment takes 0.5 us. PERFORM runs a query, and takes 3 us.
    ignored := set_config('lock_timeout', in_lock_timeout, TRUE);
    -- The lock of the task and its conditions are one statement, which reads the newest row after a wait for the lock.
    INSERT INTO event (agent, task_id, n, state, payload)
    SELECT in_agent, in_id, added.* FROM (
        SELECT 1 FROM task WHERE agent = in_agent AND id = in_id AND fence = in_fence AND holder = in_holder
            AND state = 'working' AND push = 0 FOR NO KEY UPDATE
    ) AS held, unnest(in_numbers, in_states, in_payloads) AS added (n, state, payload)
    ON CONFLICT DO NOTHING;
    out_done := FOUND;
END $$;
CREATE FUNCTION a2a.a2a_file(in_lock_timeout text, in_agent text, in_limit bigint, OUT out_done boolean, OUT out_more integer) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$
DECLARE
    ignored TEXT;
    ids TEXT[];
BEGIN
    out_done := FALSE;
    -- The defaults of the database may differ. A snapshot from before the lock would miss the writes of lock holders.
    IF current_setting('transaction_isolation') <> 'read committed'
        OR current_setting('transaction_read_only') = 'on' THEN
        RETURN;
    END IF;
    -- An assignment takes 0.5 us. PERFORM runs a query, and takes 3 us.
    ignored := set_config('lock_timeout', in_lock_timeout, TRUE);
    IF (SELECT reltuples < 0 AND pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = CAST('task' AS regclass))
        AND EXISTS (SELECT 1 FROM task WHERE agent = in_agent AND filed = 0
            AND state NOT IN ('submitted', 'working') OFFSET 99) THEN
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
END $$;
CREATE FUNCTION a2a.a2a_finish(in_lock_timeout text, in_lock bigint, in_agent text, in_owner text, in_id text, in_context text, in_fence bigint, in_holder text, in_read bigint, in_status_at bigint, in_status_message bytea, in_metadata bytea, in_ending bytea, in_numbers bigint[], in_states text[], in_payloads bytea[], in_entries text[], in_parents text[], in_messages bytea[], in_next text[], in_follows integer[], in_known text, in_head text, in_revision text, in_record bytea, OUT out_done boolean) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$
DECLARE
    ignored TEXT;
    logged BIGINT;
    alone BOOLEAN;
    checkpointed BOOLEAN;
BEGIN
    out_done := FALSE;
    -- The defaults of the database may differ. A snapshot from before the lock would miss the writes of lock holders.
    IF current_setting('transaction_isolation') <> 'read committed'
        OR current_setting('transaction_read_only') = 'on' THEN
        RETURN;
    END IF;
    -- An assignment takes 0.5 us. PERFORM runs a query, and takes 3 us.
    ignored := set_config('lock_timeout', in_lock_timeout, TRUE);
    ignored := pg_advisory_xact_lock(in_lock);
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
END $$;
CREATE FUNCTION a2a.a2a_has_open_approval(pending bytea) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET standard_conforming_strings TO 'on'
    AS $$
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
END $$;
CREATE FUNCTION a2a.a2a_next(in_done boolean, in_agent text, in_at bigint, in_holder text, in_lease bigint, in_ended text) RETURNS TABLE(out_id text, out_context_id text, out_owner text, out_state text, out_status_at bigint, out_status_message bytea, out_metadata bytea, out_dialect text, out_queued integer, out_newest_event bigint, out_holder text, out_fence bigint, out_attempt integer, out_run integer, out_turn integer, out_tried bytea, out_request bytea, out_traceparent text, out_own_messages bytea, out_pending bytea, out_head_at_pause text, out_head_now text, out_answer bigint, out_inbox_read bigint, out_prompt bigint, out_message bytea, out_push integer, out_logged_after bigint, out_checkpointed boolean, out_wanted integer)
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$
DECLARE
    queued_id TEXT;
BEGIN
    IF NOT in_done THEN
        RETURN;
    END IF;
    PERFORM id FROM (SELECT id, holder IS NULL AND lease_until IS NOT NULL AS tried FROM task WHERE agent = in_agent AND NOT EXISTS (SELECT 1 FROM queue WHERE paused_at IS NOT NULL AND queue.agent = in_agent) AND state = 'working' AND queued = 0 AND holder IS NULL AND COALESCE(lease_until, 0) <= (SELECT CAST(EXTRACT(epoch FROM clock_timestamp()) * 1000 AS BIGINT)) ORDER BY 2, queue_seq LIMIT 1  FOR NO KEY UPDATE SKIP LOCKED ) AS released;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT id INTO queued_id FROM (SELECT id FROM task WHERE agent = in_agent AND NOT EXISTS (SELECT 1 FROM queue WHERE paused_at IS NOT NULL AND queue.agent = in_agent) AND queued = 1 AND behind = 0 AND NOT EXISTS (SELECT 1 FROM task e WHERE e.agent = task.agent AND e.owner = task.owner AND e.context_id = task.context_id AND e.state = 'working' AND e.queued = 0) AND NOT EXISTS (SELECT 1 FROM task e WHERE e.agent = task.agent AND e.owner = task.owner AND e.context_id = task.context_id AND e.queued = 1 AND e.queue_seq < task.queue_seq) ORDER BY round, queue_seq LIMIT 1  FOR NO KEY UPDATE SKIP LOCKED ) AS queued;
    RETURN QUERY UPDATE task SET state = 'working', status_at = CASE state WHEN 'working' THEN status_at ELSE in_at END, queued = 0, holder = in_holder, lease_until = CAST(EXTRACT(epoch FROM clock_timestamp()) * 1000 AS BIGINT) + in_lease, fence = fence + 1, begun_by = in_ended, last_event = CASE state WHEN 'submitted' THEN 1 ELSE last_event END, attempt = attempt + CASE WHEN holder IS NOT NULL OR attempt = 0 THEN 1 ELSE 0 END, run = CASE run WHEN 0 THEN 1 ELSE run END WHERE agent = in_agent AND id = queued_id AND logged_after IS NULL AND push = 0 AND own_messages IS NULL AND NOT EXISTS (SELECT 1 FROM checkpoint k WHERE k.agent = task.agent AND k.task_id = task.id) AND (queued IN (1, 2) AND behind = 0 AND NOT EXISTS (SELECT 1 FROM task e WHERE e.agent = task.agent AND e.owner = task.owner AND e.context_id = task.context_id AND e.state = 'working' AND e.queued = 0) AND NOT EXISTS (SELECT 1 FROM task e WHERE e.agent = task.agent AND e.owner = task.owner AND e.context_id = task.context_id AND e.queued = 1 AND e.queue_seq < task.queue_seq) OR state = 'working' AND queued = 0 AND (holder IS NULL OR holder <> in_holder AND lease_until < CAST(EXTRACT(epoch FROM clock_timestamp()) * 1000 AS BIGINT))) AND NOT EXISTS (SELECT 1 FROM queue WHERE paused_at IS NOT NULL AND queue.agent = task.agent) RETURNING id, context_id, owner, state, status_at, status_message, metadata, dialect, queued, COALESCE((SELECT MAX(n) FROM event WHERE event.agent = task.agent AND event.task_id = task.id AND event.n > task.last_event), last_event), holder, fence, attempt, run, turn, tried, COALESCE((SELECT item.request FROM item WHERE item.agent = task.agent AND item.task_id = task.id AND item.kind = 'message' AND item.seq = COALESCE(task.answer, CASE WHEN task.inbox_read = 0 THEN 1 ELSE (SELECT MIN(seq) FROM item WHERE item.agent = task.agent AND item.task_id = task.id AND item.kind = 'message' AND item.seq > task.inbox_read AND item.answer = 0) END)), request), traceparent, own_messages, pending, context_head, (SELECT head_id FROM conversation c WHERE c.agent = task.agent AND c.owner = task.owner AND c.id = task.context_id), answer, inbox_read, CASE WHEN task.inbox_read = 0 THEN 1 ELSE (SELECT MIN(seq) FROM item WHERE item.agent = task.agent AND item.task_id = task.id AND item.kind = 'message' AND item.seq > task.inbox_read AND item.answer = 0) END, COALESCE((SELECT body FROM item WHERE item.agent = task.agent AND item.task_id = task.id AND item.kind = 'message' AND item.seq = COALESCE(task.answer, CASE WHEN task.inbox_read = 0 THEN 1 ELSE (SELECT MIN(seq) FROM item WHERE item.agent = task.agent AND item.task_id = task.id AND item.kind = 'message' AND item.seq > task.inbox_read AND item.answer = 0) END)), message), push, logged_after, EXISTS (SELECT 1 FROM checkpoint k WHERE k.agent = task.agent AND k.task_id = task.id), (SELECT MAX(wants) FROM reader r WHERE r.agent = task.agent AND r.task_id = task.id);
END $$;
CREATE FUNCTION a2a.a2a_submit(in_lock_timeout text, in_lock bigint, in_agent text, in_owner text, in_id text, in_context text, in_dialect text, in_traceparent text, in_at bigint, in_place bigint, in_request bytea, in_logged_after bigint, in_reader text, in_wants integer, in_replay_key text, in_digest bytea, in_message bytea, in_event bytea, in_rounds bigint, in_holder text, in_lease bigint, OUT out_done boolean, OUT out_claimed boolean, OUT out_head text) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$
DECLARE
    ignored TEXT;
BEGIN
    out_done := FALSE;
    out_claimed := FALSE;
    -- The defaults of the database may differ. A snapshot from before the lock would miss the writes of lock holders.
    IF current_setting('transaction_isolation') <> 'read committed'
        OR current_setting('transaction_read_only') = 'on' THEN
        RETURN;
    END IF;
    -- An assignment takes 0.5 us. PERFORM runs a query, and takes 3 us.
    ignored := set_config('lock_timeout', in_lock_timeout, TRUE);
    ignored := pg_advisory_xact_lock(in_lock);
    IF in_holder IS NOT NULL THEN
        INSERT INTO task (agent, id, owner, context_id, dialect, traceparent, state, status_at, queue_seq, request,
            logged_after, replay_key, digest, accepted_at, message, last_event, holder, lease_until, fence, attempt,
            run)
        SELECT in_agent, in_id, in_owner, in_context, in_dialect, in_traceparent, 'working', in_at, in_place,
            in_request, in_logged_after, in_replay_key, in_digest, in_at, in_message, 1, in_holder,
            CAST(EXTRACT(epoch FROM clock_timestamp()) * 1000 AS BIGINT) + in_lease, 1, 1, 1
        WHERE NOT EXISTS (SELECT 1 FROM item WHERE agent = in_agent AND owner = in_owner AND replay_key = in_replay_key)
            AND NOT EXISTS (SELECT 1 FROM erasure WHERE agent = in_agent AND owner = in_owner) AND NOT EXISTS (SELECT 1 FROM queue WHERE paused_at IS NOT NULL AND queue.agent = in_agent)
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
            (SELECT MAX(place) FROM (SELECT CAST(in_place AS BIGINT) AS place UNION ALL SELECT place FROM (SELECT e.queue_seq + 1 AS place FROM task e WHERE e.agent = in_agent AND e.owner = in_owner AND e.context_id = in_context AND e.queued = 1 ORDER BY e.queue_seq DESC LIMIT 1) AS newest) AS places),
            in_request, in_logged_after, in_replay_key, in_digest, in_at, in_message, 1,
            CASE WHEN EXISTS (SELECT 1 FROM (SELECT CAST(in_agent AS TEXT) AS agent, CAST(in_owner AS TEXT) AS owner, CAST(in_context AS TEXT) AS context_id) AS n WHERE EXISTS (SELECT 1 FROM task e WHERE e.agent = n.agent AND e.owner = n.owner AND e.context_id = n.context_id AND e.state = 'working' AND e.queued = 0) OR EXISTS (SELECT 1 FROM task e WHERE e.agent = n.agent AND e.owner = n.owner AND e.context_id = n.context_id AND e.queued = 1)) THEN 1 ELSE 0 END,
            (SELECT COALESCE(MAX(round), 0) FROM (SELECT (SELECT q.round FROM task q WHERE q.agent = in_agent AND q.queued = 1 AND q.behind = 0 ORDER BY q.round, q.queue_seq LIMIT 1) AS round UNION ALL SELECT (SELECT q.round + 1 FROM task q WHERE q.agent = in_agent AND q.queued = 1 AND q.behind = 0 AND q.owner = in_owner ORDER BY q.round DESC LIMIT 1)) AS rounds)
        WHERE NOT EXISTS (SELECT 1 FROM item WHERE agent = in_agent AND owner = in_owner AND replay_key = in_replay_key)
            AND NOT EXISTS (SELECT 1 FROM erasure WHERE agent = in_agent AND owner = in_owner)
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
END $$;
CREATE FUNCTION a2a.conversation_added() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$ BEGIN
    INSERT INTO total_change (agent, owner, new_kind) VALUES (NEW.agent, '', 'conversation');
RETURN NULL; END $$;
CREATE FUNCTION a2a.conversation_deleted() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$ BEGIN
    INSERT INTO total_change (agent, owner, old_kind) VALUES (OLD.agent, '', 'conversation');
RETURN NULL; END $$;
CREATE FUNCTION a2a.conversation_listed() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$ BEGIN
    INSERT INTO total_change (agent, owner, new_kind) VALUES (NEW.agent, '', 'conversation');
RETURN NULL; END $$;
CREATE FUNCTION a2a.task_deleted() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$ BEGIN
    INSERT INTO total_change (agent, owner, old_kind) VALUES (OLD.agent, OLD.owner, OLD.state);
RETURN NULL; END $$;
CREATE FUNCTION a2a.task_filed() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$ BEGIN
    INSERT INTO total_change (agent, owner, new_kind) VALUES (NEW.agent, NEW.owner, NEW.state);
RETURN NULL; END $$;
CREATE FUNCTION a2a.task_moved() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$ BEGIN
    INSERT INTO total_change (agent, owner, old_kind) VALUES (NEW.agent, NEW.owner, OLD.state);
RETURN NULL; END $$;
CREATE FUNCTION a2a.task_waits() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$ BEGIN
    DELETE FROM approval WHERE agent = OLD.agent AND task_id = OLD.id;
    INSERT INTO approval (agent, tenant, status_at, task_id, owner)
    SELECT NEW.agent, substr(NEW.owner, 1, strpos(NEW.owner, '/') - 1), NEW.status_at, NEW.id, NEW.owner
    WHERE NEW.state = 'input-required' AND NEW.pending IS NOT NULL AND a2a_has_open_approval(NEW.pending);
RETURN NULL; END $$;
CREATE FUNCTION a2a.waiting_task_deleted() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'a2a'
    AS $$ BEGIN
    DELETE FROM approval WHERE agent = OLD.agent AND task_id = OLD.id;
RETURN NULL; END $$;
CREATE TABLE a2a.a2a_schema (
    version integer NOT NULL,
    min_reader integer DEFAULT 8 NOT NULL
);
CREATE TABLE a2a.approval (
    agent text NOT NULL,
    tenant text NOT NULL,
    status_at bigint NOT NULL,
    task_id text NOT NULL,
    owner text NOT NULL
);
CREATE TABLE a2a.bucket (
    agent text NOT NULL,
    subject text NOT NULL,
    name text NOT NULL,
    full_at bigint NOT NULL
);
CREATE TABLE a2a.checkpoint (
    agent text NOT NULL,
    task_id text NOT NULL,
    n bigint NOT NULL,
    run text NOT NULL,
    taken bigint NOT NULL,
    used bytea NOT NULL,
    message bytea NOT NULL
);
CREATE TABLE a2a.conversation (
    agent text NOT NULL,
    owner text NOT NULL,
    id text NOT NULL,
    head_id text,
    revision text NOT NULL,
    updated_at bigint NOT NULL,
    listed_at bigint,
    record bytea NOT NULL
);
CREATE TABLE a2a.conversation_branch (
    agent text NOT NULL,
    owner text NOT NULL,
    id text NOT NULL,
    tip text NOT NULL
);
CREATE TABLE a2a.credential (
    agent text NOT NULL,
    task_id text NOT NULL,
    id text NOT NULL,
    until bigint NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE a2a.delivery (
    seq bigint NOT NULL,
    agent text NOT NULL,
    task_id text NOT NULL,
    config bigint NOT NULL,
    id text NOT NULL,
    n bigint NOT NULL,
    state text,
    failures integer DEFAULT 0 NOT NULL,
    error text,
    died_at bigint,
    payload bytea NOT NULL
);
ALTER TABLE a2a.delivery ALTER COLUMN seq ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME a2a.delivery_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE a2a.entry (
    agent text NOT NULL,
    owner text NOT NULL,
    id text NOT NULL,
    parent_id text,
    next_id text,
    follows integer DEFAULT 0 NOT NULL,
    message bytea NOT NULL
);
CREATE TABLE a2a.entry_erased (
    agent text NOT NULL,
    owner text NOT NULL,
    tip text NOT NULL
);
CREATE TABLE a2a.erasure (
    agent text NOT NULL,
    owner text NOT NULL,
    context_id text NOT NULL,
    until bigint NOT NULL
);
CREATE TABLE a2a.event (
    agent text NOT NULL,
    task_id text NOT NULL,
    n bigint NOT NULL,
    state text,
    push integer DEFAULT 0 NOT NULL,
    payload bytea NOT NULL
);
CREATE TABLE a2a.hook_call (
    agent text NOT NULL,
    task_id text NOT NULL,
    run bigint NOT NULL,
    due_at bigint NOT NULL
);
CREATE TABLE a2a.item (
    agent text NOT NULL,
    task_id text NOT NULL,
    kind text NOT NULL,
    seq bigint NOT NULL,
    id text NOT NULL,
    body bytea NOT NULL,
    owner text,
    replay_key text,
    digest bytea,
    after_event bigint,
    accepted_at bigint,
    answer integer,
    request bytea
);
CREATE TABLE a2a.payload (
    agent text NOT NULL,
    task_id text NOT NULL,
    id text NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE a2a.process (
    agent text NOT NULL,
    id text NOT NULL,
    until bigint NOT NULL,
    hears integer NOT NULL
);
CREATE TABLE a2a.push_config (
    seq bigint NOT NULL,
    agent text NOT NULL,
    task_id text NOT NULL,
    owner text NOT NULL,
    id text NOT NULL,
    version text NOT NULL,
    takes integer NOT NULL,
    due_at bigint,
    lease bigint DEFAULT 0 NOT NULL,
    body bytea NOT NULL
);
ALTER TABLE a2a.push_config ALTER COLUMN seq ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME a2a.push_config_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE a2a.queue (
    agent text NOT NULL,
    queued bigint DEFAULT 0 NOT NULL,
    counted_at bigint DEFAULT 0 NOT NULL,
    paused_at bigint
);
CREATE TABLE a2a.reader (
    agent text NOT NULL,
    task_id text NOT NULL,
    process text NOT NULL,
    wants integer NOT NULL
);
CREATE TABLE a2a.secret (
    agent text NOT NULL,
    name text NOT NULL,
    value bytea NOT NULL
);
CREATE TABLE a2a.spending (
    agent text NOT NULL,
    subject text NOT NULL,
    span bigint NOT NULL,
    until bigint NOT NULL,
    requests bigint NOT NULL,
    tokens bigint NOT NULL,
    cost bigint NOT NULL
);
CREATE TABLE a2a.task (
    agent text NOT NULL,
    id text NOT NULL,
    owner text NOT NULL,
    context_id text NOT NULL,
    dialect text NOT NULL,
    traceparent text,
    state text NOT NULL,
    status_at bigint NOT NULL,
    filed integer DEFAULT 0 NOT NULL,
    failure text,
    retried_as text,
    queued integer DEFAULT 0 NOT NULL,
    queue_seq bigint NOT NULL,
    behind integer DEFAULT 0 NOT NULL,
    round bigint DEFAULT 0 NOT NULL,
    holder text,
    lease_until bigint,
    fence bigint DEFAULT 0 NOT NULL,
    cancel_requested integer DEFAULT 0 NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    run integer DEFAULT 0 NOT NULL,
    turn integer DEFAULT 1 NOT NULL,
    tried bytea,
    inbox_read bigint DEFAULT 0 NOT NULL,
    answer bigint,
    last_event bigint DEFAULT 0 NOT NULL,
    stop_event bigint DEFAULT 0 NOT NULL,
    logged_after bigint,
    events_swept integer DEFAULT 0 NOT NULL,
    watched_until bigint DEFAULT 0 NOT NULL,
    push integer DEFAULT 0 NOT NULL,
    context_head text,
    pending bytea,
    own_usage bytea,
    own_messages bytea,
    paid bytea,
    request bytea,
    metadata bytea,
    status_message bytea,
    replay_key text,
    digest bytea NOT NULL,
    accepted_at bigint NOT NULL,
    message bytea NOT NULL,
    ending bytea,
    begun_by text
)
WITH (fillfactor='80');
CREATE TABLE a2a.total (
    agent text NOT NULL,
    owner text NOT NULL,
    kind text NOT NULL,
    number bigint NOT NULL
);
CREATE TABLE a2a.total_change (
    seq bigint NOT NULL,
    agent text NOT NULL,
    owner text NOT NULL,
    old_kind text,
    new_kind text
);
ALTER TABLE a2a.total_change ALTER COLUMN seq ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME a2a.total_change_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
INSERT INTO a2a.a2a_schema VALUES (7, 8);
INSERT INTO a2a.a2a_schema VALUES (8, 8);
INSERT INTO a2a.a2a_schema VALUES (9, 8);
INSERT INTO a2a.a2a_schema VALUES (10, 8);
INSERT INTO a2a.a2a_schema VALUES (11, 8);
INSERT INTO a2a.a2a_schema VALUES (12, 8);
INSERT INTO a2a.approval VALUES ('desk', '', 1795985967812, '01a2291b0ab9e208ebbf9b2849501c05', '/');
INSERT INTO a2a.checkpoint VALUES ('desk', '01a2291b0acda2d8e72b16132f3aa1f0', 0, '01a2291b0acda2d8e72b16132f3aa1f0.1', 0, '\x7b22696e7075745f746f6b656e73223a35312c226f75747075745f746f6b656e73223a322c227265717565737473223a317d', '\x7b227061727473223a5b7b22636f6e74656e74223a226c6f6f6b222c2274696d657374616d70223a22323032362d31312d32395432303a35393a32372e3832343234345a222c22706172745f6b696e64223a22757365722d70726f6d7074227d5d2c2274696d657374616d70223a22323032362d31312d32395432303a35393a32372e3832343434335a222c226b696e64223a2272657175657374222c2272756e5f6964223a2230316132323931623061636461326438653732623136313332663361613166302e31222c22636f6e766572736174696f6e5f6964223a223031613232393162306163643731623962333538646266343439613464366434227d');
INSERT INTO a2a.checkpoint VALUES ('desk', '01a2291b0acda2d8e72b16132f3aa1f0', 1, '01a2291b0acda2d8e72b16132f3aa1f0.1', 0, '\x7b22696e7075745f746f6b656e73223a35312c226f75747075745f746f6b656e73223a322c227265717565737473223a317d', '\x7b227061727473223a5b7b22746f6f6c5f6e616d65223a226c6f6f6b222c2261726773223a6e756c6c2c22746f6f6c5f63616c6c5f6964223a227079645f61695f3130633335383738383631643433616262333165393539353935323136353831222c22746f6f6c5f6b696e64223a6e756c6c2c226964223a6e756c6c2c2270726f76696465725f6e616d65223a6e756c6c2c2270726f76696465725f64657461696c73223a6e756c6c2c22706172745f6b696e64223a22746f6f6c2d63616c6c227d5d2c226d6f64656c5f6e616d65223a2266756e6374696f6e3a5f616e737765723a222c226d6f64656c5f6964223a2266756e6374696f6e3a66756e6374696f6e3a5f616e737765723a222c2274696d657374616d70223a22323032362d31312d32395432303a35393a32372e3832353238375a222c226b696e64223a22726573706f6e7365222c2272756e5f6964223a2230316132323931623061636461326438653732623136313332663361613166302e31222c22636f6e766572736174696f6e5f6964223a223031613232393162306163643731623962333538646266343439613464366434222c227573616765223a7b22696e7075745f746f6b656e73223a35312c226f75747075745f746f6b656e73223a327d7d');
INSERT INTO a2a.conversation VALUES ('desk', '/', 'conversation', '01a2291b0ab2e96904d7cbb599100008.1.1', '01a2291b0ab2e96904d7cbb599100008.1', 1795985967800, NULL, '\x7b22636f6e766572736174696f6e5f6964223a22636f6e766572736174696f6e222c22686561645f6964223a2230316132323931623061623265393639303464376362623539393130303030382e312e31222c2273636f7065223a222f222c226272616e63686573223a5b5d2c227265766973696f6e223a2230316132323931623061623265393639303464376362623539393130303030382e31222c22757064617465645f6174223a22323032362d31312d32395432303a35393a32372e3830303030305a222c22666f726d61745f76657273696f6e223a312c227573616765223a7b22696e7075745f746f6b656e73223a3130332c2263616368655f77726974655f746f6b656e73223a302c2263616368655f77726974655f31685f746f6b656e73223a302c2263616368655f726561645f746f6b656e73223a302c226f75747075745f746f6b656e73223a352c22756e6d656173757265645f7265717565737473223a302c226f75747075745f726561736f6e696e675f746f6b656e73223a302c22696e7075745f617564696f5f746f6b656e73223a302c2263616368655f617564696f5f726561645f746f6b656e73223a302c226f75747075745f617564696f5f746f6b656e73223a302c22617564696f5f7365636f6e6473223a302c22636f7374223a6e756c6c2c227265717565737473223a322c22746f6f6c5f63616c6c73223a307d7d');
INSERT INTO a2a.entry VALUES ('desk', '/', '01a2291b0a8aad22ca100e5412ba7211.1.0', NULL, '01a2291b0a8aad22ca100e5412ba7211.1.1', 0, '\x7b227061727473223a5b7b22636f6e74656e74223a226f6e65222c2274696d657374616d70223a22323032362d31312d32395432303a35393a32372e3736343137335a222c22706172745f6b696e64223a22757365722d70726f6d7074227d5d2c2274696d657374616d70223a22323032362d31312d32395432303a35393a32372e3736343430395a222c226b696e64223a2272657175657374222c2272756e5f6964223a2230316132323931623061386161643232636131303065353431326261373231312e31222c22636f6e766572736174696f6e5f6964223a22636f6e766572736174696f6e227d');
INSERT INTO a2a.entry VALUES ('desk', '/', '01a2291b0a8aad22ca100e5412ba7211.1.1', '01a2291b0a8aad22ca100e5412ba7211.1.0', NULL, 1, '\x7b227061727473223a5b7b22636f6e74656e74223a226f6e65222c22706172745f6b696e64223a2274657874227d5d2c226d6f64656c5f6e616d65223a2266756e6374696f6e3a5f616e737765723a222c226d6f64656c5f6964223a2266756e6374696f6e3a66756e6374696f6e3a5f616e737765723a222c2274696d657374616d70223a22323032362d31312d32395432303a35393a32372e3738313037385a222c226b696e64223a22726573706f6e7365222c2272756e5f6964223a2230316132323931623061386161643232636131303065353431326261373231312e31222c22636f6e766572736174696f6e5f6964223a22636f6e766572736174696f6e222c227573616765223a7b22696e7075745f746f6b656e73223a35312c226f75747075745f746f6b656e73223a317d7d');
INSERT INTO a2a.entry VALUES ('desk', '/', '01a2291b0ab2e96904d7cbb599100008.1.0', '01a2291b0a8aad22ca100e5412ba7211.1.1', '01a2291b0ab2e96904d7cbb599100008.1.1', 0, '\x7b227061727473223a5b7b22636f6e74656e74223a2274776f222c2274696d657374616d70223a22323032362d31312d32395432303a35393a32372e3739383032395a222c22706172745f6b696e64223a22757365722d70726f6d7074227d5d2c2274696d657374616d70223a22323032362d31312d32395432303a35393a32372e3739383234305a222c226b696e64223a2272657175657374222c2272756e5f6964223a2230316132323931623061623265393639303464376362623539393130303030382e31222c22636f6e766572736174696f6e5f6964223a22636f6e766572736174696f6e227d');
INSERT INTO a2a.entry VALUES ('desk', '/', '01a2291b0ab2e96904d7cbb599100008.1.1', '01a2291b0ab2e96904d7cbb599100008.1.0', NULL, 1, '\x7b227061727473223a5b7b22636f6e74656e74223a226f6e65202b2074776f222c22706172745f6b696e64223a2274657874227d5d2c226d6f64656c5f6e616d65223a2266756e6374696f6e3a5f616e737765723a222c226d6f64656c5f6964223a2266756e6374696f6e3a66756e6374696f6e3a5f616e737765723a222c2274696d657374616d70223a22323032362d31312d32395432303a35393a32372e3739393035375a222c226b696e64223a22726573706f6e7365222c2272756e5f6964223a2230316132323931623061623265393639303464376362623539393130303030382e31222c22636f6e766572736174696f6e5f6964223a22636f6e766572736174696f6e222c227573616765223a7b22696e7075745f746f6b656e73223a35322c226f75747075745f746f6b656e73223a347d7d');
INSERT INTO a2a.process VALUES ('desk', '0df1038a8ab8', 1795985977748, 3);
INSERT INTO a2a.process VALUES ('desk', 'e25da1dd1d5c ''desk''', 1795985967872, 0);
INSERT INTO a2a.push_config VALUES (1, 'desk', '01a2291b0afbbbf90c128100cd579f32', '/', 'webhook', '1.0', 1, NULL, 0, '\x5b22776562686f6f6b222c22687474703a2f2f686f6f6b732e696e7465726e616c3a392f686f6f6b222c6e756c6c2c6e756c6c2c6e756c6c5d');
INSERT INTO a2a.queue VALUES ('desk', 0, 1795985967755, NULL);
INSERT INTO a2a.task VALUES ('desk', '01a2291b0a8aad22ca100e5412ba7211', '/', 'conversation', '1.0', NULL, 'completed', 1795985967784, 0, NULL, NULL, 0, 1795985967755442604, 0, 0, NULL, NULL, 1, 0, 1, 1, 1, NULL, 1, NULL, 3, 3, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'message-000000000007 4f6def002848e32838a34312c291b5f630576560b03862435e7e7ee1835a9e07', '\x4f6def002848e32838a34312c291b5f630576560b03862435e7e7ee1835a9e07', 1795985967754, '\x7b226d6573736167654964223a226d6573736167652d303030303030303030303037222c22726f6c65223a22524f4c455f55534552222c227061727473223a5b7b2274657874223a226f6e65227d5d2c227461736b4964223a223031613232393162306138616164323263613130306535343132626137323131222c22636f6e746578744964223a22636f6e766572736174696f6e227d', '\x6d31393820613132340a7b226d6573736167654964223a2230316132323931623061386161643232636131303065353431326261373231312e312e616e73776572222c22726f6c65223a22524f4c455f4147454e54222c227061727473223a5b7b2274657874223a226f6e65222c226d6564696154797065223a22746578742f706c61696e227d5d2c227461736b4964223a223031613232393162306138616164323263613130306535343132626137323131222c22636f6e746578744964223a22636f6e766572736174696f6e227d7b2261727469666163744964223a2230316132323931623061386161643232636131303065353431326261373231312e312e726573756c74222c226e616d65223a22726573756c74222c227061727473223a5b7b2274657874223a226f6e65222c226d6564696154797065223a22746578742f706c61696e227d5d7d', NULL);
INSERT INTO a2a.task VALUES ('desk', '01a2291b0ab2e96904d7cbb599100008', '/', 'conversation', '1.0', NULL, 'completed', 1795985967800, 0, NULL, NULL, 0, 1795985967794217516, 0, 0, NULL, NULL, 1, 0, 1, 1, 1, NULL, 1, NULL, 3, 3, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'message-000000000008 02e16586f5ff79071eadb43e67863ac8e3644e7ec3f469f4a661605c016a1145', '\x02e16586f5ff79071eadb43e67863ac8e3644e7ec3f469f4a661605c016a1145', 1795985967794, '\x7b226d6573736167654964223a226d6573736167652d303030303030303030303038222c22726f6c65223a22524f4c455f55534552222c227061727473223a5b7b2274657874223a2274776f227d5d2c227461736b4964223a223031613232393162306162326539363930346437636262353939313030303038222c22636f6e746578744964223a22636f6e766572736174696f6e227d', '\x6d32303420613133300a7b226d6573736167654964223a2230316132323931623061623265393639303464376362623539393130303030382e312e616e73776572222c22726f6c65223a22524f4c455f4147454e54222c227061727473223a5b7b2274657874223a226f6e65202b2074776f222c226d6564696154797065223a22746578742f706c61696e227d5d2c227461736b4964223a223031613232393162306162326539363930346437636262353939313030303038222c22636f6e746578744964223a22636f6e766572736174696f6e227d7b2261727469666163744964223a2230316132323931623061623265393639303464376362623539393130303030382e312e726573756c74222c226e616d65223a22726573756c74222c227061727473223a5b7b2274657874223a226f6e65202b2074776f222c226d6564696154797065223a22746578742f706c61696e227d5d7d', NULL);
INSERT INTO a2a.task VALUES ('desk', '01a2291b0ab9e208ebbf9b2849501c05', '/', '01a2291b0ab931f27e7a0bbd72e981d4', '1.0', NULL, 'input-required', 1795985967812, 0, NULL, NULL, 0, 1795985967801939127, 0, 0, NULL, NULL, 1, 0, 1, 1, 1, NULL, 1, NULL, 2, 2, NULL, 0, 0, 0, NULL, '\x7b2263616c6c73223a5b7b226964223a227079645f61695f3462386461623465623634323433626261383865363036303561636634363839222c226b696e64223a22617070726f76616c222c22746f6f6c223a2264656c657465222c2274657874223a224d617920492063616c6c2064656c657465207b7d3f222c2261726773223a7b7d2c2268696464656e223a66616c73652c226d65746164617461223a7b7d2c22736368656d61223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b7d2c2274797065223a226f626a656374227d2c226368616e676564223a6e756c6c2c226d61795f6368616e6765223a747275652c226c6f63616c5f6964223a22222c22616e737765725f6964223a226638383538636139373163313463386561366361613637376662643739613137227d5d2c22616e7377657273223a7b7d2c22736368656d61223a6e756c6c2c227175657374696f6e223a22222c2261736b65645f616761696e223a302c2273686f776e5f63616c6c73223a5b5d2c227472696564223a66616c73652c2263616c6c6572223a6e756c6c2c22756e70726f6d70746564223a5b5d7d', '\x7b22696e7075745f746f6b656e73223a35312c226f75747075745f746f6b656e73223a322c227265717565737473223a317d', '\x5b7b227061727473223a5b7b22636f6e74656e74223a2264656c657465222c2274696d657374616d70223a22323032362d31312d32395432303a35393a32372e3830333439395a222c22706172745f6b696e64223a22757365722d70726f6d7074227d5d2c2274696d657374616d70223a22323032362d31312d32395432303a35393a32372e3830333639385a222c22696e737472756374696f6e73223a6e756c6c2c226b696e64223a2272657175657374222c2272756e5f6964223a2230316132323931623061623965323038656262663962323834393530316330352e31222c22636f6e766572736174696f6e5f6964223a223031613232393162306162393331663237653761306262643732653938316434222c226d65746164617461223a6e756c6c2c227374617465223a22636f6d706c657465227d2c7b227061727473223a5b7b22746f6f6c5f6e616d65223a2264656c657465222c2261726773223a6e756c6c2c22746f6f6c5f63616c6c5f6964223a227079645f61695f3462386461623465623634323433626261383865363036303561636634363839222c22746f6f6c5f6b696e64223a6e756c6c2c226964223a6e756c6c2c2270726f76696465725f6e616d65223a6e756c6c2c2270726f76696465725f64657461696c73223a6e756c6c2c22706172745f6b696e64223a22746f6f6c2d63616c6c227d5d2c227573616765223a7b22696e7075745f746f6b656e73223a35312c2263616368655f77726974655f746f6b656e73223a302c2263616368655f77726974655f31685f746f6b656e73223a302c2263616368655f726561645f746f6b656e73223a302c226f75747075745f746f6b656e73223a322c226f75747075745f726561736f6e696e675f746f6b656e73223a302c22696e7075745f617564696f5f746f6b656e73223a302c2263616368655f617564696f5f726561645f746f6b656e73223a302c226f75747075745f617564696f5f746f6b656e73223a302c22617564696f5f7365636f6e6473223a302e302c2264657461696c73223a7b7d2c22636f7374223a6e756c6c7d2c226d6f64656c5f6e616d65223a2266756e6374696f6e3a5f616e737765723a222c226d6f64656c5f6964223a2266756e6374696f6e3a66756e6374696f6e3a5f616e737765723a222c2274696d657374616d70223a22323032362d31312d32395432303a35393a32372e3830343330325a222c226b696e64223a22726573706f6e7365222c2270726f76696465725f6e616d65223a6e756c6c2c2270726f76696465725f75726c223a6e756c6c2c2263616e6f6e6963616c5f73797374656d223a6e756c6c2c2270726f76696465725f64657461696c73223a6e756c6c2c2270726f76696465725f726573706f6e73655f6964223a6e756c6c2c2266696e6973685f726561736f6e223a6e756c6c2c2272756e5f6964223a2230316132323931623061623965323038656262663962323834393530316330352e31222c22636f6e766572736174696f6e5f6964223a223031613232393162306162393331663237653761306262643732653938316434222c226d65746164617461223a6e756c6c2c22776f726b73706163655f726566223a6e756c6c2c22686973746f72795f646967657374223a6e756c6c2c226661696c65645f617474656d707473223a6e756c6c2c227374617465223a22636f6d706c657465227d5d', NULL, NULL, NULL, '\x7b226d6573736167654964223a223031613232393162306163346137393435656334636132653761363161326533222c22726f6c65223a22524f4c455f4147454e54222c227061727473223a5b7b2274657874223a224d617920492063616c6c2064656c657465207b7d3f5c6e5772697465205c226e6f5c22206f72205c226e6f3a20726561736f6e5c2220746f2064656e79207468652063616c6c2e20506c61696e20776f7264732063616e6e6f7420617070726f76652069743b20617070726f76696e672074616b6573206461746120746861742066697473205c226d657373616765536368656d615c2220626573696465207468697320746578742e222c226d6564696154797065223a22746578742f706c61696e227d2c7b2264617461223a7b2270656e64696e67223a5b7b226964223a226638383538636139373163313463386561366361613637376662643739613137222c22746f6f6c43616c6c4964223a227079645f61695f3462386461623465623634323433626261383865363036303561636634363839222c226b696e64223a22617070726f76616c222c22746f6f6c223a2264656c657465222c2274657874223a224d617920492063616c6c2064656c657465207b7d3f222c2261726773223a7b7d2c22616e73776572536368656d61223a7b226f6e654f66223a5b7b2274797065223a226f626a656374222c2270726f70657274696573223a7b226964223a7b22636f6e7374223a226638383538636139373163313463386561366361613637376662643739613137227d2c226465636973696f6e223a7b22636f6e7374223a22617070726f7665227d2c2261726773223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b7d2c2274797065223a226f626a656374227d7d2c227265717569726564223a5b226964222c226465636973696f6e225d2c226164646974696f6e616c50726f70657274696573223a66616c73657d2c7b2274797065223a226f626a656374222c2270726f70657274696573223a7b226964223a7b22636f6e7374223a226638383538636139373163313463386561366361613637376662643739613137227d2c226465636973696f6e223a7b22636f6e7374223a2264656e79227d2c22726561736f6e223a7b2274797065223a22737472696e67222c226d696e4c656e677468223a317d7d2c227265717569726564223a5b226964222c226465636973696f6e225d2c226164646974696f6e616c50726f70657274696573223a66616c73657d5d7d7d5d2c226d657373616765536368656d61223a7b2274797065223a226f626a656374222c2270726f70657274696573223a7b226d6573736167654964223a7b2274797065223a22737472696e67222c226d696e4c656e677468223a317d2c22726f6c65223a7b22656e756d223a5b22524f4c455f55534552222c2275736572225d2c226465736372697074696f6e223a22524f4c455f5553455220696e2041324120312e302c207573657220696e20302e33227d2c227461736b4964223a7b22636f6e7374223a223031613232393162306162396532303865626266396232383439353031633035227d2c227061727473223a7b2274797065223a226172726179222c226d696e4974656d73223a312c226d61784974656d73223a312c226974656d73223a7b2274797065223a226f626a656374222c2270726f70657274696573223a7b2264617461223a7b2274797065223a226f626a656374222c2270726f70657274696573223a7b2263616c6c416e7377657273223a7b2274797065223a226172726179222c226d696e4974656d73223a312c226d61784974656d73223a312c226974656d73223a7b226f6e654f66223a5b7b2274797065223a226f626a656374222c2270726f70657274696573223a7b226964223a7b22636f6e7374223a226638383538636139373163313463386561366361613637376662643739613137227d2c226465636973696f6e223a7b22636f6e7374223a22617070726f7665227d2c2261726773223a7b226164646974696f6e616c50726f70657274696573223a66616c73652c2270726f70657274696573223a7b7d2c2274797065223a226f626a656374227d7d2c227265717569726564223a5b226964222c226465636973696f6e225d2c226164646974696f6e616c50726f70657274696573223a66616c73657d2c7b2274797065223a226f626a656374222c2270726f70657274696573223a7b226964223a7b22636f6e7374223a226638383538636139373163313463386561366361613637376662643739613137227d2c226465636973696f6e223a7b22636f6e7374223a2264656e79227d2c22726561736f6e223a7b2274797065223a22737472696e67222c226d696e4c656e677468223a317d7d2c227265717569726564223a5b226964222c226465636973696f6e225d2c226164646974696f6e616c50726f70657274696573223a66616c73657d5d7d7d7d2c227265717569726564223a5b2263616c6c416e7377657273225d2c226164646974696f6e616c50726f70657274696573223a66616c73657d7d2c227265717569726564223a5b2264617461225d7d7d7d2c227265717569726564223a5b226d6573736167654964222c22726f6c65222c227461736b4964222c227061727473225d7d7d2c226d6564696154797065223a226170706c69636174696f6e2f766e642e707964616e7469632d61692e70656e64696e672d63616c6c732b6a736f6e222c226d65746164617461223a7b2274797065223a226170706c69636174696f6e2f766e642e707964616e7469632d61692e70656e64696e672d63616c6c732b6a736f6e227d7d5d2c227461736b4964223a223031613232393162306162396532303865626266396232383439353031633035222c22636f6e746578744964223a223031613232393162306162393331663237653761306262643732653938316434227d', 'message-000000000009 3bb7ea8386ba5dcdbb58118c333905b1fc35bb2a219ec42e788e8a9c06c0d60d', '\x3bb7ea8386ba5dcdbb58118c333905b1fc35bb2a219ec42e788e8a9c06c0d60d', 1795985967802, '\x7b226d6573736167654964223a226d6573736167652d303030303030303030303039222c22726f6c65223a22524f4c455f55534552222c227061727473223a5b7b2274657874223a2264656c657465227d5d2c227461736b4964223a223031613232393162306162396532303865626266396232383439353031633035222c22636f6e746578744964223a223031613232393162306162393331663237653761306262643732653938316434227d', NULL, NULL);
INSERT INTO a2a.task VALUES ('desk', '01a2291b0acda2d8e72b16132f3aa1f0', '/', '01a2291b0acd71b9b358dbf449a4d6d4', '1.0', NULL, 'working', 1795985967822, 0, NULL, NULL, 0, 1795985967821885010, 0, 0, NULL, NULL, 1, 0, 1, 1, 1, NULL, 0, NULL, 1, 0, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'message-000000000010 e0b30aa2919de09ecaaba674be21066322eb6f4c3051536415e5520f0d7ee6af', '\xe0b30aa2919de09ecaaba674be21066322eb6f4c3051536415e5520f0d7ee6af', 1795985967822, '\x7b226d6573736167654964223a226d6573736167652d303030303030303030303130222c22726f6c65223a22524f4c455f55534552222c227061727473223a5b7b2274657874223a226c6f6f6b227d5d2c227461736b4964223a223031613232393162306163646132643865373262313631333266336161316630222c22636f6e746578744964223a223031613232393162306163643731623962333538646266343439613464366434227d', NULL, NULL);
INSERT INTO a2a.task VALUES ('desk', '01a2291b0af1eb3439e43579115ac516', '/', '01a2291b0af1d426db7e6ec3699c7206', '1.0', NULL, 'canceled', 1795985967862, 0, NULL, NULL, 0, 1795985967858327726, 0, 0, NULL, NULL, 1, 0, 0, 0, 1, NULL, 0, NULL, 1, 1, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'message-000000000011 ed63b0a5092ca181b56c998c8a1d3c977469b5159d32bdb3693304254b88533b', '\xed63b0a5092ca181b56c998c8a1d3c977469b5159d32bdb3693304254b88533b', 1795985967857, '\x7b226d6573736167654964223a226d6573736167652d303030303030303030303131222c22726f6c65223a22524f4c455f55534552222c227061727473223a5b7b2274657874223a226e65766572227d5d2c227461736b4964223a223031613232393162306166316562333433396534333537393131356163353136222c22636f6e746578744964223a223031613232393162306166316434323664623765366563333639396337323036227d', NULL, NULL);
INSERT INTO a2a.task VALUES ('desk', '01a2291b0afbbbf90c128100cd579f32', '/', 'conversation', '1.0', NULL, 'submitted', 1795985967867, 0, NULL, NULL, 1, 1795985967868457357, 0, 0, NULL, NULL, 0, 0, 0, 0, 1, NULL, 0, NULL, 0, 0, NULL, 0, 0, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'message-000000000012 c4f3d9f7745f667b4799a5fb6031135b42ff4636160d14c5e976f46a12d92178', '\xc4f3d9f7745f667b4799a5fb6031135b42ff4636160d14c5e976f46a12d92178', 1795985967867, '\x7b226d6573736167654964223a226d6573736167652d303030303030303030303132222c22726f6c65223a22524f4c455f55534552222c227061727473223a5b7b2274657874223a227468726565227d5d2c227461736b4964223a223031613232393162306166626262663930633132383130306364353739663332222c22636f6e746578744964223a22636f6e766572736174696f6e227d', NULL, NULL);
SELECT pg_catalog.setval('a2a.delivery_seq_seq', 1, false);
SELECT pg_catalog.setval('a2a.push_config_seq_seq', 1, true);
SELECT pg_catalog.setval('a2a.total_change_seq_seq', 1, false);
ALTER TABLE ONLY a2a.approval
    ADD CONSTRAINT approval_pkey PRIMARY KEY (agent, tenant, status_at, task_id, owner);
ALTER TABLE ONLY a2a.bucket
    ADD CONSTRAINT bucket_pkey PRIMARY KEY (agent, subject, name);
ALTER TABLE ONLY a2a.checkpoint
    ADD CONSTRAINT checkpoint_pkey PRIMARY KEY (agent, task_id, n);
ALTER TABLE ONLY a2a.conversation_branch
    ADD CONSTRAINT conversation_branch_pkey PRIMARY KEY (agent, owner, tip, id);
ALTER TABLE ONLY a2a.conversation
    ADD CONSTRAINT conversation_pkey PRIMARY KEY (agent, owner, id);
ALTER TABLE ONLY a2a.credential
    ADD CONSTRAINT credential_pkey PRIMARY KEY (agent, task_id, id);
ALTER TABLE ONLY a2a.delivery
    ADD CONSTRAINT delivery_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY a2a.entry_erased
    ADD CONSTRAINT entry_erased_pkey PRIMARY KEY (agent, owner, tip);
ALTER TABLE ONLY a2a.entry
    ADD CONSTRAINT entry_pkey PRIMARY KEY (agent, owner, id);
ALTER TABLE ONLY a2a.erasure
    ADD CONSTRAINT erasure_pkey PRIMARY KEY (agent, owner, context_id);
ALTER TABLE ONLY a2a.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (agent, task_id, n);
ALTER TABLE ONLY a2a.hook_call
    ADD CONSTRAINT hook_call_pkey PRIMARY KEY (agent, task_id, run);
ALTER TABLE ONLY a2a.item
    ADD CONSTRAINT item_pkey PRIMARY KEY (agent, task_id, kind, seq);
ALTER TABLE ONLY a2a.payload
    ADD CONSTRAINT payload_pkey PRIMARY KEY (agent, task_id, id);
ALTER TABLE ONLY a2a.process
    ADD CONSTRAINT process_pkey PRIMARY KEY (agent, id);
ALTER TABLE ONLY a2a.push_config
    ADD CONSTRAINT push_config_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY a2a.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (agent);
ALTER TABLE ONLY a2a.reader
    ADD CONSTRAINT reader_pkey PRIMARY KEY (agent, task_id, process);
ALTER TABLE ONLY a2a.secret
    ADD CONSTRAINT secret_pkey PRIMARY KEY (agent, name);
ALTER TABLE ONLY a2a.spending
    ADD CONSTRAINT spending_pkey PRIMARY KEY (agent, subject, span, until);
ALTER TABLE ONLY a2a.task
    ADD CONSTRAINT task_pkey PRIMARY KEY (agent, id);
ALTER TABLE ONLY a2a.total_change
    ADD CONSTRAINT total_change_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY a2a.total
    ADD CONSTRAINT total_pkey PRIMARY KEY (agent, owner, kind);
CREATE UNIQUE INDEX approval_task ON a2a.approval USING btree (agent, task_id);
CREATE INDEX bucket_full ON a2a.bucket USING btree (agent, full_at);
CREATE INDEX conversation_listed ON a2a.conversation USING btree (agent, listed_at) WHERE (listed_at IS NOT NULL);
CREATE INDEX credential_until ON a2a.credential USING btree (agent, until);
CREATE INDEX delivery_dead ON a2a.delivery USING btree (agent, died_at, id) WHERE (died_at IS NOT NULL);
CREATE UNIQUE INDEX delivery_id ON a2a.delivery USING btree (agent, id);
CREATE INDEX delivery_next ON a2a.delivery USING btree (agent, config, seq) WHERE (died_at IS NULL);
CREATE INDEX delivery_task ON a2a.delivery USING btree (agent, task_id);
CREATE INDEX entry_parent ON a2a.entry USING btree (agent, owner, parent_id) WHERE ((parent_id IS NOT NULL) AND (follows = 0));
CREATE INDEX hook_call_due ON a2a.hook_call USING btree (agent, due_at);
CREATE UNIQUE INDEX item_replay ON a2a.item USING btree (agent, owner, replay_key) WHERE (replay_key IS NOT NULL);
CREATE INDEX push_config_due ON a2a.push_config USING btree (agent, due_at, seq, owner) WHERE (due_at IS NOT NULL);
CREATE UNIQUE INDEX push_config_id ON a2a.push_config USING btree (agent, task_id, id);
CREATE INDEX reader_process ON a2a.reader USING btree (agent, process);
CREATE INDEX spending_until ON a2a.spending USING btree (agent, until);
CREATE INDEX task_canceling ON a2a.task USING btree (agent, cancel_requested) WHERE ((state = 'working'::text) AND (cancel_requested = 1));
CREATE INDEX task_context ON a2a.task USING btree (agent, owner, context_id, state, status_at, id, filed) WHERE (filed = 1);
CREATE INDEX task_dead ON a2a.task USING btree (agent, status_at, id) WHERE (failure = ANY (ARRAY['attempts'::text, 'storage'::text]));
CREATE INDEX task_ended ON a2a.task USING btree (agent, events_swept DESC, status_at) WHERE ((filed = 1) AND (state <> ALL (ARRAY['auth-required'::text, 'input-required'::text])));
CREATE INDEX task_failed ON a2a.task USING btree (agent, status_at, id) WHERE ((state = 'failed'::text) AND (failure IS NOT NULL));
CREATE INDEX task_line ON a2a.task USING btree (agent, owner, context_id, queue_seq) WHERE (queued = 1);
CREATE INDEX task_owner ON a2a.task USING btree (agent, owner, state, status_at, id, filed) WHERE (filed = 1);
CREATE INDEX task_queued ON a2a.task USING btree (agent, behind, round, queue_seq) WHERE (queued = 1);
CREATE INDEX task_released ON a2a.task USING btree (agent, holder, queue_seq) WHERE ((state = 'working'::text) AND (queued = 0) AND (holder IS NULL));
CREATE UNIQUE INDEX task_replay ON a2a.task USING btree (agent, owner, replay_key) WHERE (replay_key IS NOT NULL);
CREATE INDEX task_round ON a2a.task USING btree (agent, owner, behind, round) WHERE (queued = 1);
CREATE UNIQUE INDEX task_running ON a2a.task USING btree (agent, owner, context_id) WHERE ((state = 'working'::text) AND (queued = 0));
CREATE INDEX task_unfiled ON a2a.task USING btree (agent, owner, status_at, id) WHERE ((filed = 0) AND (state <> ALL (ARRAY['submitted'::text, 'working'::text])));
CREATE INDEX task_waiting ON a2a.task USING btree (agent, status_at) WHERE (state = ANY (ARRAY['input-required'::text, 'auth-required'::text]));
CREATE INDEX task_watched ON a2a.task USING btree (agent, watched_until) WHERE (watched_until > 0);
CREATE TRIGGER conversation_added AFTER INSERT ON a2a.conversation FOR EACH ROW WHEN ((new.listed_at IS NOT NULL)) EXECUTE FUNCTION a2a.conversation_added();
CREATE TRIGGER conversation_deleted AFTER DELETE ON a2a.conversation FOR EACH ROW WHEN ((old.listed_at IS NOT NULL)) EXECUTE FUNCTION a2a.conversation_deleted();
CREATE TRIGGER conversation_listed AFTER UPDATE OF listed_at ON a2a.conversation FOR EACH ROW WHEN (((old.listed_at IS NULL) AND (new.listed_at IS NOT NULL))) EXECUTE FUNCTION a2a.conversation_listed();
CREATE TRIGGER task_deleted AFTER DELETE ON a2a.task FOR EACH ROW WHEN ((old.filed = 1)) EXECUTE FUNCTION a2a.task_deleted();
CREATE TRIGGER task_filed AFTER UPDATE OF filed ON a2a.task FOR EACH ROW WHEN (((old.filed = 0) AND (new.filed = 1))) EXECUTE FUNCTION a2a.task_filed();
CREATE TRIGGER task_moved AFTER UPDATE OF filed ON a2a.task FOR EACH ROW WHEN (((old.filed = 1) AND (new.filed = 0))) EXECUTE FUNCTION a2a.task_moved();
CREATE TRIGGER task_waits AFTER UPDATE OF state, status_at, pending ON a2a.task FOR EACH ROW WHEN (((old.state = 'input-required'::text) OR (new.state = 'input-required'::text))) EXECUTE FUNCTION a2a.task_waits();
CREATE TRIGGER waiting_task_deleted AFTER DELETE ON a2a.task FOR EACH ROW WHEN ((old.state = 'input-required'::text)) EXECUTE FUNCTION a2a.waiting_task_deleted();
