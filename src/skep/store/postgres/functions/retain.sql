-- How far the groups of a queue have come: every message up to this seq is settled for all of them. p_which is 'in use' (all
-- groups, if none is in use), 'popping' or 'all'. NULL without such groups.
CREATE OR REPLACE FUNCTION settled_seq(p_queue integer, p_which text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_settled bigint;
BEGIN
    SELECT min(least(g.scan_seq, coalesce(
        (SELECT min(coalesce(l.open[1] - 1, l.delivered_seq)) FROM partition_lease l
         WHERE l.queue_id = p_queue AND l.group_id::bigint = g.id), g.scan_seq), coalesce(
        (SELECT min(s.seqs[1]) - 1 FROM set_lease s WHERE s.queue_id = p_queue AND s.group_id = g.id), g.scan_seq)))
    INTO v_settled FROM consumer_group g
    WHERE g.queue_id = p_queue AND CASE p_which
        WHEN 'popping' THEN NOT g.external
        WHEN 'in use' THEN NOT g.idle OR NOT EXISTS (SELECT 1 FROM consumer_group o WHERE o.queue_id = p_queue AND NOT o.idle)
        ELSE true END;
    RETURN v_settled;
END
$$;

-- Up to which seq the messages of a queue are safe in a lake, by the reports of its archives: of those in use, or of all when none is.
-- NULL when no archive has reported. A group that was moved back counts by its new place.
CREATE OR REPLACE FUNCTION archived_seq(p_queue integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_archived bigint;
BEGIN
    SELECT coalesce(min(g.archived_seq) FILTER (WHERE NOT g.idle), min(g.archived_seq)) INTO v_archived
    FROM consumer_group g WHERE g.queue_id = p_queue;
    RETURN v_archived;
END
$$;
