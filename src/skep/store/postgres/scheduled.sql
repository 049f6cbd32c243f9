-- Scheduled messages, looked at and changed before they are due. A walk reads what filters need; payloads are read for what is shown
-- (their lengths are known without).
-- Places are (due_at, arrival).

-- name: walk
-- By the primary key.
SELECT s.queue_id, s.due_at, s.arrival, s.id, s.partition, s.transaction_id, s.trace_id,
       length(s.payload) + coalesce(length(s.headers), 0) AS size_bytes
FROM scheduled s
WHERE s.queue_id = $1 AND (s.due_at, s.arrival) > ($2, $3) AND s.due_at < $4
ORDER BY s.queue_id, s.due_at, s.arrival LIMIT $5

-- name: queues_with_schedule
SELECT q.id, q.name FROM queue q WHERE q.tenant = $1 AND q.deleted_at IS NULL AND q.scheduled_count > 0

-- name: walk_all
-- The same of several queues: of each the first few.
SELECT s.* FROM unnest($1::integer[]) AS k (queue_id)
CROSS JOIN LATERAL (
    SELECT s.queue_id, s.due_at, s.arrival, s.id, s.partition, s.transaction_id, s.trace_id,
           length(s.payload) + coalesce(length(s.headers), 0) AS size_bytes
    FROM scheduled s
    WHERE s.queue_id = k.queue_id AND (s.due_at, s.arrival) > ($2, $3) AND s.due_at < $4
    ORDER BY s.queue_id, s.due_at, s.arrival LIMIT $5) s
ORDER BY s.due_at, s.arrival

-- name: with_ids
-- By the index on ids.
SELECT s.queue_id, s.due_at, s.arrival, s.id, s.partition, s.transaction_id, s.trace_id, s.size_bytes
FROM unnest($1::uuid[]) AS k (id)
CROSS JOIN LATERAL (SELECT s.*, length(s.payload) + coalesce(length(s.headers), 0) AS size_bytes FROM scheduled s WHERE s.id = k.id ORDER BY s.id LIMIT 1) s

-- name: with_transaction_id
-- By the index on transaction ids.
SELECT s.queue_id, s.due_at, s.arrival, s.id, s.partition, s.transaction_id, s.trace_id,
       length(s.payload) + coalesce(length(s.headers), 0) AS size_bytes
FROM scheduled s
WHERE s.transaction_id = $1 AND s.transaction_id IS NOT NULL AND (s.due_at, s.arrival) > ($2, $3) AND s.due_at < $4
ORDER BY s.transaction_id, s.due_at, s.arrival LIMIT $5

-- name: with_trace_id
-- By the index on traces: of those that were given one. The others are found by their id.
SELECT s.queue_id, s.due_at, s.arrival, s.id, s.partition, s.transaction_id, s.trace_id,
       length(s.payload) + coalesce(length(s.headers), 0) AS size_bytes
FROM scheduled s
WHERE s.trace_id = $1 AND s.trace_id <> s.id AND (s.due_at, s.arrival) > ($2, $3) AND s.due_at < $4
ORDER BY s.trace_id, s.due_at, s.arrival LIMIT $5

-- name: queue_names
SELECT q.id, q.name FROM unnest($1::integer[]) AS k (id)
CROSS JOIN LATERAL (SELECT q.id, q.name FROM queue q WHERE q.id = k.id AND q.tenant = $2 AND q.deleted_at IS NULL LIMIT 1) q

-- name: show
-- By the primary key. $4 is how many bytes of a payload are wanted; null is all of it.
SELECT s.queue_id, s.due_at, s.arrival, s.headers, s.content_type, s.priority, length(s.payload) AS payload_bytes,
       CASE WHEN $4::integer IS NULL THEN s.payload ELSE substring(s.payload FROM 1 FOR $4::integer) END AS payload
FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS k (queue_id, due_at, arrival)
CROSS JOIN LATERAL (
    SELECT s.* FROM scheduled s WHERE s.queue_id = k.queue_id AND s.due_at = k.due_at AND s.arrival = k.arrival
    ORDER BY s.queue_id, s.due_at, s.arrival LIMIT 1) s

-- name: lock_log
SELECT lock_log($1)

-- name: mark
-- The greatest arrival that was given out. Only the holder of the log's lock schedules for its queue, so every smaller arrival of the
-- queue is committed.
SELECT CASE WHEN a.is_called THEN a.last_value ELSE 0 END FROM scheduled_arrival_seq a

-- name: take
-- Takes messages out of the schedule, under the lock of the log, so their tids stay.
WITH found AS MATERIALIZED (
    SELECT s.ctid FROM unnest($2::bigint[], $3::bigint[]) AS k (due_at, arrival)
    CROSS JOIN LATERAL (
        SELECT s.ctid FROM scheduled s WHERE s.queue_id = $1 AND s.due_at = k.due_at AND s.arrival = k.arrival
        ORDER BY s.queue_id, s.due_at, s.arrival LIMIT 1) s
), taken AS (
    DELETE FROM scheduled s USING found f WHERE s.ctid = f.ctid RETURNING s.*
)
SELECT * FROM taken ORDER BY due_at, arrival

-- name: cancel
-- As `take`, without reading payloads.
WITH found AS MATERIALIZED (
    SELECT s.ctid FROM unnest($2::bigint[], $3::bigint[]) AS k (due_at, arrival)
    CROSS JOIN LATERAL (
        SELECT s.ctid FROM scheduled s WHERE s.queue_id = $1 AND s.due_at = k.due_at AND s.arrival = k.arrival
        ORDER BY s.queue_id, s.due_at, s.arrival LIMIT 1) s
)
DELETE FROM scheduled s USING found f WHERE s.ctid = f.ctid

-- name: move
-- Moved messages get new arrivals, so that a change with an earlier mark does not touch them.
WITH found AS MATERIALIZED (
    SELECT s.ctid FROM unnest($2::bigint[], $3::bigint[]) AS k (due_at, arrival)
    CROSS JOIN LATERAL (
        SELECT s.ctid FROM scheduled s WHERE s.queue_id = $1 AND s.due_at = k.due_at AND s.arrival = k.arrival
        ORDER BY s.queue_id, s.due_at, s.arrival LIMIT 1) s
)
UPDATE scheduled s SET due_at = $4, arrival = DEFAULT FROM found f WHERE s.ctid = f.ctid

-- name: count_down
UPDATE queue SET scheduled_count = greatest(0, scheduled_count - $2) WHERE id = $1

-- name: key_seqs
-- From now on a repeat of a message that entered the log is answered with its seq. A key without a partition counts in the whole queue: which
-- of the two a message has was said by the setting when it was scheduled. The queue comes with each key: as a single parameter it would let
-- the planner walk all keys of the queue.
UPDATE dedup d SET seq = k.seq
FROM unnest(array_fill($1::integer, ARRAY[cardinality($2::text[])]), $2::text[], $3::text[], $4::bigint[], $5::uuid[])
    AS k (queue_id, transaction_id, partition, seq, id)
WHERE d.queue_id = ANY (ARRAY[k.queue_id]) AND d.transaction_id = k.transaction_id AND d.partition = ANY (ARRAY[k.partition, '']) AND d.message_id = k.id
