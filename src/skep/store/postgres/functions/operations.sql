-- Keeps operations, in the given order. Keeps and returns nothing when a queue has become fifo and an operation was not made for
-- its one partition: then the caller makes them anew. The table lock comes first, so that no queue changes its ordering between
-- the look and the commit (a change of ordering locks the table against us).
CREATE OR REPLACE FUNCTION enqueue_operations(
    p_now bigint, p_ids uuid[], p_kinds text[], p_lanes text[], p_tenants text[], p_queues text[], p_partitions text[],
    p_priorities integer[], p_messages integer[], p_timeouts double precision[], p_max_retries integer[], p_payloads bytea[])
RETURNS TABLE (id uuid, "position" bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    LOCK TABLE operation IN ROW EXCLUSIVE MODE;
    IF EXISTS (
        SELECT 1 FROM unnest(p_tenants, p_queues, p_lanes, p_partitions) AS n (tenant, queue, lane, partition)
        CROSS JOIN LATERAL (SELECT q.ordering FROM queue q
                            WHERE q.tenant = n.tenant AND q.name = n.queue AND q.deleted_at IS NULL LIMIT 1) q
        WHERE n.lane = 'push' AND n.partition <> 'Default' AND q.ordering = 'fifo') THEN
        RETURN;
    END IF;
    RETURN QUERY
    INSERT INTO operation (created_at, id, kind, lane, tenant, queue, partition, priority, messages, timeout_seconds, max_retries,
                           size_bytes, payload)
    SELECT p_now, n.id, n.kind, n.lane, n.tenant, n.queue, n.partition, n.priority, n.messages, n.timeout_seconds, n.max_retries,
           length(n.payload), n.payload
    FROM unnest(p_ids, p_kinds, p_lanes, p_tenants, p_queues, p_partitions, p_priorities, p_messages, p_timeouts, p_max_retries,
                p_payloads)
         AS n (id, kind, lane, tenant, queue, partition, priority, messages, timeout_seconds, max_retries, payload)
    RETURNING operation.id, operation.position;
END
$$;

-- Locks out everyone who is about to keep an operation, or has locked some. They write operations after they have locked groups
-- and logs, so a mode that lets them begin would end in a deadlock.
CREATE OR REPLACE FUNCTION lock_operations() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE operation IN EXCLUSIVE MODE;
END
$$;

-- The live operation right before each of these in its partition.
CREATE OR REPLACE FUNCTION operations_before(p_positions bigint[])
RETURNS TABLE ("position" bigint, before bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT k.position, b.position FROM unnest(p_positions) AS k (position)
    CROSS JOIN LATERAL (SELECT o.* FROM operation o WHERE o.position BETWEEN k.position AND k.position ORDER BY o.position LIMIT 1) o
    LEFT JOIN LATERAL (
        SELECT b.position FROM operation b
        WHERE b.processed_at IS NULL AND b.tenant = o.tenant AND b.queue = o.queue AND b.lane = o.lane
          AND b.partition = o.partition AND b.position < o.position
        ORDER BY b.tenant DESC, b.queue DESC, b.lane DESC, b.partition DESC, b.position DESC LIMIT 1) b ON true
    ORDER BY k.position;
END
$$;

-- Takes the chosen operations, each only if the live one before it in its partition (p_before) is taken too. An operation that
-- somebody has locked (its last claimer after all, or someone who cancels it) is left, with those that follow it. A claim that is
-- lost with the server does no harm, so its commit does not wait for the disk. Each further try lasts twice as long, with at most
-- p_growths doublings.
CREATE OR REPLACE FUNCTION take_operations(
    p_token uuid, p_worker text, p_positions bigint[], p_before bigint[], p_now bigint, p_growths integer, p_lost text)
RETURNS SETOF operation LANGUAGE plpgsql AS $$
DECLARE
    v_locked bigint[];
    v_taken bigint[] := '{}';
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    v_locked := ARRAY(SELECT l.position FROM unnest(p_positions) AS k (position)
                      CROSS JOIN LATERAL (SELECT l.position, l.processed_at, l.ready_at FROM operation l
                                          WHERE l.position BETWEEN k.position AND k.position
                                          ORDER BY l.position LIMIT 1 FOR UPDATE SKIP LOCKED) l
                      WHERE l.processed_at IS NULL AND l.ready_at <= p_now);
    FOR i IN 1 .. coalesce(cardinality(p_positions), 0) LOOP
        IF p_positions[i] = ANY (v_locked) AND (p_before[i] IS NULL OR p_before[i] = ANY (v_taken)) THEN
            v_taken := v_taken || p_positions[i];
        END IF;
    END LOOP;
    RETURN QUERY
    UPDATE operation c SET status = 'processing', token = p_token, worker = p_worker, started_at = p_now, tries = c.tries + 1,
                           ready_at = p_now + (c.timeout_seconds * 1000000)::bigint * (1 << least(c.tries, p_growths)),
                           code = CASE WHEN c.status = 'processing' THEN 'INTERNAL' ELSE c.code END,
                           error = CASE WHEN c.status = 'processing' THEN p_lost ELSE c.error END,
                           error_at = CASE WHEN c.status = 'processing' THEN p_now ELSE c.error_at END,
                           blocked_at = CASE WHEN c.status = 'processing' AND (c.code IS DISTINCT FROM 'INTERNAL' OR c.blocked_at IS NULL)
                                             THEN c.started_at ELSE c.blocked_at END
    WHERE c.position = ANY (v_taken)
    RETURNING c.*;
END
$$;

-- Claims the next operations of one lane, by priority, then age. An operation is taken only when the live one before it in its
-- partition is taken too. One that was tried before comes alone, so that an operation that kills its server takes no others with
-- it. There is one claimer at a time: a second one gets a single row of NULLs. At most p_passed operations that have to wait are
-- passed over; if none is found by then, the caller looks by partition (`claim_heads`).
CREATE OR REPLACE FUNCTION claim_operations(
    p_token uuid, p_worker text, p_most integer, p_messages bigint, p_bytes bigint, p_now bigint, p_passed integer, p_growths integer,
    p_lost text)
RETURNS SETOF operation LANGUAGE plpgsql AS $$
DECLARE
    o record;
    v_lane text;
    v_count integer := 0;
    v_passed integer := 0;
    v_messages bigint := 0;
    v_bytes bigint := 0;
    v_positions bigint[] := '{}';
    v_before bigint[] := '{}';
BEGIN
    IF NOT pg_try_advisory_xact_lock(1936418163) THEN
        RETURN NEXT NULL;
        RETURN;
    END IF;
    FOR o IN
        SELECT c.position, c.lane, c.messages, c.size_bytes, c.tries, c.ready_at, b.position AS before
        FROM operation c
        LEFT JOIN LATERAL (
            SELECT b.position FROM operation b
            WHERE b.processed_at IS NULL AND b.tenant = c.tenant AND b.queue = c.queue AND b.lane = c.lane
              AND b.partition = c.partition AND b.position < c.position
            ORDER BY b.tenant DESC, b.queue DESC, b.lane DESC, b.partition DESC, b.position DESC LIMIT 1) b ON true
        WHERE c.processed_at IS NULL
        ORDER BY c.priority, c.position
    LOOP
        IF o.ready_at > p_now OR (o.before IS NOT NULL AND o.before <> ALL (v_positions)) THEN
            v_passed := v_passed + 1;
            EXIT WHEN v_passed >= p_passed;
            CONTINUE;
        END IF;
        EXIT WHEN v_count > 0 AND (o.lane <> v_lane OR o.tries > 0 OR v_messages + o.messages > p_messages
                                   OR v_bytes + o.size_bytes > p_bytes);
        v_lane := o.lane;
        v_count := v_count + 1;
        v_messages := v_messages + o.messages;
        v_bytes := v_bytes + o.size_bytes;
        v_positions := v_positions || o.position;
        v_before := v_before || o.before;
        EXIT WHEN v_count >= p_most OR o.tries > 0;
    END LOOP;
    IF v_count > 0 THEN
        RETURN QUERY SELECT * FROM take_operations(p_token, p_worker, v_positions, v_before, p_now, p_growths, p_lost);
    END IF;
END
$$;

-- Claims from partitions whose first live operations are given (p_heads), all ready and of one lane: those, and the ones that
-- follow them. The bounds, and the answer to a second claimer, are those of `claim_operations`.
CREATE OR REPLACE FUNCTION claim_heads(
    p_token uuid, p_worker text, p_most integer, p_messages bigint, p_bytes bigint, p_now bigint, p_heads bigint[], p_growths integer,
    p_lost text)
RETURNS SETOF operation LANGUAGE plpgsql AS $$
DECLARE
    o record;
    v_held bigint := 0;
    v_count integer := 0;
    v_messages bigint := 0;
    v_bytes bigint := 0;
    v_positions bigint[] := '{}';
    v_before bigint[] := '{}';
BEGIN
    IF NOT pg_try_advisory_xact_lock(1936418163) THEN
        RETURN NEXT NULL;
        RETURN;
    END IF;
    FOR o IN
        SELECT c.position, c.messages, c.size_bytes, c.tries, c.ready_at, h.position AS head
        FROM unnest(p_heads) AS k (position)
        CROSS JOIN LATERAL (SELECT h.* FROM operation h WHERE h.position BETWEEN k.position AND k.position ORDER BY h.position LIMIT 1) h
        CROSS JOIN LATERAL (
            SELECT c.position, c.messages, c.size_bytes, c.tries, c.ready_at FROM operation c
            WHERE c.processed_at IS NULL AND c.tenant = h.tenant AND c.queue = h.queue AND c.lane = h.lane
              AND c.partition = h.partition AND c.position >= h.position
            ORDER BY c.tenant, c.queue, c.lane, c.partition, c.position LIMIT p_most) c
    LOOP
        -- Operations behind one that is not ready wait for it. The next partition begins anew.
        v_held := CASE WHEN o.ready_at > p_now THEN o.head ELSE v_held END;
        CONTINUE WHEN o.head = v_held;
        EXIT WHEN v_count > 0 AND (o.tries > 0 OR v_messages + o.messages > p_messages OR v_bytes + o.size_bytes > p_bytes);
        v_count := v_count + 1;
        v_messages := v_messages + o.messages;
        v_bytes := v_bytes + o.size_bytes;
        v_before := v_before || CASE WHEN o.position <> o.head THEN v_positions[cardinality(v_positions)] END;
        v_positions := v_positions || o.position;
        EXIT WHEN v_count >= p_most OR o.tries > 0;
    END LOOP;
    RETURN QUERY SELECT * FROM take_operations(p_token, p_worker, v_positions, v_before, p_now, p_growths, p_lost);
END
$$;
