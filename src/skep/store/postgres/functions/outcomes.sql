-- What a group settled under some tokens, among the newest p_leases ended leases, and only since p_since. The walk follows the
-- primary key. There is no index on tokens, since every lease would pay for it.
CREATE OR REPLACE FUNCTION remembered(p_queue integer, p_group integer, p_tokens uuid[], p_since bigint, p_slack bigint, p_leases bigint)
RETURNS SETOF lease_history LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_first bigint := first_lease_ended(p_since - p_slack);
    v_last bigint;
BEGIN
    SELECT h.id INTO v_last FROM lease_history h WHERE h.id > 0 ORDER BY h.id DESC LIMIT 1;
    v_first := greatest(v_first, v_last + 1 - p_leases);
    RETURN QUERY SELECT h.* FROM lease_history h
    WHERE h.id >= v_first AND h.token = ANY (p_tokens) AND h.queue_id = p_queue AND h.group_id = p_group AND h.settled_at > p_since
    ORDER BY h.id;
END
$$;
