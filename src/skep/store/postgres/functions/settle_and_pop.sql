-- Acks, and then pops for some who wait for what the acks free: one round trip, one transaction. The first row is about the acks
-- (leases and messages are what settle_acks returns). Then come the rows of pop_ordered; or none: then nobody looked, and those
-- who wait pop by themselves.
--
-- After the acks we hold lease rows and a counter, which come late in the order of locks (functions/locks.sql). So from there on
-- nothing is waited for. The group is shared before the acks, unless somebody takes it. Its row is locked at once or not at all.
-- Undiscovered messages are discovered only if that changes no lease row that another may hold. A partition without a row gets
-- none meanwhile, since whoever makes one holds the group's row.
CREATE OR REPLACE FUNCTION settle_and_pop(
    p_tenant text, p_name text, p_group_name text, p_partitions text[], p_tokens uuid[], p_from integer[], p_to integer[], p_seqs bigint[],
    p_through bigint[], p_answers bytea[], p_now bigint, p_shard smallint, p_batches integer[], p_pop_tokens uuid[], p_max_partitions integer,
    p_partition text, p_lease_us bigint, p_max_bytes bigint, p_consumers text[])
RETURNS TABLE (seq bigint, created_at bigint, id uuid, trace_id uuid, priority integer, attempt integer, partition text,
               transaction_id text, content_type text, headers bytea, payload bytea, deadline bigint, owner integer,
               leases integer[], messages integer[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c_few CONSTANT integer := 200;
    q queue%ROWTYPE;
    v_group integer;
    v_shared boolean;
    s record;
    v_settled text[];
    v_scan bigint;
    v_last bigint;
BEGIN
    SELECT g.id, pg_try_advisory_xact_lock_shared(1936418164, g.id) INTO v_group, v_shared
    FROM queue k CROSS JOIN LATERAL (
        SELECT g.id FROM consumer_group g WHERE g.queue_id = k.id AND g.name = p_group_name LIMIT 1) g
    WHERE k.tenant = p_tenant AND k.name = p_name AND k.deleted_at IS NULL;
    s := settle_acks(p_tenant, p_name, p_group_name, p_partitions, p_tokens, p_from, p_to, p_seqs, p_through, p_answers, p_now, p_shard);
    leases := s.o_leases;
    messages := s.o_messages;
    RETURN NEXT;  -- of variables, as in push_and_pop
    -- If nothing was freed, nobody need look. If a lease is left to the careful path, that may fail, and nobody would be told of
    -- the claimed messages.
    IF v_shared IS NOT TRUE OR (0 > ANY (s.o_leases)) IS NOT TRUE OR cardinality(s.o_leases) < cardinality(p_partitions) THEN
        RETURN;
    END IF;
    SELECT * INTO q FROM queue k WHERE k.id = (SELECT g.queue_id FROM consumer_group g WHERE g.id = v_group);
    -- The origins of dead letters are read by another statement, when it is too late to undo the acks.
    IF q.holds_dead_letters THEN
        RETURN;
    END IF;
    SELECT g.scan_seq INTO v_scan FROM consumer_group g WHERE g.id = v_group FOR UPDATE SKIP LOCKED;
    v_last := last_seq(q.id, q.floor_seq);
    IF v_scan IS NULL OR v_last - v_scan > c_few THEN
        RETURN;
    END IF;
    IF v_last > v_scan THEN
        v_settled := ARRAY(SELECT p_partitions[abs(d.n)] FROM unnest(s.o_leases) AS d (n));
        PERFORM 1 FROM (SELECT m.partition FROM message m
                        WHERE (m.queue_id, m.seq) > (q.id, v_scan) AND (m.queue_id, m.seq) <= (q.id, v_last)
                        ORDER BY m.queue_id, m.seq) m
        CROSS JOIN LATERAL (
            SELECT 1 FROM partition_lease l
            WHERE l.partition = m.partition AND l.group_id = v_group ORDER BY l.partition, l.group_id LIMIT 1) l
        WHERE m.partition <> ALL (v_settled) LIMIT 1;
        IF FOUND THEN
            RETURN;
        END IF;
        -- As far as the look above went, and no further.
        PERFORM discover(q.id, v_group, (v_last - v_scan)::integer, p_shard, p_now);
    END IF;
    RETURN QUERY SELECT p.*, NULL::integer[], NULL::integer[] FROM pop_ordered(
        p_tenant, p_name, p_group_name, 'all', NULL, p_batches, p_pop_tokens, p_max_partitions, p_partition, p_now, p_lease_us,
        p_shard, false, p_max_bytes, p_consumers) p;
END
$$;
