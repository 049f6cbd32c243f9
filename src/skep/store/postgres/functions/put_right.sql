-- Moves deadlines that were written by a clock which has since been put back by p_back. A lease, a retry and a claim each know
-- when they were written (leased_at, started_at). If that is ahead of now, the deadline lasts as long as it was asked for, from
-- now on. Otherwise the right clock wrote it, and it stays. A lease that was renewed ahead of now lasts no longer than the
-- renewal or the queue's lease, whichever is longer. Leases are locked in the order of those who settle for several groups: group by
-- group, and within a group by partition, sets by id. Returns how many operations and lease rows it changed.
CREATE OR REPLACE FUNCTION shift_deadlines(p_now bigint, p_back bigint, p_longest_wait bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_done bigint;
    v_count bigint;
    v_group integer;
BEGIN
    -- In the order of locks (functions/locks.sql).
    UPDATE operation o SET
        ready_at = CASE WHEN o.status = 'processing' THEN greatest(p_now, p_now + o.ready_at - o.started_at)
                        ELSE least(o.ready_at, greatest(p_now + p_longest_wait, o.ready_at - p_back)) END,
        started_at = CASE WHEN o.started_at > p_now THEN p_now ELSE o.started_at END
    WHERE o.processed_at IS NULL AND o.ready_at > p_now AND (o.status <> 'processing' OR o.started_at > p_now);
    GET DIAGNOSTICS v_done = ROW_COUNT;
    LOCK TABLE consumer_group IN ACCESS SHARE MODE;
    FOR v_group IN
        SELECT g.id FROM (
            SELECT l.group_id FROM partition_lease l WHERE l.ready_at > p_now OR l.oldest_at > p_now OR l.newest_at > p_now
            UNION SELECT s.group_id FROM set_lease s WHERE s.ready_at > p_now OR s.oldest_at > p_now
        ) ahead JOIN consumer_group g ON g.id = ahead.group_id JOIN queue q ON q.id = g.queue_id
        ORDER BY q.name, q.tenant, g.name, g.id
    LOOP
        PERFORM 1 FROM partition_lease l
        WHERE l.group_id::bigint = v_group AND (l.ready_at > p_now OR l.oldest_at > p_now OR l.newest_at > p_now)
        ORDER BY l.partition FOR UPDATE;
        PERFORM 1 FROM set_lease s WHERE s.group_id = v_group AND (s.ready_at > p_now OR s.oldest_at > p_now)
        ORDER BY s.id FOR UPDATE;
    END LOOP;
    UPDATE partition_lease l SET
        ready_at = least(l.ready_at, greatest(p_now, CASE
            WHEN l.leased_at > p_now AND l.token IS NULL THEN p_now + l.ready_at - l.leased_at
            WHEN l.leased_at > p_now THEN
                least(p_now + l.ready_at - l.leased_at, greatest(l.ready_at - p_back, p_now + (q.lease_seconds * 1e6)::bigint))
            WHEN l.leased_at IS NULL THEN
                ready_time(least(l.oldest_at, p_now), least(l.newest_at, p_now),
                           (q.delayed_processing_seconds * 1e6)::bigint, (q.window_buffer_seconds * 1e6)::bigint)
            ELSE l.ready_at END)),
        leased_at = CASE WHEN l.leased_at > p_now THEN p_now ELSE l.leased_at END,
        oldest_at = least(l.oldest_at, p_now), newest_at = least(l.newest_at, p_now)
    FROM queue q WHERE q.id = l.queue_id AND (l.ready_at > p_now OR l.oldest_at > p_now OR l.newest_at > p_now);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_done := v_done + v_count;
    UPDATE set_lease s SET
        ready_at = least(s.ready_at, greatest(p_now, CASE
            WHEN s.leased_at > p_now AND s.token IS NULL THEN p_now + s.ready_at - s.leased_at
            WHEN s.leased_at > p_now THEN
                least(p_now + s.ready_at - s.leased_at, greatest(s.ready_at - p_back, p_now + (q.lease_seconds * 1e6)::bigint))
            WHEN s.leased_at IS NULL THEN least(s.oldest_at, p_now) + (q.delayed_processing_seconds * 1e6)::bigint
            ELSE s.ready_at END)),
        leased_at = CASE WHEN s.leased_at > p_now THEN p_now ELSE s.leased_at END, oldest_at = least(s.oldest_at, p_now)
    FROM queue q WHERE q.id = s.queue_id AND (s.ready_at > p_now OR s.oldest_at > p_now);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_done := v_done + v_count;
    UPDATE endpoint e SET open_until = greatest(p_now, e.open_until - p_back) WHERE e.open_until > p_now;
    -- A session that began ahead of now lasts as long as any other, from now on.
    UPDATE session s SET expires_at = s.expires_at - greatest(0, s.created_at - p_now), created_at = least(s.created_at, p_now), used_at = p_now
    WHERE s.used_at > p_now;
    UPDATE watcher w SET until = greatest(p_now, w.until - p_back) WHERE w.until > p_now;
    RETURN v_done;
END
$$;

-- Corrects created_at of the first p_limit messages of a log that lie ahead of now: to about when they came. A message that came
-- after the clock was put back has that time in its id, and the messages before it came no later. It begins with the first of
-- them, since created_at never falls along the log. A trace is then no longer found by its id's millisecond, so it is written
-- out. Returns how many it corrected. The caller holds the log's lock.
CREATE OR REPLACE FUNCTION stamp_ahead(p_queue integer, p_put_back_at bigint, p_now bigint, p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    q queue%ROWTYPE;
    v_first bigint;
    v_before bigint;
    v_done bigint;
BEGIN
    SELECT * INTO q FROM queue k WHERE k.id = p_queue;
    v_first := seq_at(q.id, 1, last_seq(q.id, q.floor_seq), p_now + 1);
    SELECT m.created_at INTO v_before FROM message m WHERE m.queue_id = q.id AND m.seq < v_first
    ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1;
    WITH ahead AS MATERIALIZED (
        SELECT m.seq, CASE WHEN substr(m.id::text, 15, 1) = '7'
                           THEN ('x' || substr(replace(m.id::text, '-', ''), 1, 12))::bit(48)::bigint * 1000 ELSE p_now END AS minted_at
        FROM message m WHERE m.queue_id = q.id AND m.seq >= v_first ORDER BY m.queue_id, m.seq LIMIT p_limit
    ), stamped AS MATERIALIZED (
        SELECT a.seq, greatest(v_before, least(p_now, min(greatest(a.minted_at, p_put_back_at)) OVER (
            ORDER BY a.seq ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING))) AS at
        FROM ahead a
    )
    UPDATE message m SET created_at = s.at, trace_id = coalesce(m.trace_id, m.id)
    FROM stamped s WHERE m.queue_id = q.id AND m.seq = s.seq;
    GET DIAGNOSTICS v_done = ROW_COUNT;
    RETURN v_done;
END
$$;
