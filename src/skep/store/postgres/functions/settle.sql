-- Acks whole leases of an unordered queue, for settle_acks: all rows of such a lease are deleted. A lease that would keep a
-- message is left alone. Rows are inserted into the history only, so the group need not be shared (docs/adr/0024).
CREATE OR REPLACE FUNCTION settle_whole_sets(
    p_queue integer, p_group integer, p_partitions text[], p_tokens uuid[], p_through bigint[], p_answers bytea[], p_now bigint,
    p_shard smallint, OUT o_leases integer[], OUT o_messages integer[])
LANGUAGE plpgsql AS $$
DECLARE
    v_tokens uuid[] := ARRAY(SELECT x.token FROM unnest(p_tokens, p_through) x (token, through) WHERE x.through IS NOT NULL);
    v_completed bigint;
BEGIN
    -- Sets are locked by id, as everywhere. The casts leave the planner only the index on token.
    PERFORM 1 FROM set_lease s
    WHERE s.token = ANY (v_tokens) AND s.queue_id::bigint = p_queue AND s.group_id::bigint = p_group ORDER BY s.id + 0 FOR UPDATE;
    WITH held AS MATERIALIZED (
        SELECT x.ord, x.answer, s.*, cardinality(s.seqs) AS messages,
               bool_and(s.seqs[cardinality(s.seqs)] <= x.through) OVER (PARTITION BY x.ord) AS whole
        FROM unnest(p_partitions, p_tokens, p_through, p_answers) WITH ORDINALITY AS x (partition, token, through, answer, ord)
        CROSS JOIN LATERAL (
            SELECT s.* FROM set_lease s
            WHERE s.token = x.token AND s.queue_id::bigint = p_queue AND s.group_id::bigint = p_group AND s.partition = x.partition
            OFFSET 0) s
        WHERE x.through IS NOT NULL
    ), gone AS (
        DELETE FROM set_lease s USING held h WHERE h.whole AND s.id = ANY (ARRAY[h.id])
    ), history AS (
        INSERT INTO lease_history (queue_id, group_id, partition, first_seq, last_seq, messages, completed, attempt,
                                   leased_at, settled_at, outcome, token, seqs, answer)
        SELECT p_queue, p_group, h.partition, h.seqs[1], h.seqs[h.messages], h.messages, h.messages, h.attempts, h.leased_at, p_now,
               'completed', h.token, CASE WHEN h.seqs[h.messages] - h.seqs[1] >= h.messages THEN h.seqs END, h.answer
        FROM held h WHERE h.whole
    )
    SELECT array_agg(d.ord::integer), array_agg(d.messages::integer), sum(d.messages) INTO o_leases, o_messages, v_completed
    FROM (SELECT h.ord, sum(h.messages) AS messages FROM held h WHERE h.whole GROUP BY h.ord) d;
    IF v_completed > 0 THEN
        PERFORM count_up(p_queue, p_group, p_shard, v_completed, 0, 0, 0, 0);
    END IF;
END
$$;

