-- name: open_logs
-- Reads every queue of a push, under its lock (functions/push.sql).
SELECT * FROM open_logs($1, $2, $3)

-- name: push_plain
-- functions/push.sql
SELECT * FROM push_plain($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: known_keys
-- The transaction ids that are taken. By the primary key; we hold the queue's lock, which keeps the answer true. Traces are looked up
-- only for those that are found, by the primary key of the log or the schedule's index on ids.
SELECT d.queue_id, d.transaction_id, d.partition, d.message_id, d.seq,
       CASE WHEN d.seq IS NULL
         THEN (SELECT s.trace_id FROM scheduled s WHERE s.id = d.message_id ORDER BY s.id LIMIT 1)
         ELSE (SELECT coalesce(m.trace_id, m.id) FROM message m WHERE (m.queue_id, m.seq) BETWEEN (d.queue_id, d.seq) AND (d.queue_id, d.seq) ORDER BY m.queue_id, m.seq LIMIT 1) END AS trace_id
FROM unnest($1::integer[], $2::text[], $3::text[]) AS k (queue_id, transaction_id, partition)
CROSS JOIN LATERAL (
    SELECT d.* FROM dedup d
    WHERE d.queue_id = k.queue_id AND d.transaction_id = k.transaction_id AND d.partition = k.partition LIMIT 1) d
WHERE d.expires_at > $4

-- name: forget_expired_keys
-- Deletes expired keys that are used again; no others can be left here.
DELETE FROM dedup d
USING unnest($1::integer[], $2::text[], $3::text[]) AS k (queue_id, transaction_id, partition)
WHERE d.queue_id = ANY (ARRAY[k.queue_id]) AND d.transaction_id = k.transaction_id AND d.partition = k.partition

-- name: group_id
SELECT g.id FROM consumer_group g WHERE g.queue_id = $1 AND g.name = $2

-- name: count_scheduled
-- The schedule's length, so that a queue's depth is known without counting. Under the queue's lock.
UPDATE queue SET scheduled_count = scheduled_count + $2 WHERE id = $1

-- name: ids_between
-- The messages that an attempt with an unknown outcome may have stored (functions/push.sql).
SELECT * FROM ids_between($1, $2, $3, $4, $5)

-- name: live_operations
-- The partitions that have a queued push: one look-up each in the index of live operations.
SELECT k.ord FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (tenant, queue, partition, ord)
CROSS JOIN LATERAL (SELECT 1 FROM operation o
                    WHERE o.processed_at IS NULL AND (o.tenant, o.queue, o.lane, o.partition)
                          BETWEEN (k.tenant, k.queue, 'push', k.partition) AND (k.tenant, k.queue, 'push', k.partition)
                    ORDER BY o.tenant, o.queue, o.lane, o.partition, o.position LIMIT 1) o
