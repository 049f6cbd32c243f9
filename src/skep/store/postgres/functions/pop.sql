-- Whether a ready row must be buried or expired before any of its messages is handed out: its first message is too old, or its
-- lease ran out with the last attempt. Plain SQL, so that the planner inlines it.
CREATE OR REPLACE FUNCTION is_doomed(p_oldest bigint, p_cutoff bigint, p_token uuid, p_attempts integer, p_max_attempts integer)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_oldest <= p_cutoff OR (p_token IS NOT NULL AND p_max_attempts > 0 AND p_attempts >= p_max_attempts)
$$;

-- How much is ready: messages, rows, and whether a row is doomed. Of one partition its row is read. Otherwise the first p_limit
-- rows are, and at most p_most messages of each count.
CREATE OR REPLACE FUNCTION ready_work(
    p_queue integer, p_group integer, p_partition text, p_now bigint, p_limit integer, p_most integer, p_cutoff bigint,
    p_max_attempts integer, OUT messages bigint, OUT leases integer, OUT doomed boolean)
LANGUAGE plpgsql AS $$
BEGIN
    IF p_partition IS NULL THEN
        SELECT coalesce(sum(CASE WHEN r.open = '{}' THEN least(r.pending, p_most) ELSE 1 END), 0), count(*),
               coalesce(bool_or(is_doomed(r.oldest_at, p_cutoff, r.token, r.attempts, p_max_attempts)), false)
        INTO messages, leases, doomed
        FROM (SELECT l.open, l.pending, l.token, l.attempts, l.oldest_at FROM partition_lease l
              WHERE l.queue_id = p_queue AND l.group_id::bigint = p_group AND l.ready_at <= p_now
              ORDER BY l.group_id::bigint, l.ready_at, l.partition || '' LIMIT p_limit) r;
    ELSE
        SELECT coalesce(sum(CASE WHEN l.open = '{}' THEN l.pending ELSE 1 END), 0), count(*),
               coalesce(bool_or(is_doomed(l.oldest_at, p_cutoff, l.token, l.attempts, p_max_attempts)), false)
        INTO messages, leases, doomed
        FROM partition_lease l
        WHERE l.partition = p_partition AND l.queue_id = p_queue AND l.group_id = p_group AND l.ready_at + 0 <= p_now;
    END IF;
END
$$;

-- Looks whether the ready rows fill the batches, and discovers more if they do not. Returns how many rows to lock, how many of
-- them there are, whether one of them is doomed, and whether it gave up discovering before the log's end.
CREATE OR REPLACE FUNCTION find_work(
    q queue, p_group integer, p_partition text, p_now bigint, p_batches integer[], p_max_partitions integer, p_cutoff bigint,
    p_discover boolean, p_shard smallint,
    OUT rows_to_lock integer, OUT leases integer, OUT doomed boolean, OUT gave_up boolean)
LANGUAGE plpgsql AS $$
DECLARE
    c_first_look CONSTANT integer := 4;
    c_discover CONSTANT integer := 2000;
    c_most_passes CONSTANT integer := 16;
    v_requests CONSTANT integer := cardinality(p_batches);
    v_total integer;
    v_most integer;
    w record;
    v_passes integer := 0;
    v_walked bigint := c_discover;
