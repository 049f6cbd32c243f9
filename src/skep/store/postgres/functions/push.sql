-- Functions that are called from functions are PL/pgSQL, which keeps their plans. PostgreSQL plans an SQL function anew each
-- time, unless it inlines it (ready_time, is_doomed).

-- The last seq given out. Rides the primary key backwards. The floor covers messages that were deleted from the end.
CREATE OR REPLACE FUNCTION last_seq(p_queue integer, p_floor bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_seq bigint;
BEGIN
    SELECT m.seq INTO v_seq FROM message m WHERE m.queue_id = p_queue ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1;
    RETURN greatest(v_seq, p_floor);
END
$$;

-- The depth of a log, without counting rows: the unsettled messages of the slowest group in use (of the slowest group, if none is
-- in use), by its counters; without groups, the messages in the log. Volatile, like every function that reads the compacted
-- tables: it needs a snapshot that is taken after it got their locks (functions/compact.sql).
CREATE OR REPLACE FUNCTION log_depth(p_queue integer, p_first bigint, p_last bigint, p_gaps bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_depth bigint;
    v_any bigint;
BEGIN
    SELECT max(b.n) FILTER (WHERE NOT g.idle), max(b.n) INTO v_depth, v_any
    FROM consumer_group g CROSS JOIN LATERAL (
        SELECT p_last - g.start_seq - coalesce(
            (SELECT sum(c.completed + c.dead + c.expired + c.skipped)::bigint FROM group_counter c WHERE c.group_id = g.id), 0) AS n
        OFFSET 0) b  -- so that it is computed once, though it is used twice
    WHERE g.queue_id = p_queue;
    RETURN coalesce(v_depth, v_any, p_last - p_first + 1 - p_gaps);
END
$$;

-- Whether pushes to a queue wait as operations. Asked under the log's lock, by a statement of its own: an operation is performed
-- under that lock, so a push that sees no live one appends after it. Usually there are none at all, and this is one look into an
-- empty index. The ORDER BY keeps the planner to the index of partitions: without operations, all indexes of live ones look alike
-- to it.
CREATE OR REPLACE FUNCTION has_operations(p_tenant text, p_name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM operation o WHERE o.processed_at IS NULL AND o.tenant = p_tenant AND o.queue = p_name AND o.lane = 'push'
    ORDER BY o.tenant, o.queue, o.lane, o.partition, o.position LIMIT 1;
    RETURN FOUND;
END
$$;

-- Opens the logs of some queues for appending, in ascending order of their ids, so that two pushes never deadlock. A queue that
-- does not exist is left out of the answer.
CREATE OR REPLACE FUNCTION open_logs(p_tenants text[], p_names text[], p_now bigint)
RETURNS TABLE (ord integer, queue_id integer, ordering text, max_depth bigint, dedup_window_seconds double precision, dedup_across_partitions boolean,
               last_seq bigint, last_created_at bigint, depth bigint, watched boolean, operations boolean, encrypted boolean)
LANGUAGE plpgsql AS $$
DECLARE
    target record;
    q queue%ROWTYPE;
BEGIN
    -- The depth is read from it below. Groups come before logs (functions/locks.sql).
    LOCK TABLE consumer_group IN ACCESS SHARE MODE;
    FOR target IN
        -- One look-up per name: the limit keeps the planner from walking all queues and comparing each with the names.
        SELECT t.ord, k.id FROM unnest(p_tenants, p_names) WITH ORDINALITY AS t (tenant, name, ord)
        CROSS JOIN LATERAL (SELECT k.id FROM queue k
                            WHERE k.tenant = t.tenant AND k.name = t.name AND k.deleted_at IS NULL LIMIT 1) k
        ORDER BY k.id
    LOOP
        PERFORM pg_advisory_xact_lock(1936418160, target.id);
        -- Read under the lock: the queue may have been changed or deleted while we waited. By the id alone: with a condition on
        -- deleted_at the planner may walk the index of all queues that are not deleted.
        SELECT * INTO q FROM queue k WHERE k.id = target.id;
        CONTINUE WHEN NOT FOUND OR q.deleted_at IS NOT NULL;
        ord := target.ord;
        queue_id := q.id;
        ordering := q.ordering;
        max_depth := q.max_depth;
        dedup_window_seconds := q.dedup_window_seconds;
        dedup_across_partitions := q.dedup_across_partitions;
        last_seq := q.floor_seq;
        last_created_at := 0;
        SELECT greatest(m.seq, q.floor_seq), m.created_at INTO last_seq, last_created_at
        FROM message m WHERE m.queue_id = q.id ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1;
        last_seq := coalesce(last_seq, q.floor_seq);
        last_created_at := coalesce(last_created_at, 0);
        depth := log_depth(q.id, q.first_seq, last_seq, q.gaps) + q.scheduled_count;
        watched := is_watched(q.id, p_now);
        operations := has_operations(q.tenant, q.name);
        encrypted := q.encryption_enabled;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Pushes a few plain messages to one queue, in one round trip. Plain messages need no look of their own: they have no transaction
-- id, trace or schedule, and their queue no limit.
-- queue_id is NULL when the push must go the long way: the queue is missing, fifo, limited, or encrypted while a payload is not
-- sealed; its last message is further ahead in time than a trace is looked for (the clock was put back); or a push to one of the
-- partitions waits as an operation.
CREATE OR REPLACE FUNCTION push_plain(
    p_tenant text, p_name text, p_now bigint, p_ids uuid[], p_partitions text[], p_priorities integer[],
    p_content_types text[], p_headers bytea[], p_payloads bytea[],
    OUT queue_id integer, OUT last_seq bigint, OUT depth bigint, OUT watched boolean, OUT created_at bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c_trace_slack_us CONSTANT bigint := 1000000;
    v_id integer;
    q queue%ROWTYPE;
    v_last bigint;
    v_created bigint;
BEGIN
    SELECT k.id INTO v_id FROM queue k WHERE k.tenant = p_tenant AND k.name = p_name AND k.deleted_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- As in open_logs.
    LOCK TABLE consumer_group IN ACCESS SHARE MODE;
    PERFORM pg_advisory_xact_lock(1936418160, v_id);
    -- By the id alone, as in open_logs.
    SELECT * INTO q FROM queue k WHERE k.id = v_id;
    IF NOT FOUND OR q.deleted_at IS NOT NULL OR q.max_depth <> 0 OR q.ordering = 'fifo' THEN
        RETURN;
    END IF;
    -- The long way refuses payloads that are not sealed.
    IF q.encryption_enabled AND ('application/vnd.skep.sealed' = ALL (p_content_types)) IS NOT TRUE THEN
        RETURN;
    END IF;
    -- As in has_operations.
    PERFORM 1 FROM operation o WHERE o.processed_at IS NULL AND o.tenant = p_tenant AND o.queue = p_name AND o.lane = 'push'
    ORDER BY o.tenant, o.queue, o.lane, o.partition, o.position LIMIT 1;
    IF FOUND THEN
        PERFORM 1 FROM unnest(p_partitions) AS k (partition)
        CROSS JOIN LATERAL (
            SELECT 1 FROM operation o
            WHERE o.processed_at IS NULL AND (o.tenant, o.queue, o.lane, o.partition)
                  BETWEEN (p_tenant, p_name, 'push', k.partition) AND (p_tenant, p_name, 'push', k.partition)
            ORDER BY o.tenant, o.queue, o.lane, o.partition, o.position LIMIT 1) o;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    SELECT m.seq, m.created_at INTO v_last, v_created
    FROM message m WHERE m.queue_id = q.id ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1;
    IF v_created >= p_now + c_trace_slack_us THEN
        RETURN;
    END IF;
    v_last := greatest(v_last, q.floor_seq);
    v_created := greatest(v_created, p_now);
    INSERT INTO message (seq, created_at, id, queue_id, priority, partition, content_type, headers, payload)
    SELECT v_last + n.ord, v_created, n.id, q.id, n.priority, n.partition, n.content_type, n.headers, n.payload
    FROM unnest(p_ids, p_partitions, p_priorities, p_content_types, p_headers, p_payloads)
         WITH ORDINALITY AS n (id, partition, priority, content_type, headers, payload, ord);
    -- Assignments, not a query: to start one costs as much as these functions do.
    queue_id := q.id;
    last_seq := v_last + cardinality(p_ids);
    depth := log_depth(q.id, q.first_seq, last_seq, q.gaps) + q.scheduled_count;
    watched := is_watched(q.id, p_now);
    created_at := v_created;
END
$$;

-- The ids in a stretch of the log, by time, and those of p_scheduled that are in the schedule: this finds a push whose outcome is
-- unknown. The stretch is found by binary search and walked by the primary key. The schedule is asked by id, since its messages
-- may have been moved to another time. The caller holds the log's lock.
CREATE OR REPLACE FUNCTION ids_between(p_queue integer, p_last bigint, p_since bigint, p_until bigint, p_scheduled uuid[])
RETURNS TABLE (id uuid) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_first bigint := seq_at(p_queue, 1, p_last, p_since);
    v_end bigint := seq_at(p_queue, 1, p_last, p_until);
BEGIN
    RETURN QUERY SELECT m.id FROM message m WHERE m.queue_id = p_queue AND m.seq >= v_first AND m.seq < v_end;
    RETURN QUERY SELECT s.id FROM unnest(p_scheduled) AS k (id)
                 CROSS JOIN LATERAL (SELECT s.id, s.queue_id FROM scheduled s WHERE s.id = k.id ORDER BY s.id LIMIT 1) s
                 WHERE s.queue_id = p_queue;
END
$$;
