-- Pushes a few plain messages to one queue, and then pops for some who wait for them: one round trip, one transaction.
-- Returns nothing when the push must go the long way (push_plain). Otherwise the first row is about the push: seq is its last
-- one, created_at the depth, priority the queue's id, attempt whether another server waits for messages. Then come the rows of
-- pop_ordered; or none: then nobody looked, and those who wait pop by themselves.
--
-- Leases come before logs (functions/locks.sql), and the push locks the log. So after that nothing of the group is waited for.
-- The group's row is locked before the push, or not at all when somebody else holds it. And there is a pop only if
--   * all messages before this push are discovered: then discovery changes no lease row that others may hold, and
--   * no pushed partition has a lease row: then none can appear, since whoever makes one holds the group's row.
-- If every pushed partition is under a live lease, there is nothing to be had, and nobody need look: the settlement of that lease
-- says that there is more. Then there is one row of pop_ordered, with the state 'held'.
--
-- A single message to a per_key queue without delay and window is leased as it comes, unless something else is ready: to discover it,
-- look for ready rows and claim them would take three times as long. It is answered from the arguments, without being read.
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
    c_active_every_us CONSTANT bigint := 60000000;
    q queue%ROWTYPE;
    v_group integer;
    v_scan bigint;
    v_usual boolean;
    v_leases bigint := 0;
    v_held bigint := 0;
    v_pushed record;
    v_next bigint;
    v_deadline bigint;
    v_single boolean := false;
BEGIN
    SELECT g.id, NOT g.external AND NOT g.idle AND p_now - g.active_at < c_active_every_us INTO v_group, v_usual
    FROM queue k CROSS JOIN LATERAL (
        SELECT g.id, g.external, g.idle, g.active_at FROM consumer_group g WHERE g.queue_id = k.id AND g.name = p_group_name LIMIT 1) g
    WHERE k.tenant = p_tenant AND k.name = p_name AND k.deleted_at IS NULL;
    IF FOUND AND pg_try_advisory_xact_lock_shared(1936418164, v_group) THEN
        SELECT g.scan_seq INTO v_scan FROM consumer_group g WHERE g.id = v_group FOR UPDATE SKIP LOCKED;
        SELECT count(*), count(*) FILTER (WHERE l.token IS NOT NULL AND l.ready_at > p_now) INTO v_leases, v_held
        FROM (SELECT DISTINCT u.partition FROM unnest(p_partitions) AS u (partition)) k
        CROSS JOIN LATERAL (
            SELECT l.token, l.ready_at FROM partition_lease l
            WHERE l.partition = k.partition AND l.group_id = v_group ORDER BY l.partition, l.group_id LIMIT 1) l;
    END IF;
    v_pushed := push_plain(p_tenant, p_name, p_now, p_ids, p_partitions, p_priorities, p_content_types, p_headers, p_payloads);
    IF v_pushed.queue_id IS NULL THEN
        RETURN;
    END IF;
    -- Rows are made of variables: a query for each would take longer than all that it tells of.
    seq := v_pushed.last_seq;
    created_at := v_pushed.depth;
    priority := v_pushed.queue_id;
    attempt := v_pushed.watched::integer;
    deadline := 0;
    owner := 0;
    RETURN NEXT;
    SELECT * INTO q FROM queue k WHERE k.id = v_pushed.queue_id;
    -- The origins of dead letters are read by another statement, when it is too late to undo the push.
    IF q.holds_dead_letters THEN
        RETURN;
    END IF;
    IF v_scan = v_pushed.last_seq - 1 AND v_leases = 0 AND v_usual AND NOT q.paused AND q.ordering = 'per_key'
        AND q.delayed_processing_seconds = 0 AND q.window_buffer_seconds = 0 AND coalesce(p_partition = p_partitions[1], true) THEN
        SELECT l.ready_at INTO v_next FROM partition_lease l WHERE l.queue_id = q.id AND l.group_id::bigint = v_group
        ORDER BY l.group_id::bigint, l.ready_at LIMIT 1;
        v_single := coalesce(v_next > p_now, true);
    END IF;
    IF v_single THEN
        v_deadline := p_now + coalesce(p_lease_us, (q.lease_seconds * 1e6)::bigint);
        UPDATE consumer_group g SET scan_seq = v_pushed.last_seq WHERE g.id = v_group;
        INSERT INTO partition_lease (partition, queue_id, group_id, delivered_seq, pending, open, leased, attempts, token, consumer,
                                     leased_at, ready_at, oldest_at, newest_at)
        VALUES (p_partitions[1], q.id, v_group, v_pushed.last_seq, 0, ARRAY[v_pushed.last_seq], 1, 1, p_tokens[1], p_consumers[1],
                p_now, v_deadline, least(v_pushed.created_at, p_now), least(v_pushed.created_at, p_now));
        created_at := v_pushed.created_at;
        id := p_ids[1];
        priority := p_priorities[1];
        attempt := 1;
        partition := p_partitions[1];
        content_type := p_content_types[1];
        headers := p_headers[1];
        payload := p_payloads[1];
        deadline := v_deadline;
        owner := 1;
        RETURN NEXT;
        seq := NULL;
        created_at := least(v_next, v_deadline);
        id := NULL;
        priority := 0;
        attempt := 0;
        partition := 'ok';
        content_type := NULL;
        headers := NULL;
        payload := NULL;
        owner := 0;
        RETURN NEXT;
    ELSIF v_scan = v_pushed.last_seq - cardinality(p_ids) AND v_leases = 0 THEN
        RETURN QUERY SELECT * FROM pop_ordered(
            p_tenant, p_name, p_group_name, 'all', NULL, p_batches, p_tokens, p_max_partitions, p_partition, p_now, p_lease_us,
            p_shard, true, p_max_bytes, p_consumers);
    ELSIF v_held > 0 AND v_held = (SELECT count(DISTINCT u.partition) FROM unnest(p_partitions) AS u (partition)) THEN
        RETURN QUERY SELECT NULL::bigint, NULL::bigint, NULL::uuid, NULL::uuid, 0, 0, 'held', NULL::text, NULL::text,
                            NULL::bytea, NULL::bytea, 0::bigint, 0;
    END IF;
END
$$;
