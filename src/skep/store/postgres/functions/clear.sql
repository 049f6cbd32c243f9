-- Clears a queue: settles the pending messages as expired for every group, and lets the log begin after its last message.
-- Messages under a live lease stay with it, unless p_all. Returns the number of settled messages, summed over the groups; for a
-- queue without groups, the number of messages in the log. The caller has taken the groups and holds the log's lock.
CREATE OR REPLACE FUNCTION clear_log(p_queue integer, p_now bigint, p_all boolean, p_shard smallint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    q queue%ROWTYPE;
    g record;
    v_last bigint;
    v_expired bigint;
    v_part bigint;
    v_undiscovered bigint;
    v_cleared bigint;
BEGIN
    SELECT * INTO q FROM queue k WHERE k.id = p_queue;
    v_last := last_seq(q.id, q.floor_seq);
    FOR g IN SELECT x.id FROM consumer_group x WHERE x.queue_id = p_queue ORDER BY x.id + 0 LOOP
        -- Undiscovered messages are only counted, never read, so any number of them costs the same.
        SELECT v_last - x.scan_seq - x.gaps INTO v_undiscovered FROM consumer_group x WHERE x.id = g.id FOR UPDATE;
        UPDATE consumer_group x SET scan_seq = v_last, gaps = 0 WHERE x.id = g.id;
        PERFORM 1 FROM partition_lease l WHERE l.queue_id = p_queue AND l.group_id::bigint = g.id ORDER BY l.partition || '' FOR UPDATE;
        WITH gone AS (
            DELETE FROM partition_lease l
            WHERE l.queue_id = p_queue AND l.group_id::bigint = g.id AND (p_all OR l.token IS NULL OR l.ready_at <= p_now)
            RETURNING l.pending + cardinality(l.open) AS n
        ), trimmed AS (
            -- Cleared messages stay in the log until retention deletes them. delivered_seq keeps the row from delivering them.
            UPDATE partition_lease l SET pending = 0, open = l.open[1:l.leased], delivered_seq = v_last
            FROM partition_lease o
            WHERE l.queue_id = p_queue AND l.group_id::bigint = g.id AND NOT (p_all OR l.token IS NULL OR l.ready_at <= p_now)
              AND o.partition = ANY (ARRAY[l.partition]) AND o.queue_id = l.queue_id AND o.group_id = l.group_id
            RETURNING o.pending + cardinality(o.open) - o.leased AS n
        )
        SELECT coalesce(sum(x.n), 0) INTO v_expired FROM (SELECT n FROM gone UNION ALL SELECT n FROM trimmed) x;
        WITH gone AS (
            DELETE FROM set_lease s
            WHERE s.queue_id = p_queue AND s.group_id = g.id AND (p_all OR s.token IS NULL OR s.ready_at <= p_now)
            RETURNING cardinality(s.seqs) AS n
        )
        SELECT coalesce(sum(x.n), 0) INTO v_part FROM gone x;
        v_expired := v_expired + v_part + v_undiscovered;
        IF v_expired > 0 THEN
            PERFORM count_up(p_queue, g.id, p_shard, 0, 0, v_expired, 0, 0);
        END IF;
        v_cleared := coalesce(v_cleared, 0) + v_expired;
    END LOOP;
    UPDATE queue SET first_seq = v_last + 1, gaps = 0 WHERE id = p_queue;
    RETURN coalesce(v_cleared, v_last - q.first_seq + 1 - q.gaps);
END
$$;
