-- How far every group of a queue has come: everything up to it is settled for all of them. NULL without groups.
CREATE OR REPLACE FUNCTION settled_seq(p_queue integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_settled bigint;
BEGIN
    SELECT min(least(g.scan_seq, coalesce(
        (SELECT min(coalesce(l.open[1] - 1, l.delivered_seq)) FROM partition_lease l
         WHERE l.queue_id = p_queue AND l.group_id::bigint = g.id), g.scan_seq), coalesce(
        (SELECT min(s.seqs[1]) - 1 FROM set_lease s WHERE s.queue_id = p_queue AND s.group_id = g.id), g.scan_seq)))
    INTO v_settled FROM consumer_group g WHERE g.queue_id = p_queue;
    RETURN v_settled;
END
$$;

-- Makes every group of a queue let go of what lies below a seq, counting what it had not settled as expired: the head of the
-- log is about to be deleted whether it was read or not. What is under a live lease stays with it until that is settled.
CREATE OR REPLACE FUNCTION release_below(p_queue integer, p_upper bigint, p_now bigint, p_shard smallint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    g record;
    v_expired bigint;
    v_part bigint;
BEGIN
    -- An external group has nothing to let go of: it finds out when it reads.
    FOR g IN SELECT x.id FROM consumer_group x WHERE x.queue_id = p_queue AND NOT x.external ORDER BY x.id LOOP
        WHILE (SELECT x.scan_seq FROM consumer_group x WHERE x.id = g.id FOR UPDATE) < p_upper LOOP
            PERFORM discover(p_queue, g.id, 10000, p_shard, p_now);
        END LOOP;
        PERFORM 1 FROM partition_lease l
        WHERE l.queue_id = p_queue AND l.group_id::bigint = g.id AND coalesce(l.open[1], l.delivered_seq + 1) <= p_upper
        ORDER BY l.partition FOR UPDATE;
        WITH affected AS MATERIALIZED (
            SELECT l.partition, l.group_id, l.open, l.pending, v.live,
                   ARRAY(SELECT o.seq FROM unnest(l.open) WITH ORDINALITY o (seq, n)
                         WHERE o.seq > p_upper OR (v.live AND o.n <= l.leased) ORDER BY o.seq) AS left_open,
                   (SELECT count(*) FROM message m WHERE m.partition = l.partition AND m.queue_id = p_queue
                      AND m.seq > l.delivered_seq AND m.seq <= p_upper AND (m.audience IS NULL OR m.audience = g.id)) AS fresh,
                   (SELECT least(m.created_at, p_now) FROM message m WHERE m.partition = l.partition AND m.queue_id = p_queue
                      AND m.seq > greatest(p_upper, l.delivered_seq) AND (m.audience IS NULL OR m.audience = g.id)
                    ORDER BY m.partition, m.queue_id, m.seq LIMIT 1) AS next_at
            FROM partition_lease l
            CROSS JOIN LATERAL (SELECT l.token IS NOT NULL AND l.ready_at > p_now AS live) v
            WHERE l.queue_id = p_queue AND l.group_id::bigint = g.id AND coalesce(l.open[1], l.delivered_seq + 1) <= p_upper
        ), gone AS (
            DELETE FROM partition_lease l USING affected a
            WHERE a.left_open = '{}' AND a.pending = a.fresh
              AND l.partition = a.partition AND l.group_id = a.group_id
        ), kept AS (
            UPDATE partition_lease l SET
                open = a.left_open, pending = a.pending - a.fresh, delivered_seq = greatest(l.delivered_seq, p_upper),
                token = CASE WHEN a.live THEN l.token END,
                leased_at = CASE WHEN a.live THEN l.leased_at END,
                leased = CASE WHEN a.live THEN l.leased ELSE 0 END,
                attempts = CASE WHEN a.live OR l.open[1] = a.left_open[1] THEN l.attempts
                                ELSE least(cardinality(a.left_open), 1) END,
                ready_at = CASE WHEN a.live THEN l.ready_at ELSE p_now END,
                oldest_at = coalesce(a.next_at, l.oldest_at)
            FROM affected a
            WHERE NOT (a.left_open = '{}' AND a.pending = a.fresh)
              AND l.partition = a.partition AND l.group_id = a.group_id
        )
        SELECT coalesce(sum(cardinality(a.open) - cardinality(a.left_open) + a.fresh), 0) INTO v_expired FROM affected a;
        WITH affected AS MATERIALIZED (
            SELECT s.id, cardinality(s.seqs) AS before,
                   ARRAY(SELECT o.seq FROM unnest(s.seqs) o (seq) WHERE o.seq > p_upper ORDER BY o.seq) AS seqs
            FROM set_lease s WHERE s.queue_id = p_queue AND s.group_id = g.id AND s.seqs[1] <= p_upper
              AND NOT (s.token IS NOT NULL AND s.ready_at > p_now)
            ORDER BY s.id FOR UPDATE
        ), gone AS (
            DELETE FROM set_lease s USING affected a WHERE s.id = a.id AND a.seqs = '{}'
        ), kept AS (
            UPDATE set_lease s SET seqs = a.seqs FROM affected a WHERE s.id = a.id AND a.seqs <> '{}'
        )
        SELECT coalesce(sum(a.before - cardinality(a.seqs)), 0) INTO v_part FROM affected a;
        IF v_expired + v_part > 0 THEN
            PERFORM count_up(p_queue, g.id, p_shard, 0, 0, v_expired + v_part, 0, 0);
        END IF;
    END LOOP;
END
$$;
