-- Ends the leases of a group that hold some of these messages (p_seqs, ascending; p_partitions are theirs), and fences their tokens, as
-- release_lease does: their rows get a token that nobody has. So no settlement meets a message that is deleted next. The caller has
-- taken the group and locked its row. In an unordered queue a lease is all rows of its token and partition.
CREATE OR REPLACE FUNCTION fence(p_queue integer, p_group integer, p_seqs bigint[], p_partitions text[], p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_tokens uuid[];
    v_partitions text[];
    v_ids bigint[];
BEGIN
    -- Waits for an ack under way.
    PERFORM 1 FROM (SELECT DISTINCT x.partition FROM unnest(p_partitions) AS x (partition) ORDER BY x.partition) p
    CROSS JOIN LATERAL (SELECT 1 FROM partition_lease l WHERE l.partition = p.partition AND l.group_id = p_group FOR UPDATE) l;
    WITH held AS MATERIALIZED (
        SELECT l.partition, l.group_id FROM (SELECT DISTINCT x.partition FROM unnest(p_partitions) AS x (partition)) p
        CROSS JOIN LATERAL (SELECT l.partition, l.group_id FROM partition_lease l
                            WHERE l.partition = p.partition AND l.group_id = p_group AND l.token IS NOT NULL AND l.open[1:l.leased] && p_seqs
                            LIMIT 1) l)
    UPDATE partition_lease l SET ready_at = least(l.ready_at, p_now), token = gen_random_uuid()
    FROM held h WHERE l.partition = ANY (ARRAY[h.partition]) AND l.group_id = h.group_id;
    -- Walks over the group's sets.
    SELECT array_agg(h.token), array_agg(h.partition) INTO v_tokens, v_partitions FROM (
        SELECT DISTINCT s.token, s.partition FROM (
            SELECT s.token, s.partition FROM set_lease s
            WHERE s.queue_id = p_queue AND s.group_id = p_group
              AND s.seqs[1] <= p_seqs[cardinality(p_seqs)] AND s.seqs[cardinality(s.seqs)] >= p_seqs[1] AND s.seqs && p_seqs OFFSET 0) s
        WHERE s.token IS NOT NULL) h;
    IF v_tokens IS NOT NULL THEN
        SELECT array_agg(k.id) INTO v_ids FROM (
            SELECT s.id FROM set_lease s
            WHERE s.token = ANY (v_tokens) AND s.queue_id::bigint = p_queue AND s.group_id::bigint = p_group
              AND (SELECT true FROM unnest(v_tokens, v_partitions) AS h (token, partition)
                   WHERE h.token = s.token AND h.partition = s.partition LIMIT 1)
            ORDER BY s.id + 0 FOR UPDATE) k;
        UPDATE set_lease s SET ready_at = least(s.ready_at, p_now), token = gen_random_uuid() WHERE s.id = ANY (v_ids);
    END IF;
END
$$;
