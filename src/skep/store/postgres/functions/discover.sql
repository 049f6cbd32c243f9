-- When a free row with nothing open may be claimed: when the delay of its oldest message is over, and a window after its newest
-- message, but at most ten windows after its oldest.
CREATE OR REPLACE FUNCTION ready_time(p_oldest bigint, p_newest bigint, p_delay bigint, p_window bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(p_oldest + p_delay,
                    CASE WHEN p_window > 0 THEN least(p_newest + p_window, p_oldest + 10 * p_window) ELSE p_oldest END)
$$;

-- Adds to a group's counters. Each server adds to the row of its shard, so that servers seldom wait for each other's commits.
CREATE OR REPLACE FUNCTION count_up(p_queue integer, p_group integer, p_shard smallint, p_completed bigint, p_dead bigint,
                                    p_expired bigint, p_skipped bigint, p_retried bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE group_counter c SET
        completed = c.completed + p_completed, dead = c.dead + p_dead, expired = c.expired + p_expired,
        skipped = c.skipped + p_skipped, retried = c.retried + p_retried
    WHERE c.group_id = p_group AND c.shard = p_shard;
    IF NOT FOUND THEN
        INSERT INTO group_counter AS c (queue_id, group_id, shard, completed, dead, expired, skipped, retried)
        VALUES (p_queue, p_group, p_shard, p_completed, p_dead, p_expired, p_skipped, p_retried)
        ON CONFLICT (group_id, shard) DO UPDATE SET
            completed = c.completed + excluded.completed, dead = c.dead + excluded.dead,
            expired = c.expired + excluded.expired, skipped = c.skipped + excluded.skipped,
            retried = c.retried + excluded.retried;
    END IF;
END
$$;

-- Walks the log once from where the group stopped, and notes which partitions have work. Returns how many seqs it walked.
-- If somebody else holds the group's row, it walks none: nobody waits for another's commit.
-- Rows are upserted in ascending partition order, the order in which settling locks them.
-- A created_at ahead of now (the clock was put back) counts as now: a message that may be had must not wait for a wrong time.
CREATE OR REPLACE FUNCTION discover(p_queue integer, p_group integer, p_limit integer, p_shard smallint, p_now bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    q queue%ROWTYPE;
    v_scan bigint;
    v_gaps bigint;
    v_known bigint;
    v_upper bigint;
    v_rows bigint;
    v_others bigint;
    v_delay bigint;
    v_window bigint;
BEGIN
    SELECT g.scan_seq, g.gaps INTO v_scan, v_gaps FROM consumer_group g WHERE g.id = p_group FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    -- The caller shares the group, so the ordering cannot change meanwhile.
    SELECT * INTO q FROM queue k WHERE k.id = p_queue;
    v_upper := least(last_seq(q.id, q.floor_seq), v_scan + p_limit);
    IF v_upper <= v_scan THEN
        RETURN 0;
    END IF;
    v_delay := (q.delayed_processing_seconds * 1e6)::bigint;
    v_window := (q.window_buffer_seconds * 1e6)::bigint;
    IF q.ordering = 'unordered' THEN
        WITH found AS MATERIALIZED (
            SELECT m.partition, m.priority, m.seq, m.created_at, (m.audience IS NULL OR m.audience = p_group) AS mine
            FROM message m WHERE (m.queue_id, m.seq) > (q.id, v_scan) AND (m.queue_id, m.seq) <= (q.id, v_upper)
            ORDER BY m.queue_id, m.seq
        ), numbered AS (
            SELECT f.*, (row_number() OVER (PARTITION BY f.partition, f.priority ORDER BY f.seq) - 1) / 100 AS chunk
            FROM found f WHERE f.mine
        ), made AS (
            INSERT INTO set_lease (queue_id, group_id, partition, priority, seqs, ready_at, oldest_at)
            SELECT q.id, p_group, n.partition, n.priority, array_agg(n.seq ORDER BY n.seq),
                   least(min(n.created_at), p_now) + v_delay, least(min(n.created_at), p_now)
            FROM numbered n GROUP BY n.partition, n.priority, n.chunk ORDER BY min(n.seq)
        )
        SELECT count(*), count(*) FILTER (WHERE NOT f.mine) INTO v_rows, v_others FROM found f;
    ELSE
        WITH found AS MATERIALIZED (
            SELECT m.partition, (m.audience IS NULL OR m.audience = p_group) AS mine, count(*) AS n,
                   min(m.seq) AS first_seq, least(min(m.created_at), p_now) AS oldest_at, least(max(m.created_at), p_now) AS newest_at
            FROM (SELECT m.partition, m.audience, m.seq, m.created_at FROM message m
                  WHERE (m.queue_id, m.seq) > (q.id, v_scan) AND (m.queue_id, m.seq) <= (q.id, v_upper)
                  ORDER BY m.queue_id, m.seq) m
            GROUP BY 1, 2
        ), noted AS (
            INSERT INTO partition_lease AS l
                (partition, queue_id, group_id, delivered_seq, pending, oldest_at, newest_at, ready_at)
            SELECT f.partition, q.id, p_group, f.first_seq - 1, f.n, f.oldest_at, f.newest_at,
                   ready_time(f.oldest_at, f.newest_at, v_delay, v_window)
            FROM found f WHERE f.mine ORDER BY f.partition
            ON CONFLICT (partition, group_id) DO UPDATE SET
                pending = l.pending + excluded.pending,
                newest_at = excluded.newest_at,
                ready_at = CASE WHEN v_window > 0 AND l.token IS NULL AND l.open = '{}'
                                THEN ready_time(l.oldest_at, excluded.newest_at, v_delay, v_window) ELSE l.ready_at END
        )
        SELECT coalesce(sum(f.n), 0), coalesce(sum(f.n) FILTER (WHERE NOT f.mine), 0) INTO v_rows, v_others FROM found f;
    END IF;
    -- Known gaps are counted already: when their messages were deleted, or when the group began.
    v_known := least(v_gaps, v_upper - v_scan - v_rows);
    UPDATE consumer_group g SET scan_seq = v_upper, gaps = v_gaps - v_known WHERE g.id = p_group;
    IF v_others > 0 OR v_rows + v_known < v_upper - v_scan THEN
        PERFORM count_up(q.id, p_group, p_shard, 0, 0, v_upper - v_scan - v_rows - v_known, v_others, 0);
    END IF;
    RETURN v_upper - v_scan;
END
$$;

-- How many ready rows of an unordered queue fill a batch, or come before the first row whose messages are handed out alone; how many
-- messages they have; and whether the first row is such a one. p_single: every message comes alone.
-- It reads the rows one after the other, and none beyond those it counts: their number depends on the batch, not on what waits.
CREATE OR REPLACE FUNCTION first_sets(
    p_queue integer, p_group integer, p_now bigint, p_wanted integer, p_partition text, p_single boolean,
    OUT sets integer, OUT messages integer, OUT is_alone boolean)
LANGUAGE plpgsql AS $$
DECLARE
    v_set record;
BEGIN
    sets := 0;
    messages := 0;
    is_alone := false;
    FOR v_set IN
        SELECT cardinality(s.seqs) AS n, s.attempts FROM set_lease s
        WHERE s.queue_id = p_queue AND s.group_id = p_group AND s.ready_at <= p_now AND (p_partition IS NULL OR s.partition = p_partition)
        ORDER BY s.queue_id, s.group_id, s.priority DESC, s.ready_at, s.id + 0 LIMIT p_wanted
    LOOP
        IF p_single OR v_set.attempts > 0 THEN
            is_alone := sets = 0;
            sets := greatest(sets, 1);
            messages := greatest(messages, 1);
            EXIT;
        END IF;
        sets := sets + 1;
        messages := messages + v_set.n;
        EXIT WHEN messages >= p_wanted;
    END LOOP;
END
$$;