-- Acks leases of an ordered queue whose rows stay, for settle_acks: the partition has more messages, or some messages of the
-- lease are not acked. The caller has locked the rows. A whole lease frees its row for the next message.
-- Rows are joined only with what was locked: with the group as a parameter, PostgreSQL 18 may skip through the index. ANY
-- (ARRAY[…]) is = without a merge join, for which the planner would walk the whole index while it takes the table to be small
-- (ADR 0034).
CREATE OR REPLACE FUNCTION settle_parts(
    q queue, p_group integer, p_partitions text[], p_tokens uuid[], p_from integer[], p_to integer[], p_seqs bigint[],
    p_through bigint[], p_answers bytea[], p_now bigint, OUT o_leases integer[], OUT o_messages integer[], OUT o_completed bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_delay CONSTANT bigint := (q.delayed_processing_seconds * 1e6)::bigint;
    v_window CONSTANT bigint := (q.window_buffer_seconds * 1e6)::bigint;
BEGIN
    WITH locked AS MATERIALIZED (
        SELECT x.ord, x.answer, l.*,
               CASE WHEN x.through IS NULL THEN p_seqs[x.from_ord:x.to_ord]
                    WHEN x.through >= l.open[l.leased] THEN l.open[1:l.leased]
                    ELSE ARRAY(SELECT o.seq FROM unnest(l.open[1:l.leased]) o (seq) WHERE o.seq <= x.through ORDER BY o.seq) END AS acked
        FROM unnest(p_partitions, p_tokens, p_from, p_to, p_through, p_answers) WITH ORDINALITY
            AS x (partition, token, from_ord, to_ord, through, answer, ord)
        CROSS JOIN LATERAL (
            SELECT l.* FROM partition_lease l
            WHERE l.partition = x.partition AND l.group_id = p_group AND l.token = x.token FOR UPDATE) l
    ), judged AS MATERIALIZED (
        SELECT k.*, k.acked = k.open[1:k.leased] AS whole, k.open[k.leased + 1:] AS left_open
        FROM locked k WHERE (k.acked = k.open[1:k.leased] OR k.acked <@ k.open[1:k.leased]) AND k.acked <> '{}'
          -- In such queues the other open messages may have been deleted from the log: the careful path looks.
          AND NOT ((q.holds_dead_letters OR q.retention_ignores_groups OR q.group_idle_seconds > 0) AND cardinality(k.open) > k.leased)
    ), freed AS (
        UPDATE partition_lease l SET
            token = NULL, leased_at = NULL, leased = 0, open = j.left_open, attempts = least(cardinality(j.left_open), 1),
            -- Everything of this partition is settled up to the next message: so the group's progress is exact.
            delivered_seq = coalesce(fresh.seq - 1, j.delivered_seq),
            last_error = NULL, oldest_at = coalesce(n.created_at, least(j.newest_at, p_now)),
            -- Ready when the times of its messages say so; a time ahead of now (the clock was put back) counts as now.
            ready_at = CASE WHEN j.left_open = '{}'
                            THEN ready_time(coalesce(n.created_at, least(j.newest_at, p_now)), least(j.newest_at, p_now), v_delay, v_window)
                            ELSE coalesce(n.created_at, least(j.oldest_at, p_now)) END
        FROM judged j LEFT JOIN LATERAL (
            SELECT m.seq, least(m.created_at, p_now) AS created_at FROM message m
            WHERE j.left_open = '{}' AND m.partition = j.partition AND m.queue_id = q.id AND m.seq > j.delivered_seq
              AND (m.audience IS NULL OR m.audience = p_group)
            ORDER BY m.partition, m.queue_id, m.seq LIMIT 1) fresh ON true
        LEFT JOIN LATERAL (
            SELECT coalesce(fresh.created_at, (SELECT least(m.created_at, p_now) FROM message m
                WHERE (m.queue_id, m.seq) BETWEEN (q.id, j.left_open[1]) AND (q.id, j.left_open[1]) ORDER BY m.queue_id, m.seq LIMIT 1)) AS created_at
            OFFSET 0) n ON true  -- a column, so that ready_time is inlined; with the look-up in its arguments it would be called
        WHERE j.whole AND l.partition = ANY (ARRAY[j.partition]) AND l.group_id = j.group_id
    ), shrunk AS (
        UPDATE partition_lease l SET
            leased = l.leased - cardinality(j.acked), open = n.open,
            oldest_at = coalesce((SELECT least(m.created_at, p_now) FROM message m WHERE (m.queue_id, m.seq) BETWEEN (q.id, n.open[1]) AND (q.id, n.open[1]) ORDER BY m.queue_id, m.seq LIMIT 1), l.oldest_at)
        FROM judged j CROSS JOIN LATERAL (
            SELECT array_agg(o.seq ORDER BY o.seq) AS open FROM unnest(j.open) o (seq) WHERE o.seq <> ALL (j.acked)) n
        WHERE NOT j.whole AND l.partition = ANY (ARRAY[j.partition]) AND l.group_id = j.group_id
    ), history AS (
        INSERT INTO lease_history (queue_id, group_id, partition, first_seq, last_seq, messages, completed, attempt,
                                   leased_at, settled_at, outcome, token, seqs, answer)
        SELECT q.id, p_group, j.partition, j.acked[1], j.acked[cardinality(j.acked)], cardinality(j.acked),
               cardinality(j.acked), j.attempts, j.leased_at, p_now, 'completed', j.token,
               -- Without a gap the first and the last seq say it all.
               CASE WHEN j.acked[cardinality(j.acked)] - j.acked[1] >= cardinality(j.acked) THEN j.acked END, j.answer
        FROM judged j
    )
    SELECT array_agg(CASE WHEN j.whole THEN -j.ord ELSE j.ord END::integer),
           array_agg(cardinality(j.acked)), sum(cardinality(j.acked))
    INTO o_leases, o_messages, o_completed FROM judged j;
END
$$;

-- Acks, one round trip for any number of leases: the happy path of settling. Lease i is (p_partitions[i], p_tokens[i]). It acks
-- p_seqs[p_from[i] .. p_to[i]], ascending; or, where p_through[i] is given, all its messages up to that seq, and p_answers[i]
-- notes that in the history.
-- Returns the numbers of the leases that it settled, and how many messages each completed. A number is negative when other
-- messages may be had now: the partition has more, or the log has undiscovered ones. Leases with a stale token, or without one of
-- the seqs, are untouched and left to the caller's careful path. So are single messages of an unordered queue; and everything
-- (NULL) when there is no such queue or group.
--
-- The leases are given in ascending partition order, and are locked in it, as everywhere.
CREATE OR REPLACE FUNCTION settle_acks(
    p_tenant text, p_name text, p_group_name text, p_partitions text[], p_tokens uuid[], p_from integer[], p_to integer[], p_seqs bigint[],
    p_through bigint[], p_answers bytea[], p_now bigint, p_shard smallint, OUT o_leases integer[], OUT o_messages integer[])
LANGUAGE plpgsql AS $$
DECLARE
    c_active_every_us CONSTANT bigint := 60000000;
    q queue%ROWTYPE;
    v_queue integer;
    v_unordered boolean;
    v_floor bigint;
    v_group integer;
    v_unmarked boolean;
    v_found integer;
    v_tids tid[];
    v_ords integer[];
    v_completed bigint;
    v_undiscovered boolean;
BEGIN
    SELECT k.id, k.ordering = 'unordered', k.floor_seq, g.id, g.idle OR p_now - g.active_at >= c_active_every_us
    INTO v_queue, v_unordered, v_floor, v_group, v_unmarked
    FROM queue k CROSS JOIN LATERAL (
        SELECT g.id, g.idle, g.active_at FROM consumer_group g WHERE g.queue_id = k.id AND g.name = p_group_name LIMIT 1) g
    WHERE k.tenant = p_tenant AND k.name = p_name AND k.deleted_at IS NULL;
    IF v_group IS NULL OR (v_unordered AND array_remove(p_through, NULL) = '{}') THEN
        RETURN;
    END IF;
    IF v_unmarked THEN
        PERFORM mark_active(v_group, p_now);
    END IF;
    IF v_unordered THEN
        SELECT s.o_leases, s.o_messages INTO o_leases, o_messages
        FROM settle_whole_sets(v_queue, v_group, p_partitions, p_tokens, p_through, p_answers, p_now, p_shard) s;
        SELECT g.scan_seq < last_seq(v_queue, v_floor) INTO v_undiscovered FROM consumer_group g WHERE g.id = v_group;
        IF v_undiscovered THEN
            o_leases := ARRAY(SELECT -d.n FROM unnest(o_leases) AS d (n));
        END IF;
        RETURN;
    END IF;
    -- All rows are locked first, in their order. Most of them have nothing left to do, and are deleted, which costs least.
    SELECT count(*), array_agg(l.tid) FILTER (WHERE l.ends), array_agg(x.ord::integer) FILTER (WHERE l.ends) INTO v_found, v_tids, v_ords
    FROM unnest(p_partitions, p_tokens, p_from, p_to, p_through) WITH ORDINALITY AS x (partition, token, from_ord, to_ord, through, ord)
    CROSS JOIN LATERAL (
        SELECT l.ctid AS tid, l.pending = 0 AND l.leased = cardinality(l.open)
               AND coalesce(x.through >= l.open[l.leased], p_seqs[x.from_ord:x.to_ord] = l.open) AS ends
        FROM partition_lease l
        WHERE l.partition = x.partition AND l.group_id = v_group AND l.token = x.token FOR UPDATE) l;
    IF v_tids IS NOT NULL THEN
        WITH gone AS (
            DELETE FROM partition_lease l USING unnest(v_tids, v_ords) AS k (tid, ord) WHERE l.ctid = k.tid
            RETURNING k.ord, l.partition, l.open, l.leased, l.attempts, l.leased_at, l.token
        ), history AS (
            INSERT INTO lease_history (queue_id, group_id, partition, first_seq, last_seq, messages, completed, attempt,
                                       leased_at, settled_at, outcome, token, seqs, answer)
            SELECT v_queue, v_group, d.partition, d.open[1], d.open[d.leased], d.leased, d.leased, d.attempts, d.leased_at, p_now, 'completed', d.token,
                   -- Without a gap the first and the last seq say it all.
                   CASE WHEN d.open[d.leased] - d.open[1] >= d.leased THEN d.open END, p_answers[d.ord]
            FROM gone d
        )
        SELECT array_agg(d.ord), array_agg(d.leased), sum(d.leased) INTO o_leases, o_messages, v_completed FROM gone d;
    END IF;
    IF v_found > coalesce(cardinality(v_tids), 0) THEN
        SELECT * INTO q FROM queue k WHERE k.id = v_queue;
        SELECT o_leases || s.leases, o_messages || s.messages, coalesce(v_completed, 0) + coalesce(s.completed, 0)
        INTO o_leases, o_messages, v_completed
        FROM settle_parts(q, v_group, p_partitions, p_tokens, p_from, p_to, p_seqs, p_through, p_answers, p_now) AS s (leases, messages, completed);
    END IF;
    IF v_completed > 0 THEN
        PERFORM count_up(v_queue, v_group, p_shard, v_completed, 0, 0, 0, 0);
        SELECT g.scan_seq < last_seq(v_queue, v_floor) INTO v_undiscovered FROM consumer_group g WHERE g.id = v_group;
        IF v_undiscovered THEN
            o_leases := ARRAY(SELECT -abs(d.n) FROM unnest(o_leases) AS d (n));
        END IF;
    END IF;
END
$$;

-- Moves the deadline of a lease if its token is still good; returns whether it was. A lease that had run out begins anew.
-- leased_at is never later than the renewal: put_right tells by it whether a clock that was ahead wrote the deadline.
-- With p_seq it is for one message of the lease. A set that has others, too, is split: the message gets a row of its own.
CREATE OR REPLACE FUNCTION renew(
    p_tenant text, p_name text, p_group_name text, p_partition text, p_token uuid, p_seq bigint, p_deadline bigint, p_now bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_queue integer;
    v_group integer;
    v_set set_lease%ROWTYPE;
BEGIN
    SELECT q.id, g.id INTO v_queue, v_group
    FROM queue q CROSS JOIN LATERAL (SELECT g.id FROM consumer_group g WHERE g.queue_id = q.id AND g.name = p_group_name LIMIT 1) g
    WHERE q.tenant = p_tenant AND q.name = p_name AND q.deleted_at IS NULL;
    UPDATE partition_lease l SET ready_at = p_deadline,
        leased_at = CASE WHEN l.ready_at <= p_now OR l.leased_at > p_now THEN p_now ELSE l.leased_at END
    WHERE l.partition = p_partition AND l.queue_id = v_queue AND l.group_id = v_group AND l.token = p_token
      AND (p_seq IS NULL OR p_seq = ANY (l.open[1:l.leased]));
    IF NOT FOUND AND p_seq IS NOT NULL THEN
        SELECT s.* INTO v_set FROM set_lease s
        WHERE s.token = p_token AND s.queue_id::bigint = v_queue AND s.group_id::bigint = v_group AND s.partition = p_partition
          AND p_seq = ANY (s.seqs)
        ORDER BY s.id + 0 LIMIT 1 FOR UPDATE;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        IF cardinality(v_set.seqs) > 1 THEN
            UPDATE set_lease s SET seqs = array_remove(s.seqs, p_seq), oldest_at = coalesce((
                SELECT m.created_at FROM message m
                WHERE (m.queue_id, m.seq) BETWEEN (v_queue, (array_remove(v_set.seqs, p_seq))[1]) AND (v_queue, (array_remove(v_set.seqs, p_seq))[1])
                ORDER BY m.queue_id, m.seq LIMIT 1), s.oldest_at)
            WHERE s.id = v_set.id;
            INSERT INTO set_lease (leased_at, ready_at, oldest_at, token, queue_id, group_id, priority, attempts, partition, seqs, last_error, consumer)
            VALUES (CASE WHEN v_set.ready_at <= p_now OR v_set.leased_at > p_now THEN p_now ELSE v_set.leased_at END, p_deadline,
                    coalesce((SELECT m.created_at FROM message m WHERE (m.queue_id, m.seq) BETWEEN (v_queue, p_seq) AND (v_queue, p_seq)
                              ORDER BY m.queue_id, m.seq LIMIT 1), v_set.oldest_at),
                    v_set.token, v_set.queue_id, v_set.group_id, v_set.priority, v_set.attempts, v_set.partition, ARRAY[p_seq],
                    v_set.last_error, v_set.consumer);
            RETURN true;
        END IF;
        UPDATE set_lease s SET ready_at = p_deadline,
            leased_at = CASE WHEN s.ready_at <= p_now OR s.leased_at > p_now THEN p_now ELSE s.leased_at END
        WHERE s.id = v_set.id;
    ELSIF NOT FOUND THEN
        -- The casts leave the planner only the index on token; the one on (queue, group) leads through all sets of the group.
        UPDATE set_lease s SET ready_at = p_deadline,
            leased_at = CASE WHEN s.ready_at <= p_now OR s.leased_at > p_now THEN p_now ELSE s.leased_at END
        WHERE s.token = p_token AND s.queue_id::bigint = v_queue AND s.group_id::bigint = v_group AND s.partition = p_partition;
    END IF;
    RETURN FOUND;
END
$$;
