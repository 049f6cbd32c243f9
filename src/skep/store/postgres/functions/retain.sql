-- How far every group of a queue has come, or (p_popping) every one that pops: everything up to it is settled for all of them. NULL
-- without such groups.
CREATE OR REPLACE FUNCTION settled_seq(p_queue integer, p_popping boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_settled bigint;
BEGIN
    SELECT min(least(g.scan_seq, coalesce(
        (SELECT min(coalesce(l.open[1] - 1, l.delivered_seq)) FROM partition_lease l
         WHERE l.queue_id = p_queue AND l.group_id::bigint = g.id), g.scan_seq), coalesce(
        (SELECT min(s.seqs[1]) - 1 FROM set_lease s WHERE s.queue_id = p_queue AND s.group_id = g.id), g.scan_seq)))
    INTO v_settled FROM consumer_group g WHERE g.queue_id = p_queue AND NOT (p_popping AND g.external);
    RETURN v_settled;
END
$$;
