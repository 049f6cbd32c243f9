-- Takes messages that are about to be deleted out of a group's leases, and counts them as expired. What is under a live
-- lease stays with it; what the group has not discovered yet is counted when it walks over the gap.
CREATE OR REPLACE FUNCTION withdraw(p_queue integer, p_group integer, p_seqs bigint[], p_now bigint, p_shard smallint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_scan bigint;
    v_count bigint := 0;
    v_more bigint;
BEGIN
    -- Waits for a discovery that runs, so that none of the messages is discovered in between.
    SELECT g.scan_seq INTO v_scan FROM consumer_group g WHERE g.id = p_group FOR UPDATE;
    PERFORM 1 FROM partition_lease l
    WHERE l.queue_id = p_queue AND l.group_id::bigint = p_group
      AND l.partition IN (SELECT m.partition FROM message m WHERE m.queue_id = p_queue AND m.seq = ANY (p_seqs))
    ORDER BY l.partition FOR UPDATE;
    WITH target AS MATERIALIZED (
        SELECT l.partition, l.group_id, count(*) AS n,
               count(*) FILTER (WHERE m.seq > l.delivered_seq) AS fresh,
               array_agg(m.seq) AS seqs
        FROM message m CROSS JOIN LATERAL (
            SELECT l.* FROM partition_lease l WHERE l.partition = m.partition AND l.group_id = p_group LIMIT 1) l
        WHERE m.queue_id = p_queue AND m.seq = ANY (p_seqs) AND m.seq <= v_scan
          AND (m.audience IS NULL OR m.audience = p_group)
          AND ((m.seq > l.delivered_seq)
            OR (m.seq = ANY (l.open) AND NOT (l.token IS NOT NULL AND l.ready_at > p_now AND m.seq = ANY (l.open[1:l.leased]))))
        GROUP BY l.partition, l.group_id
    ), kept AS MATERIALIZED (
        SELECT l.partition, l.group_id, t.n, l.pending - t.fresh AS pending, l.leased, l.token, l.attempts, l.open[1] AS head,
               ARRAY(SELECT o.seq FROM unnest(l.open) o (seq) WHERE o.seq <> ALL (t.seqs) ORDER BY o.seq) AS open,
               cardinality(ARRAY(SELECT o.seq FROM unnest(l.open[1:l.leased]) o (seq) WHERE o.seq <> ALL (t.seqs))) AS still_leased
        FROM target t JOIN partition_lease l ON l.partition = t.partition AND l.group_id = t.group_id
    ), gone AS (
        DELETE FROM partition_lease l USING kept k
        WHERE k.open = '{}' AND k.pending = 0 AND l.partition = k.partition AND l.group_id = k.group_id
    ), changed AS (
        UPDATE partition_lease l SET pending = k.pending, open = k.open, leased = k.still_leased,
            token = CASE WHEN k.still_leased > 0 THEN l.token END,
            attempts = CASE WHEN k.open = '{}' THEN 0 WHEN k.open[1] = k.head THEN k.attempts ELSE 1 END
        FROM kept k
        WHERE NOT (k.open = '{}' AND k.pending = 0)
          AND l.partition = k.partition AND l.group_id = k.group_id
    )
    SELECT coalesce(sum(k.n), 0) INTO v_count FROM kept k;

    WITH kept AS MATERIALIZED (
        SELECT s.id, cardinality(s.seqs) AS before,
               ARRAY(SELECT o.seq FROM unnest(s.seqs) o (seq) WHERE o.seq <> ALL (p_seqs) ORDER BY o.seq) AS seqs
        FROM set_lease s
        WHERE s.queue_id = p_queue AND s.group_id = p_group AND s.seqs && p_seqs AND NOT (s.token IS NOT NULL AND s.ready_at > p_now)
        ORDER BY s.id FOR UPDATE
    ), gone AS (
        DELETE FROM set_lease s USING kept k WHERE s.id = k.id AND k.seqs = '{}'
    ), changed AS (
        UPDATE set_lease s SET seqs = k.seqs FROM kept k WHERE s.id = k.id AND k.seqs <> '{}'
    )
    SELECT coalesce(sum(k.before - cardinality(k.seqs)), 0) INTO v_more FROM kept k;
    IF v_count + v_more > 0 THEN
        PERFORM count_up(p_queue, p_group, p_shard, 0, 0, v_count + v_more, 0, 0);
    END IF;
    RETURN v_count + v_more;
END
$$;
