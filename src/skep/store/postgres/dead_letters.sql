-- part: wanted
-- The filter of dead letters. A parameter that is null does not narrow it.
($2::uuid[] IS NULL OR d.id = ANY ($2)) AND ($3::bigint[] IS NULL OR d.seq = ANY ($3))
  AND ($4::text IS NULL OR d.source_queue = $4) AND ($5::text IS NULL OR d.partition = $5)
  AND ($6::text IS NULL OR d.group_name = $6) AND ($7::text IS NULL OR d.reason = $7)
  AND ($8::text IS NULL OR strpos(d.error, $8) > 0)
  AND ($9::bigint IS NULL OR d.failed_at >= $9) AND ($10::bigint IS NULL OR d.failed_at < $10)

-- name: browse
-- Rides the primary key of dead_letter; the payload comes with the message. Up to the letter that reaches $14 bytes: later payloads are
-- counted and not read.
SELECT p.* FROM (SELECT l.*, sum(octet_length(l.payload)) OVER (ORDER BY l.seq ROWS UNBOUNDED PRECEDING) AS upto FROM (
SELECT d.*, m.transaction_id, m.trace_id, m.headers, m.content_type, m.payload
FROM dead_letter d
CROSS JOIN LATERAL (SELECT m.* FROM message m WHERE (m.queue_id, m.seq) BETWEEN (d.queue_id, d.seq) AND (d.queue_id, d.seq) ORDER BY m.queue_id, m.seq LIMIT 1) m
WHERE d.queue_id = $1 AND {wanted}
  AND d.seq > $11 AND ($13::bigint IS NULL OR d.seq <= $13)
ORDER BY d.queue_id, d.seq LIMIT $12) l) p
WHERE p.upto - octet_length(p.payload) < $14::bigint ORDER BY p.seq

-- name: count
SELECT count(*) FROM dead_letter d
WHERE d.queue_id = $1 AND {wanted}
  AND ($11::bigint IS NULL OR d.seq <= $11)

-- name: pick
-- The oldest matches among the first $14 letters behind $13. A replay holds the log's lock, so that two do not move the same letters.
SELECT d.seq, d.source_queue, d.group_name, d.partition
FROM (SELECT l.* FROM dead_letter l WHERE l.queue_id = $1 AND l.seq > $13 AND l.seq <= $11
      ORDER BY l.queue_id, l.seq LIMIT $14) d
WHERE {wanted}
ORDER BY d.seq LIMIT $12

-- name: nth
-- Where a bounded look ends: the $4-th letter behind the first one beyond $2.
SELECT d.seq FROM dead_letter d WHERE d.queue_id = $1 AND d.seq > $2 AND d.seq <= $3
ORDER BY d.queue_id, d.seq OFFSET $4 LIMIT 1

-- name: audience
-- The group that gave a message up; one that is gone is made as by a pop, at the beginning of the log.
SELECT ensure_group($1, $2, 'all', 0, $3)

-- name: replay
-- Appends a dead letter to its source queue, for the one group that gave it up, and records that.
-- $1 dead-letter queue, $2 seq there, $3 source queue, $4 new seq, $5 created_at, $6 new id, $7 audience, $8 now,
-- $9 the one partition of a fifo queue, $10 another payload, $11 and $12 its content type and headers.
WITH copied AS (
    INSERT INTO message (queue_id, seq, created_at, id, trace_id, audience, priority, partition, transaction_id, content_type,
                         headers, payload)
    SELECT $3, $4, $5, $6, coalesce(m.trace_id, m.id), $7, m.priority, coalesce($9::text, d.partition), m.transaction_id,
           CASE WHEN $10::bytea IS NULL THEN m.content_type ELSE $11::text END,
           CASE WHEN $10::bytea IS NULL THEN m.headers ELSE $12::bytea END, coalesce($10::bytea, m.payload)
    FROM message m CROSS JOIN LATERAL (
        SELECT d.partition FROM dead_letter d WHERE d.queue_id = $1 AND d.seq = $2 LIMIT 1) d
    WHERE (m.queue_id, m.seq) BETWEEN ($1, $2::bigint) AND ($1, $2::bigint) ORDER BY m.queue_id, m.seq LIMIT 1
)
INSERT INTO replay_history (dead_queue, dead_seq, dead_id, queue_id, seq, id, group_name, reason, error, attempts, replayed_at)
SELECT $1, $2, d.id, $3, $4, $6, d.group_name, d.reason, d.error, d.attempts, $8
FROM dead_letter d WHERE d.queue_id = $1 AND d.seq = $2

-- name: replays
-- Rides the primary key, backwards. A deleted queue has no name to look for; a condition on that in the WHERE would lead the planner to
-- the index of names.
SELECT r.*, q.name FROM replay_history r
LEFT JOIN LATERAL (SELECT CASE WHEN q.deleted_at IS NULL THEN q.name END AS name FROM queue q WHERE q.id = r.queue_id LIMIT 1) q ON true
WHERE r.dead_queue = $1 AND r.dead_seq < $2 AND ($3::text IS NULL OR q.name = $3)
ORDER BY r.dead_queue DESC, r.dead_seq DESC LIMIT $4

-- name: lock_log
SELECT lock_log($1)

-- name: take_groups
-- functions/locks.sql
SELECT take_groups($1, $2)

-- name: withdraw
-- Messages that a group of this queue has not settled, and does not hold under a live lease, count as expired. In the common order of
-- groups (functions/locks.sql).
SELECT withdraw($1, g.id, $2, $3, $4)
FROM (SELECT x.id FROM consumer_group x WHERE x.queue_id = $1 ORDER BY x.queue_id, x.name) g

-- name: leave_gaps
-- No seq is given out twice, even when the newest messages are deleted; and nobody counts the letters.
UPDATE queue q SET floor_seq = greatest(q.floor_seq, ($2::bigint[])[cardinality($2::bigint[])]),
    gaps = q.gaps + (SELECT count(*) FROM unnest($2::bigint[]) k (seq) WHERE k.seq >= q.first_seq)
WHERE q.id = $1

-- name: delete
-- The order keeps the look-ups to the primary key: all indexes of dead_letter begin with the queue, and the others lead through
-- all of it. Letters are moved and deleted under the log's lock, which the caller holds, so their tids lead straight back to them.
WITH found AS MATERIALIZED (
    SELECT d.ctid FROM unnest($2::bigint[]) AS k (seq)
    CROSS JOIN LATERAL (SELECT d.ctid FROM dead_letter d WHERE d.queue_id = $1 AND d.seq = k.seq
                        ORDER BY d.queue_id, d.seq LIMIT 1) d
), gone AS (DELETE FROM dead_letter d USING found f WHERE d.ctid = f.ctid
), messages AS MATERIALIZED (
    SELECT m.ctid FROM unnest($2::bigint[]) AS k (seq)
    CROSS JOIN LATERAL (SELECT m.ctid FROM message m WHERE (m.queue_id, m.seq) BETWEEN ($1, k.seq) AND ($1, k.seq)
                        ORDER BY m.queue_id, m.seq LIMIT 1) m
)
DELETE FROM message m USING messages f WHERE m.ctid = f.ctid