BEGIN
    SELECT sum(b.n), max(b.n) INTO v_total, v_most FROM unnest(p_batches) b (n);
    gave_up := false;
    IF p_discover AND q.window_buffer_seconds > 0 THEN
        PERFORM discover(q.id, p_group, c_discover, p_shard, p_now);
    END IF;
    -- First from a few rows; if they do not fill the batches, from as many as could be needed. With delayed processing a row may
    -- have fewer messages to give than it says.
    rows_to_lock := CASE WHEN q.delayed_processing_seconds > 0 THEN v_total ELSE least(v_total, c_first_look * v_requests) END;
    LOOP
        IF p_max_partitions > 0 THEN
            rows_to_lock := least(rows_to_lock, p_max_partitions * v_requests);
        END IF;
        w := ready_work(q.id, p_group, p_partition, p_now, rows_to_lock, v_most, p_cutoff, q.max_attempts);
        leases := w.leases;
        doomed := w.doomed;
        EXIT WHEN doomed OR w.messages >= v_total OR (p_max_partitions > 0 AND leases >= p_max_partitions * v_requests)
            OR (p_partition IS NOT NULL AND leases > 0);
        IF leases = rows_to_lock AND rows_to_lock < v_total THEN
            rows_to_lock := v_total;
            CONTINUE;
        END IF;
        -- Bounded: the wanted messages may lie at the far end of a long log. Then several pops walk there.
        v_passes := v_passes + 1;
        gave_up := v_passes > c_most_passes;
        -- A walk of fewer than c_discover seqs has reached the log's end.
        EXIT WHEN NOT p_discover OR gave_up OR q.window_buffer_seconds > 0 OR v_walked < c_discover;
        v_walked := discover(q.id, p_group, c_discover, p_shard, p_now);
        EXIT WHEN v_walked = 0;
        rows_to_lock := v_total;
    END LOOP;
END
$$;

-- Locks ready rows, in their order. Rows that others hold are passed over, so these may be other rows than find_work has seen:
-- doomed ones are left out again.
CREATE OR REPLACE FUNCTION lock_claimable(
    p_queue integer, p_group integer, p_partition text, p_now bigint, p_limit integer, p_cutoff bigint, p_max_attempts integer)
RETURNS claimable[] LANGUAGE plpgsql AS $$
DECLARE
    v_locked claimable[];
BEGIN
    IF p_partition IS NULL THEN
        SELECT array_agg(k.l) INTO v_locked
        FROM (SELECT ROW(l.ctid, l.partition, l.delivered_seq, l.pending, l.open, l.leased, l.attempts, l.token, l.leased_at, l.ready_at)::claimable AS l
              FROM partition_lease l
              WHERE l.queue_id = p_queue AND l.group_id::bigint = p_group AND l.ready_at <= p_now
                AND NOT is_doomed(l.oldest_at, p_cutoff, l.token, l.attempts, p_max_attempts)
              ORDER BY l.group_id::bigint, l.ready_at, l.partition || '' LIMIT p_limit FOR UPDATE SKIP LOCKED) k;
    ELSE
        SELECT array_agg(k.l) INTO v_locked
        FROM (SELECT ROW(l.ctid, l.partition, l.delivered_seq, l.pending, l.open, l.leased, l.attempts, l.token, l.leased_at, l.ready_at)::claimable AS l
              FROM partition_lease l
              WHERE l.partition = p_partition AND l.queue_id = p_queue AND l.group_id = p_group AND l.ready_at + 0 <= p_now
                AND NOT is_doomed(l.oldest_at, p_cutoff, l.token, l.attempts, p_max_attempts)
              FOR UPDATE SKIP LOCKED) k;
    END IF;
    RETURN v_locked;
END
$$;

-- For queues with delayed processing: locked rows, whose pending counts only messages that are visible by now. A partition's
-- delayed messages must not take the place of messages that other partitions can give.
CREATE OR REPLACE FUNCTION only_visible(p_rows claimable[], p_queue integer, p_group integer, p_scan bigint, p_visible bigint,
                                        p_ahead bigint, p_most integer)
RETURNS claimable[] LANGUAGE plpgsql AS $$
DECLARE
    v_rows claimable[];
BEGIN
    SELECT array_agg(ROW(k.tid, k.partition, k.delivered_seq, v.n, k.open, k.leased, k.attempts, k.token, k.leased_at, k.ready_at)::claimable
                     ORDER BY k.ord)
    INTO v_rows
    FROM unnest(p_rows) WITH ORDINALITY AS k (
        tid, partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at, ord)
    CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (
            SELECT 1 FROM message m
            WHERE m.partition = k.partition AND m.queue_id = p_queue AND m.seq > k.delivered_seq AND m.seq <= p_scan
              AND (m.created_at <= p_visible OR m.created_at > p_ahead) AND (m.audience IS NULL OR m.audience = p_group)
            ORDER BY m.partition, m.queue_id, m.seq LIMIT p_most) x) v;
    RETURN v_rows;
