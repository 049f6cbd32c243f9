-- name: bury
-- Copies messages to the end of the dead-letter queue (its lock is held), in the order given, and notes why.
-- The limits make it one look-up per message, where a join may walk the log.
-- $1 source id, $2 its name, $3 target id, $4 its last seq, $5 created_at there, $6 now, $7 group, $8.. seqs, reasons, errors, attempts,
-- $12 the one partition of a fifo queue. The letter remembers the partition that the message came from.
WITH doomed AS MATERIALIZED (
    SELECT $4::bigint + row_number() OVER (ORDER BY x.ord) AS dead_seq, x.reason, x.error, x.attempts, m.*
    FROM unnest($8::bigint[], $9::text[], $10::text[], $11::integer[]) WITH ORDINALITY AS x (seq, reason, error, attempts, ord)
    CROSS JOIN LATERAL (SELECT m.* FROM message m WHERE (m.queue_id, m.seq) BETWEEN ($1, x.seq) AND ($1, x.seq) ORDER BY m.queue_id, m.seq LIMIT 1) m
), copied AS (
    INSERT INTO message (queue_id, seq, created_at, id, trace_id, priority, partition, transaction_id, content_type, headers, payload)
    SELECT $3, d.dead_seq, $5, d.id, coalesce(d.trace_id, d.id), d.priority, coalesce($12::text, d.partition), d.transaction_id, d.content_type,
           d.headers, d.payload
    FROM doomed d
)
INSERT INTO dead_letter (queue_id, seq, id, source_queue, source_seq, group_name, reason, error, attempts, partition,
                         created_at, failed_at)
SELECT $3, d.dead_seq, d.id, $2, d.seq, $7, d.reason, d.error, d.attempts, d.partition, d.created_at, $6
FROM doomed d
RETURNING source_seq

-- name: quarantine
-- A letter that no group gave up: its message never was in its queue, so its source_seq is 0.
INSERT INTO dead_letter (queue_id, seq, id, source_queue, source_seq, group_name, reason, error, attempts, partition,
                         created_at, failed_at)
VALUES ($1, $2, $3, $4, 0, $5, $6, $7, 0, $8, $9, $9)

-- name: bury_new
-- Letters of an accepted push that could not be performed: no group gave them up, and they never were in their queue.
INSERT INTO dead_letter (queue_id, seq, id, source_queue, source_seq, group_name, reason, error, attempts, partition,
                         created_at, failed_at)
SELECT $1, k.seq, k.id, $5, 0, $6, $7, $8, $9, k.partition, $10, $10
FROM unnest($2::bigint[], $3::uuid[], $4::text[]) AS k (seq, id, partition)

-- name: origins
-- By the primary key, as `delete` does: the other indexes lead through all letters of the queue.
SELECT d.* FROM unnest($2::bigint[]) AS k (seq)
CROSS JOIN LATERAL (SELECT d.seq, d.source_queue, d.source_seq, d.partition, d.group_name, d.reason, d.error, d.attempts, d.failed_at
                    FROM dead_letter d WHERE d.queue_id = $1 AND d.seq = k.seq ORDER BY d.queue_id, d.seq LIMIT 1) d
