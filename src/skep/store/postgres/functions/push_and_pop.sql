-- A push of a few plain messages to one queue, and then a pop for some who wait for them: one round trip, one transaction.
-- Answers nothing when the push must go the long way (push_plain). Otherwise the first row tells of the push (its seq is the last one,
-- created_at the depth, priority the queue's id, attempt whether somebody elsewhere waits), and then come the rows of pop_ordered, or
-- none: then nobody looked, and those who wait pop by themselves.
--
-- Leases come before logs (functions/locks.sql), and the log's lock is taken to push. So nothing of the group is waited for after that:
-- its row is taken before, or is left alone when somebody has it, and so is everything unless
--   * all up to this push is discovered: nothing else of the log has to be noted in leases that others may hold, and
--   * no pushed partition has a lease row: then none can come, since who makes one has the group's row.
-- Where every pushed partition is under a lease that holds, there is nothing to be had, and nobody need look: who settles that lease says
-- that there is more. Then the one row of pop_ordered that comes has the state 'held'.
CREATE OR REPLACE FUNCTION push_and_pop(
    p_tenant text, p_name text, p_now bigint, p_ids uuid[], p_partitions text[], p_priorities integer[],
    p_content_types text[], p_headers bytea[], p_payloads bytea[],
    p_group_name text, p_batches integer[], p_tokens uuid[], p_max_partitions integer, p_partition text, p_lease_us bigint,
    p_shard smallint, p_max_bytes bigint, p_consumers text[])
RETURNS TABLE (seq bigint, created_at bigint, id uuid, trace_id uuid, priority integer, attempt integer, partition text,
               transaction_id text, content_type text, headers bytea, payload bytea, deadline bigint, owner integer)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_group integer;
    v_scan bigint;
    v_leases bigint := 0;
    v_held bigint := 0;
    v_pushed record;
BEGIN
    SELECT g.id INTO v_group FROM queue k JOIN consumer_group g ON g.queue_id = k.id
    WHERE k.tenant = p_tenant AND k.name = p_name AND k.deleted_at IS NULL AND g.name = p_group_name;
    IF FOUND AND pg_try_advisory_xact_lock_shared(1936418164, v_group) THEN
        SELECT g.scan_seq INTO v_scan FROM consumer_group g WHERE g.id = v_group FOR UPDATE SKIP LOCKED;
        SELECT count(*), count(*) FILTER (WHERE l.token IS NOT NULL AND l.ready_at > p_now) INTO v_leases, v_held
        FROM (SELECT DISTINCT u.partition FROM unnest(p_partitions) AS u (partition)) k
        CROSS JOIN LATERAL (
            SELECT l.token, l.ready_at FROM partition_lease l
            WHERE l.partition = k.partition AND l.group_id = v_group ORDER BY l.partition, l.group_id LIMIT 1) l;
    END IF;
    SELECT * INTO v_pushed FROM push_plain(
        p_tenant, p_name, p_now, p_ids, p_partitions, p_priorities, p_content_types, p_headers, p_payloads);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT v_pushed.last_seq, v_pushed.depth, NULL::uuid, NULL::uuid, v_pushed.queue_id, v_pushed.watched::integer,
                        NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, 0::bigint, 0;
    -- What is known of dead letters is read by a statement of its own, after which it would be too late to undo the push.
    IF (SELECT k.holds_dead_letters FROM queue k WHERE k.id = v_pushed.queue_id) THEN
        RETURN;
    END IF;
    IF v_scan = v_pushed.last_seq - cardinality(p_ids) AND v_leases = 0 THEN
        RETURN QUERY SELECT * FROM pop_ordered(
            p_tenant, p_name, p_group_name, 'all', NULL, p_batches, p_tokens, p_max_partitions, p_partition, p_now, p_lease_us,
            p_shard, true, p_max_bytes, p_consumers);
    ELSIF v_held > 0 AND v_held = (SELECT count(DISTINCT u.partition) FROM unnest(p_partitions) AS u (partition)) THEN
        RETURN QUERY SELECT NULL::bigint, NULL::bigint, NULL::uuid, NULL::uuid, 0, 0, 'held', NULL::text, NULL::text,
                            NULL::bytea, NULL::bytea, 0::bigint, 0;
    END IF;
END
$$;