END
$$;

-- Shares ready rows out among requests, in order. A request takes rows until it is full, and each row goes to one request only.
-- Returns for each row how many messages are taken, and by which request; and whether the lease of a taken row ran out.
CREATE OR REPLACE FUNCTION share_out(p_rows claimable[], p_batches integer[], p_max_partitions integer, p_one_each boolean,
                                     OUT takes integer[], OUT owners integer[], OUT ran_out boolean)
LANGUAGE plpgsql AS $$
DECLARE
    k claimable;
    v_owner integer := 1;
    v_room integer := p_batches[1];
    v_partitions integer := 0;
    v_take bigint;
BEGIN
    takes := '{}';
    owners := '{}';
    ran_out := false;
    FOREACH k IN ARRAY coalesce(p_rows, '{}') LOOP
        EXIT WHEN v_room IS NULL;
        v_take := CASE WHEN p_one_each OR k.open <> '{}' THEN 1 ELSE least(k.pending, v_room) END;
        takes := takes || v_take::integer;
        owners := owners || v_owner;
        CONTINUE WHEN v_take = 0;
        ran_out := ran_out OR k.token IS NOT NULL;
        v_room := v_room - v_take;
        v_partitions := v_partitions + 1;
        IF v_room = 0 OR v_partitions = p_max_partitions THEN
            v_owner := v_owner + 1;
            v_room := p_batches[v_owner];
            v_partitions := 0;
        END IF;
    END LOOP;
END
$$;

