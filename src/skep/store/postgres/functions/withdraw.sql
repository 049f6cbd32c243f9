-- Takes messages that are about to be deleted (p_seqs, ascending) out of a group, and counts the unsettled ones as expired at
-- once, discovered or not. Messages under a live lease stay with it. A created_at ahead of now (the clock was put back) counts as
-- now. Returns how many it took out.
CREATE OR REPLACE FUNCTION withdraw(p_queue integer, p_group integer, p_seqs bigint[], p_now bigint, p_shard smallint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    q queue%ROWTYPE;
    g record;
    v_ahead bigint := 0;
    v_others bigint := 0;
    v_leased bigint := 0;
    v_sets bigint := 0;
    v_delay bigint;
    v_window bigint;
BEGIN
    -- Waits for a running discovery, so that none of the messages is discovered meanwhile.
    SELECT x.scan_seq, x.external INTO g FROM consumer_group x WHERE x.id = p_group FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    IF p_seqs[cardinality(p_seqs)] > g.scan_seq THEN
        SELECT count(*), count(*) FILTER (WHERE m.audience <> p_group AND NOT g.external) INTO v_ahead, v_others
        FROM unnest(p_seqs) AS k (seq)
        CROSS JOIN LATERAL (SELECT m.audience FROM message m WHERE (m.queue_id, m.seq) BETWEEN (p_queue, k.seq) AND (p_queue, k.seq)
                            ORDER BY m.queue_id, m.seq LIMIT 1) m
        WHERE k.seq > g.scan_seq;
        UPDATE consumer_group x SET gaps = x.gaps + v_ahead WHERE x.id = p_group;
    END IF;
    IF NOT g.external AND p_seqs[1] <= g.scan_seq THEN
        SELECT * INTO q FROM queue k WHERE k.id = p_queue;
        v_delay := (q.delayed_processing_seconds * 1e6)::bigint;
        v_window := (q.window_buffer_seconds * 1e6)::bigint;
        PERFORM 1 FROM (
            SELECT DISTINCT m.partition FROM unnest(p_seqs) AS k (seq)
            CROSS JOIN LATERAL (SELECT m.partition FROM message m WHERE (m.queue_id, m.seq) BETWEEN (p_queue, k.seq) AND (p_queue, k.seq)
                                ORDER BY m.queue_id, m.seq LIMIT 1) m
            ORDER BY m.partition) p
        CROSS JOIN LATERAL (SELECT 1 FROM partition_lease l WHERE l.partition = p.partition AND l.group_id = p_group FOR UPDATE) l;
        WITH target AS MATERIALIZED (
            SELECT l.partition, l.group_id, count(*) AS n,
                   count(*) FILTER (WHERE m.seq > l.delivered_seq) AS fresh,
                   array_agg(m.seq) AS seqs
            FROM unnest(p_seqs) AS k (seq)
            CROSS JOIN LATERAL (SELECT m.seq, m.partition, m.audience FROM message m
                                WHERE (m.queue_id, m.seq) BETWEEN (p_queue, k.seq) AND (p_queue, k.seq) ORDER BY m.queue_id, m.seq LIMIT 1) m
            CROSS JOIN LATERAL (
                SELECT l.* FROM partition_lease l WHERE l.partition = m.partition AND l.group_id = p_group LIMIT 1) l
            WHERE k.seq <= g.scan_seq
              AND (m.audience IS NULL OR m.audience = p_group)
              AND ((m.seq > l.delivered_seq)
                OR (m.seq = ANY (l.open) AND NOT (l.token IS NOT NULL AND l.ready_at > p_now AND m.seq = ANY (l.open[1:l.leased]))))
            GROUP BY l.partition, l.group_id
        ), kept AS MATERIALIZED (
            SELECT l.partition, l.group_id, t.n, l.pending - t.fresh AS pending, l.leased, l.token, l.attempts, l.open[1] AS head,
                   l.delivered_seq, l.newest_at,
                   ARRAY(SELECT o.seq FROM unnest(l.open) o (seq) WHERE o.seq <> ALL (t.seqs) ORDER BY o.seq) AS open,
                   cardinality(ARRAY(SELECT o.seq FROM unnest(l.open[1:l.leased]) o (seq) WHERE o.seq <> ALL (t.seqs))) AS still_leased
            FROM target t CROSS JOIN LATERAL (
                SELECT l.* FROM partition_lease l WHERE l.partition = t.partition AND l.group_id = t.group_id LIMIT 1) l
        ), headed AS MATERIALIZED (
            -- With the message that is first now, where that has changed: the first open one, or the next one after those
            -- delivered.
            SELECT k.*, m.seq AS next_seq, CASE WHEN m.seq IS NOT NULL THEN least(m.created_at, p_now) END AS next_at
            FROM kept k LEFT JOIN LATERAL (
                (SELECT m.seq, m.created_at FROM message m
                 WHERE k.open = '{}' AND m.partition = k.partition AND m.queue_id = p_queue AND m.seq > k.delivered_seq
                   AND m.seq <> ALL (p_seqs) AND m.seq <= g.scan_seq AND (m.audience IS NULL OR m.audience = p_group)
                 ORDER BY m.partition, m.queue_id, m.seq LIMIT 1)
                UNION ALL
                (SELECT m.seq, m.created_at FROM message m
                 WHERE k.open[1] <> k.head AND (m.queue_id, m.seq) BETWEEN (p_queue, k.open[1]) AND (p_queue, k.open[1]) ORDER BY m.queue_id, m.seq LIMIT 1)) m ON true
        ), gone AS (
            DELETE FROM partition_lease l USING kept k
            WHERE k.open = '{}' AND k.pending = 0 AND l.partition = ANY (ARRAY[k.partition]) AND l.group_id = k.group_id
        ), changed AS (
            UPDATE partition_lease l SET pending = k.pending, open = k.open, leased = k.still_leased,
                token = CASE WHEN k.still_leased > 0 THEN l.token END,
                leased_at = CASE WHEN k.open <> '{}' THEN l.leased_at END,
                attempts = CASE WHEN k.open = '{}' THEN 0 WHEN k.open[1] = k.head THEN k.attempts ELSE 1 END,
                last_error = CASE WHEN k.open[1] = k.head THEN l.last_error END,
                oldest_at = coalesce(k.next_at, l.oldest_at),
                -- Everything of this partition is settled up to the next message: so the group's progress is exact.
                delivered_seq = CASE WHEN k.open = '{}' THEN coalesce(k.next_seq - 1, l.delivered_seq) ELSE l.delivered_seq END,
                -- Messages that were delivered with a deleted head wait for the same retry.
                ready_at = CASE WHEN k.open = '{}' AND k.next_seq IS NOT NULL
                                THEN ready_time(k.next_at, least(l.newest_at, p_now), v_delay, v_window) ELSE l.ready_at END
            FROM headed k
            WHERE NOT (k.open = '{}' AND k.pending = 0)
              AND l.partition = ANY (ARRAY[k.partition]) AND l.group_id = k.group_id
        )
        SELECT coalesce(sum(k.n), 0) INTO v_leased FROM kept k;

        WITH kept AS MATERIALIZED (
            SELECT s.id, cardinality(s.seqs) AS before,
                   ARRAY(SELECT o.seq FROM unnest(s.seqs) o (seq) WHERE o.seq <> ALL (p_seqs) ORDER BY o.seq) AS seqs
            FROM set_lease s
            WHERE s.queue_id = p_queue AND s.group_id = p_group AND s.seqs[1] <= p_seqs[cardinality(p_seqs)]
              AND s.seqs[cardinality(s.seqs)] >= p_seqs[1] AND s.seqs && p_seqs AND NOT (s.token IS NOT NULL AND s.ready_at > p_now)
            ORDER BY s.id + 0 FOR UPDATE
        ), gone AS (
            DELETE FROM set_lease s USING kept k WHERE s.id = ANY (ARRAY[k.id]) AND k.seqs = '{}'
        ), changed AS (
            UPDATE set_lease s SET seqs = k.seqs, oldest_at = coalesce(
                (SELECT least(m.created_at, p_now) FROM unnest(k.seqs) AS u (seq)
                 CROSS JOIN LATERAL (SELECT m.created_at FROM message m WHERE (m.queue_id, m.seq) BETWEEN (p_queue, u.seq) AND (p_queue, u.seq)
                                     ORDER BY m.queue_id, m.seq LIMIT 1) m LIMIT 1), s.oldest_at)
            FROM kept k WHERE s.id = ANY (ARRAY[k.id]) AND k.seqs <> '{}'
        )
        SELECT coalesce(sum(k.before - cardinality(k.seqs)), 0) INTO v_sets FROM kept k;
    END IF;
    IF v_ahead + v_leased + v_sets > 0 THEN
        PERFORM count_up(p_queue, p_group, p_shard, 0, 0, v_ahead - v_others + v_leased + v_sets, v_others, 0);
    END IF;
    RETURN v_ahead + v_leased + v_sets;
END
$$;
