-- The first seq whose message was created at or after an instant, or p_last + 1. created_at never falls along the log, so a
-- binary search by the primary key needs a few dozen look-ups, whatever the length of the log.
CREATE OR REPLACE FUNCTION seq_at(p_queue integer, p_first bigint, p_last bigint, p_at bigint)
RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_low bigint := p_first;
    v_high bigint := p_last + 1;
    v_middle bigint;
    m record;
BEGIN
    WHILE v_low < v_high LOOP
        v_middle := (v_low + v_high) / 2;
        SELECT x.seq, x.created_at INTO m FROM message x WHERE x.queue_id = p_queue AND x.seq >= v_middle
        ORDER BY x.queue_id, x.seq LIMIT 1;
        IF NOT FOUND OR m.seq >= v_high OR m.created_at >= p_at THEN
            v_high := v_middle;
        ELSE
            v_low := m.seq + 1;
        END IF;
    END LOOP;
    -- Deleted messages leave gaps: the first message that still exists counts.
    RETURN coalesce((SELECT x.seq FROM message x WHERE x.queue_id = p_queue AND x.seq >= v_low ORDER BY x.queue_id, x.seq LIMIT 1),
                    p_last + 1);
END
$$;

-- The seq before the one that a start position names: the new start_seq and scan_seq.
CREATE OR REPLACE FUNCTION start_position(p_queue integer, p_mode text, p_value bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    q queue%ROWTYPE;
    v_last bigint;
BEGIN
    SELECT * INTO q FROM queue k WHERE k.id = p_queue;
    v_last := last_seq(q.id, q.floor_seq);
    RETURN CASE p_mode
        WHEN 'all' THEN q.first_seq - 1
        WHEN 'new' THEN v_last
        WHEN 'time' THEN seq_at(q.id, q.first_seq, v_last, p_value) - 1
        ELSE greatest(q.first_seq, least(p_value, v_last + 1)) - 1
    END;
END
$$;

-- How many seqs after p_seq have no message. A group that starts there never had those messages. Rows are counted, by the primary
-- key, only if the queue has gaps and the start is amid its log. The caller holds the lock of the log or of the group.
CREATE OR REPLACE FUNCTION gaps_after(p_queue integer, p_seq bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    q queue%ROWTYPE;
    v_last bigint;
BEGIN
    SELECT * INTO q FROM queue k WHERE k.id = p_queue;
    IF q.gaps = 0 OR p_seq < q.first_seq THEN
        RETURN q.gaps;
    END IF;
    v_last := last_seq(q.id, q.floor_seq);
    RETURN v_last - p_seq - (SELECT count(*) FROM message m WHERE m.queue_id = q.id AND m.seq > p_seq);
END
$$;

-- Notes the gaps ahead of a group that begins, and counts them as skipped: it never had those messages.
CREATE OR REPLACE FUNCTION pass_over_gaps(p_queue integer, p_group integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_gaps bigint;
BEGIN
    SELECT gaps_after(p_queue, g.scan_seq) INTO v_gaps FROM consumer_group g WHERE g.id = p_group;
    UPDATE consumer_group g SET gaps = v_gaps WHERE g.id = p_group AND g.gaps <> v_gaps;
    IF v_gaps > 0 THEN
        PERFORM count_up(p_queue, p_group, 0::smallint, 0, 0, 0, v_gaps, 0);
    END IF;
END
$$;

-- Notes that a group is in use. It waits for nobody: if somebody else holds the row, it leaves this to the next call.
CREATE OR REPLACE FUNCTION mark_active(p_group integer, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM consumer_group g WHERE g.id = p_group FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE consumer_group g SET active_at = greatest(g.active_at, p_now), idle = false WHERE g.id = p_group;
    END IF;
END
$$;

-- Moves an external group forward, never back; a missing group is made at that seq. The state is 'ok'; 'beyond' (the log has no
-- such seq, and `last` is its end); 'popping' (the group leases messages); or 'missing' (the queue was deleted meanwhile).
-- Every message that the group passes counts as completed, whatever its audience: a reader of the raw log has seen it. Known gaps
-- are counted already. With p_archived these messages are safe in a lake.
CREATE OR REPLACE FUNCTION report_progress(p_queue integer, p_name text, p_seq bigint, p_now bigint, p_shard smallint,
                                           p_archived boolean, OUT state text, OUT last bigint)
LANGUAGE plpgsql AS $$
DECLARE
    c_active_every_us CONSTANT bigint := 60000000;
    q queue%ROWTYPE;
    g consumer_group%ROWTYPE;
    v_known bigint;
BEGIN
    SELECT * INTO q FROM queue k WHERE k.id = p_queue;
    last := last_seq(q.id, q.floor_seq);
    IF p_seq > last THEN
        state := 'beyond';
        RETURN;
    END IF;
    state := 'ok';
    SELECT * INTO g FROM consumer_group x WHERE x.queue_id = p_queue AND x.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM lock_log(p_queue);
        SELECT * INTO q FROM queue k WHERE k.id = p_queue;
        IF NOT FOUND OR q.deleted_at IS NOT NULL THEN
            state := 'missing';
            RETURN;
        END IF;
        INSERT INTO consumer_group (queue_id, name, start_seq, scan_seq, created_at, active_at, external)
        SELECT p_queue, p_name, s.seq, s.seq, p_now, p_now, true FROM (SELECT greatest(p_seq, q.first_seq - 1) AS seq) s
        ON CONFLICT (queue_id, name) DO NOTHING;
        IF FOUND THEN
            PERFORM pass_over_gaps(p_queue, (SELECT x.id FROM consumer_group x WHERE x.queue_id = p_queue AND x.name = p_name));
        END IF;
        SELECT * INTO g FROM consumer_group x WHERE x.queue_id = p_queue AND x.name = p_name FOR UPDATE;
    END IF;
    IF NOT g.external THEN
        state := 'popping';
        RETURN;
    END IF;
    IF p_archived AND p_seq > coalesce(g.archived_seq, -1) THEN
        UPDATE consumer_group x SET archived_seq = p_seq WHERE x.id = g.id;
    END IF;
    IF p_seq > g.scan_seq THEN
        v_known := 0;
        IF g.gaps > 0 THEN
            v_known := least(g.gaps, p_seq - g.scan_seq - (
                SELECT count(*) FROM message m WHERE m.queue_id = p_queue AND m.seq > g.scan_seq AND m.seq <= p_seq));
        END IF;
        UPDATE consumer_group x SET scan_seq = p_seq, gaps = g.gaps - v_known WHERE x.id = g.id;
        PERFORM count_up(p_queue, g.id, p_shard, p_seq - g.scan_seq - v_known, 0, 0, 0, 0);
    END IF;
    IF g.idle OR p_now - g.active_at >= c_active_every_us THEN
        PERFORM mark_active(g.id, p_now);
    END IF;
END
$$;

-- As report_progress, of one group in many logs (p_queues and p_seqs go together). First it locks the group's rows in the order of queues,
-- and only then it counts: the counters come after all rows. Where there is no such group, the state is 'new' and nothing is done, since
-- a group is made under the lock of its log, which comes after the rows, too.
CREATE OR REPLACE FUNCTION report_progress_of_logs(p_tenant text, p_queues text[], p_seqs bigint[], p_name text, p_now bigint, p_shard smallint,
                                                   p_archived boolean)
RETURNS TABLE (queue text, state text, last bigint, progress bigint) LANGUAGE plpgsql AS $$
DECLARE
    k record;
    v_known integer[] := '{}';
    v_names text[] := '{}';
    v_reported bigint[] := '{}';
BEGIN
    FOR k IN
        SELECT q.id, w.name, w.seq
        FROM unnest(p_queues, p_seqs) AS w (name, seq)
        CROSS JOIN LATERAL (SELECT * FROM queue q WHERE q.tenant = p_tenant AND q.name = w.name AND q.deleted_at IS NULL LIMIT 1) q
        ORDER BY q.id
    LOOP
        PERFORM 1 FROM consumer_group g WHERE g.queue_id = k.id AND g.name = p_name FOR UPDATE;
        IF FOUND THEN
            v_known := v_known || k.id;
            v_names := v_names || k.name;
            v_reported := v_reported || k.seq;
        ELSE
            queue := k.name;
            state := 'new';
            RETURN NEXT;
        END IF;
    END LOOP;
    FOR i IN 1 .. cardinality(v_known) LOOP
        queue := v_names[i];
        SELECT r.state, r.last INTO state, last FROM report_progress(v_known[i], p_name, v_reported[i], p_now, p_shard, p_archived) r;
        SELECT g.scan_seq INTO progress FROM consumer_group g WHERE g.queue_id = v_known[i] AND g.name = p_name;
        RETURN NEXT;
    END LOOP;
END
$$;

-- The id of a group, which is made on first use: one row, whatever the number of partitions. NULL when the queue was deleted
-- meanwhile: nobody would remove a group that is made after that.
CREATE OR REPLACE FUNCTION ensure_group(p_queue integer, p_name text, p_mode text, p_value bigint, p_now bigint)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    q queue%ROWTYPE;
    v_id integer;
    v_start bigint;
BEGIN
    SELECT g.id INTO v_id FROM consumer_group g WHERE g.queue_id = p_queue AND g.name = p_name;
    IF v_id IS NOT NULL THEN
        RETURN v_id;
    END IF;
    -- Under the log's lock: a group must not start amid a clear or a change of ordering.
    PERFORM lock_log(p_queue);
    -- By the id alone, as in open_logs.
    SELECT * INTO q FROM queue k WHERE k.id = p_queue;
    IF NOT FOUND OR q.deleted_at IS NOT NULL THEN
        RETURN NULL;
    END IF;
    v_start := start_position(p_queue, p_mode, p_value);
    INSERT INTO consumer_group (queue_id, name, start_seq, scan_seq, created_at, active_at)
    VALUES (p_queue, p_name, v_start, v_start, p_now, p_now)
    ON CONFLICT (queue_id, name) DO NOTHING
    RETURNING id INTO v_id;
    IF v_id IS NOT NULL THEN
        PERFORM pass_over_gaps(p_queue, v_id);
        RETURN v_id;
    END IF;
    SELECT g.id INTO v_id FROM consumer_group g WHERE g.queue_id = p_queue AND g.name = p_name;
    RETURN v_id;
END
$$;