-- Deletes the failed attempts of each message up to its p_attempts, by the index on (queue, seq, id).
CREATE OR REPLACE FUNCTION forget_failures(p_queue integer, p_group_name text, p_seqs bigint[], p_attempts integer[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH old AS MATERIALIZED (
        SELECT f.tid FROM unnest(p_seqs, p_attempts) AS k (seq, attempt) CROSS JOIN LATERAL (
            SELECT f.ctid AS tid FROM failed_attempt f
            WHERE f.queue_id = p_queue AND f.seq = k.seq AND f.group_name = p_group_name AND f.attempt <= k.attempt
            ORDER BY f.queue_id, f.seq, f.id LIMIT 100) f
    )
    DELETE FROM failed_attempt f USING old o WHERE f.ctid = o.tid;
END
$$;

-- Notes the end of leases that ran out and whose messages this pop has taken: in the history, among the failed attempts and in
-- the counter. p_consumers held these leases. A row that was locked and not taken in the end still has its old token.
CREATE OR REPLACE FUNCTION note_run_out(
    p_queue integer, p_group integer, p_group_name text, p_rows claimable[], p_takes integer[], p_owners integer[], p_consumers text[],
    p_tokens uuid[], p_shard smallint, p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_seqs bigint[];
    v_attempts integer[];
BEGIN
    WITH ended AS MATERIALIZED (
        SELECT k.* FROM unnest(p_rows, p_takes, p_owners, p_consumers) AS k (
            tid, partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at, take, owner, consumer)
        CROSS JOIN LATERAL (
            SELECT 1 FROM partition_lease l
            WHERE l.partition = k.partition AND l.group_id = p_group AND l.token = p_tokens[k.owner] LIMIT 1) l
        WHERE k.take > 0 AND k.token IS NOT NULL
    ), told AS (
        INSERT INTO lease_history (queue_id, group_id, partition, first_seq, last_seq, messages, completed, attempt,
                                   leased_at, settled_at, outcome)
        SELECT p_queue, p_group, e.partition, e.open[1], e.open[e.leased], e.leased, 0, e.attempts, e.leased_at, p_now, 'expired'
        FROM ended e
    ), failed AS (
        INSERT INTO failed_attempt (queue_id, group_name, seq, attempt, leased_at, failed_at, outcome, error, consumer)
        SELECT p_queue, p_group_name, s.seq, e.attempts, e.leased_at, p_now, 'retried', 'lease ran out', e.consumer
        FROM ended e CROSS JOIN LATERAL unnest(e.open[1:e.leased]) AS s (seq)
    )
    INSERT INTO group_counter AS c (queue_id, group_id, shard, retried)
    SELECT p_queue, p_group, p_shard, sum(e.leased) FROM ended e HAVING count(*) > 0
    ON CONFLICT (group_id, shard) DO UPDATE SET retried = c.retried + excluded.retried;
    -- Of a message that is tried again and again, only the latest 32 are kept.
    SELECT array_agg(k.open[1]), array_agg(k.attempts - 32) INTO v_seqs, v_attempts FROM unnest(p_rows) AS k (
        tid, partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at)
    WHERE k.attempts > 32 AND k.token IS NOT NULL;
    IF v_seqs IS NOT NULL THEN
        PERFORM forget_failures(p_queue, p_group_name, v_seqs, v_attempts);
    END IF;
END
$$;

-- Pops from an ordered queue: one round trip for any number of requests of one group and shape. Request i wants p_batches[i]
-- messages and gets them under p_tokens[i]: as many as p_max_bytes allows each request, and at least one.
-- It discovers first (only when the ready rows do not fill the batches) and then claims, never the other way round: SKIP LOCKED
-- keeps the lock of a row that it re-checked and dropped, and discovery waits for row locks. With p_discover false it claims from
-- known rows only: within one transaction only the first pop of a group may discover, since the later ones already hold claims.
--
-- Returns the messages, with the number of their request as owner, and then one row with seq NULL. Of that row
--   partition   is the state: 'ok'; 'missing' or 'paused' (the queue); 'unordered' (another path serves it); 'external' (the group does
--               not pop); 'doomed' (rows must be buried, expired or put right before the next pop)
--   owner       is the queue's id if it holds dead letters, else 0
--   created_at  is when something may next be ready
--   attempt     is 1 when another pop would find something now
CREATE OR REPLACE FUNCTION pop_ordered(
    p_tenant text, p_name text, p_group_name text, p_mode text, p_value bigint, p_batches integer[], p_tokens uuid[],
    p_max_partitions integer, p_partition text, p_now bigint, p_lease_us bigint, p_shard smallint, p_discover boolean,
    p_max_bytes bigint, p_consumers text[])
RETURNS TABLE (seq bigint, created_at bigint, id uuid, trace_id uuid, priority integer, attempt integer, partition text,
               transaction_id text, content_type text, headers bytea, payload bytea, deadline bigint, owner integer)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c_others_busy_us CONSTANT bigint := 10000;
    e record;
    w record;
    t record;
    c_ahead_us CONSTANT bigint := 5000000;
    q queue%ROWTYPE;
    v_group integer;
    v_locked claimable[];
    v_held_by text[];
    v_delayed boolean;
    v_visible bigint;
    v_ahead bigint;
    v_cutoff bigint;
    v_scan bigint;
    v_deadline bigint;
    v_count integer := 0;
    v_next bigint;
    v_state text := 'ok';
BEGIN
    -- Assignments, not SELECTs: a SELECT costs more than these functions do when there is little to do.
    e := enter_group(p_tenant, p_name, p_group_name, p_mode, p_value, p_now);
    q := e.q;
    v_group := e.group_id;
    v_state := CASE WHEN e.state = 'ok' AND q.ordering = 'unordered' THEN 'unordered' ELSE e.state END;
    IF v_state <> 'ok' THEN
        priority := 0;
        attempt := 0;
        partition := v_state;
        deadline := 0;
        owner := 0;
        RETURN NEXT;
        RETURN;
    END IF;
    -- Without a delay every message is visible. With one, a message is visible if it was created up to v_visible; or so far ahead
    -- of now that the clock must have been put back since: its age is unknown, and the first of its partition has waited.
    v_delayed := q.delayed_processing_seconds > 0;
    v_visible := p_now - (q.delayed_processing_seconds * 1e6)::bigint;
    v_ahead := CASE WHEN v_delayed THEN p_now + c_ahead_us ELSE v_visible END;
    v_deadline := p_now + coalesce(p_lease_us, (q.lease_seconds * 1e6)::bigint);
    -- Messages created up to this instant are past max_wait_seconds or max_age_seconds.
    v_cutoff := greatest(CASE WHEN q.max_wait_seconds > 0 THEN p_now - (q.max_wait_seconds * 1e6)::bigint ELSE 0 END,
                         CASE WHEN q.max_age_seconds > 0 THEN p_now - (q.max_age_seconds * 1e6)::bigint ELSE 0 END);
    w := find_work(q, v_group, p_partition, p_now, p_batches, p_max_partitions, v_cutoff, p_discover, p_shard);
    IF w.doomed THEN
        v_state := 'doomed';
    ELSIF w.leases > 0 THEN
        v_locked := lock_claimable(q.id, v_group, p_partition, p_now, w.rows_to_lock, v_cutoff, q.max_attempts);
        -- Messages beyond scan_seq may be in the log already, but pending does not count them.
        SELECT g.scan_seq INTO v_scan FROM consumer_group g WHERE g.id = v_group;
        IF v_delayed THEN
            v_locked := only_visible(v_locked, q.id, v_group, v_scan, v_visible, v_ahead, (SELECT max(b.n) FROM unnest(p_batches) b (n)));
        END IF;
        t := share_out(v_locked, p_batches, p_max_partitions, q.max_attempts = 1);
        IF t.ran_out THEN
            SELECT array_agg(l.consumer ORDER BY k.ord) INTO v_held_by
            FROM unnest(v_locked) WITH ORDINALITY AS k (
                tid, partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at, ord)
            CROSS JOIN LATERAL (SELECT l.consumer FROM partition_lease l WHERE l.ctid = k.tid) l;
        END IF;
        -- Everything that a claim needs travels with the messages, so that no two sets have to be joined. The lateral join goes
        -- through the locked rows in their order, and through each partition in the order of seq; sorting the wide rows again
        -- would only cost time.
        RETURN QUERY
        WITH wanted AS MATERIALIZED (
            SELECT k.* FROM unnest(v_locked, t.takes, t.owners) AS k (
                tid, partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at, take, owner)
            WHERE k.take > 0
        ), found AS (
            SELECT w.tid, w.owner, w.open <> '{}' AS again, w.token AS old_token,
                   CASE WHEN w.open = '{}' THEN 1 ELSE w.attempts + 1 END AS attempts, m.*
            FROM wanted w CROSS JOIN LATERAL (
                (SELECT m.seq, m.created_at, m.id, m.trace_id, m.priority, m.partition, m.transaction_id, m.content_type,
                        m.headers, m.payload
                 FROM message m
                 WHERE w.open = '{}' AND m.partition = w.partition AND m.queue_id = q.id AND m.seq > w.delivered_seq AND m.seq <= v_scan
                   AND (m.created_at <= v_visible OR m.created_at > v_ahead) AND (m.audience IS NULL OR m.audience = v_group)
                 ORDER BY m.partition, m.queue_id, m.seq LIMIT w.take)
                UNION ALL
                (SELECT m.seq, m.created_at, m.id, m.trace_id, m.priority, m.partition, m.transaction_id, m.content_type,
                        m.headers, m.payload
                 FROM message m WHERE w.open <> '{}' AND (m.queue_id, m.seq) BETWEEN (q.id, w.open[1]) AND (q.id, w.open[1]) ORDER BY m.queue_id, m.seq LIMIT 1)) m
        ), measured AS MATERIALIZED (
            -- The length of a value that is stored apart is known without reading it. No ORDER BY: the rows come in their order.
            SELECT f.*, sum(f.size_bytes) OVER (ROWS UNBOUNDED PRECEDING) AS through
            FROM (SELECT f.*, octet_length(f.payload) + coalesce(octet_length(f.headers), 0) AS size_bytes FROM found f) f
        ), shares AS MATERIALIZED (
            -- Read only when all requests together have more bytes than one request may have.
            SELECT m.owner, min(m.through - m.size_bytes) AS before FROM measured m GROUP BY m.owner
        ), taken AS MATERIALIZED (
            SELECT m.* FROM measured m
            WHERE m.through <= p_max_bytes
               OR (SELECT m.through - s.before <= p_max_bytes OR m.through - m.size_bytes = s.before FROM shares s WHERE s.owner = m.owner)
        ), batch AS MATERIALIZED (
            SELECT t.tid, count(*)::integer AS n, array_agg(t.seq ORDER BY t.seq) AS seqs, max(t.seq) AS last_seq,
                   bool_or(t.again) AS again, max(t.attempts) AS attempts, min(t.owner) AS owner, bool_or(t.old_token IS NOT NULL) AS ran_out
            FROM taken t GROUP BY t.tid
        ), claimed AS (
            UPDATE partition_lease l SET
                token = p_tokens[b.owner], consumer = p_consumers[b.owner], leased_at = p_now, ready_at = v_deadline, leased = b.n, attempts = b.attempts,
                open = CASE WHEN b.again THEN l.open ELSE b.seqs END,
                pending = CASE WHEN b.again THEN l.pending ELSE l.pending - b.n END,
                delivered_seq = CASE WHEN b.again THEN l.delivered_seq ELSE b.last_seq END,
                last_error = CASE WHEN b.ran_out THEN coalesce(l.last_error, 'lease expired') ELSE l.last_error END
            FROM batch b
            WHERE l.ctid = b.tid
        )
        SELECT t.seq, t.created_at, t.id, t.trace_id, t.priority, t.attempts, t.partition, t.transaction_id, t.content_type,
               t.headers, t.payload, v_deadline, t.owner
        FROM taken t;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        IF t.ran_out THEN
            PERFORM note_run_out(q.id, v_group, p_group_name, v_locked, t.takes, t.owners, v_held_by, p_tokens, p_shard, p_now);
        END IF;
        IF v_count = 0 AND v_locked IS NOT NULL THEN
            v_state := 'doomed';
        END IF;
    END IF;
    IF p_partition IS NULL THEN
        SELECT l.ready_at INTO v_next FROM partition_lease l WHERE l.queue_id = q.id AND l.group_id::bigint = v_group
        ORDER BY l.group_id::bigint, l.ready_at LIMIT 1;
    ELSE
        SELECT l.ready_at INTO v_next FROM partition_lease l
        WHERE l.partition = p_partition AND l.queue_id = q.id AND l.group_id = v_group;
    END IF;
    IF v_count = 0 AND v_next <= p_now THEN
        -- Others hold these rows at the moment. Looking again at once would only get in their way.
        v_next := p_now + c_others_busy_us;
    END IF;
    -- Of variables: a query would take longer than all that it tells of.
    seq := NULL;
    created_at := v_next;
    priority := 0;
    attempt := 0;
    IF v_count > 0 OR w.gave_up THEN
        attempt := (coalesce(v_next <= p_now, false) OR EXISTS (
            SELECT 1 FROM consumer_group g WHERE g.id = v_group AND g.scan_seq < last_seq(q.id, q.floor_seq)))::integer;
    END IF;
    partition := v_state;
    deadline := v_deadline;
    owner := CASE WHEN q.holds_dead_letters THEN q.id ELSE 0 END;
    RETURN NEXT;
END
$$;
