-- name: pop_ordered
-- functions/pop.sql
SELECT * FROM pop_ordered($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)

-- name: lock_ready
-- The rows a pop would look at first, without those that others have locked.
SELECT l.* FROM partition_lease l
WHERE l.queue_id = $1 AND l.group_id::bigint = $2 AND l.ready_at <= $3 AND ($5::text IS NULL OR l.partition = $5)
ORDER BY l.group_id::bigint, l.ready_at, l.partition || '' LIMIT $4
FOR UPDATE SKIP LOCKED

-- name: lock_doomed
-- Of the rows a pop would look at first, those that must be buried or expired (created up to $5, or the last of $6 attempts ran out).
-- Only these are locked: a pop skips locked rows, and would find nothing meanwhile.
SELECT l.* FROM partition_lease l
WHERE l.ctid = ANY (ARRAY(
    SELECT r.ctid FROM (
        SELECT f.ctid, f.oldest_at, f.token, f.attempts FROM partition_lease f
        WHERE f.queue_id = $1 AND f.group_id::bigint = $2 AND f.ready_at <= $3
        ORDER BY f.group_id::bigint, f.ready_at, f.partition || '' LIMIT $4) r
    WHERE is_doomed(r.oldest_at, $5, r.token, r.attempts, $6)))
ORDER BY l.ready_at, l.partition
FOR UPDATE SKIP LOCKED

-- name: lock_gone
-- Leases that ran out and hold a message that is gone. Never for a pop.
SELECT l.* FROM partition_lease l
WHERE l.queue_id = $1 AND l.group_id::bigint = $2 AND l.ready_at <= $3 AND l.token IS NOT NULL
  AND EXISTS (SELECT 1 FROM unnest(l.open) AS o (seq)
              WHERE (SELECT m.seq FROM message m WHERE (m.queue_id, m.seq) BETWEEN ($1, o.seq) AND ($1, o.seq) ORDER BY m.queue_id, m.seq LIMIT 1) IS NULL)
ORDER BY l.group_id::bigint, l.ready_at, l.partition || '' LIMIT $4
FOR UPDATE SKIP LOCKED

-- name: lock_gone_sets
SELECT s.* FROM set_lease s
WHERE s.queue_id = $1 AND s.group_id = $2 AND s.ready_at <= $3 AND s.token IS NOT NULL
  AND EXISTS (SELECT 1 FROM unnest(s.seqs) AS o (seq)
              WHERE (SELECT m.seq FROM message m WHERE (m.queue_id, m.seq) BETWEEN ($1, o.seq) AND ($1, o.seq) ORDER BY m.queue_id, m.seq LIMIT 1) IS NULL)
ORDER BY s.queue_id, s.group_id, s.priority DESC, s.ready_at, s.id + 0 LIMIT $4
FOR UPDATE SKIP LOCKED

-- name: following
-- The next messages of partitions beyond what was delivered of each, at most $5 of one.
SELECT k.partition, m.seq, m.created_at FROM unnest($3::text[], $4::bigint[]) AS k (partition, delivered_seq)
CROSS JOIN LATERAL (
    SELECT m.seq, m.created_at FROM message m
    WHERE m.partition = k.partition AND m.queue_id = $1 AND m.seq > k.delivered_seq AND (m.audience IS NULL OR m.audience = $2)
      AND m.seq <= (SELECT g.scan_seq FROM consumer_group g WHERE g.id = $2)
    ORDER BY m.partition, m.queue_id, m.seq LIMIT $5) m

-- name: enter
-- functions/locks.sql
SELECT (e.q).*, e.group_id, e.state FROM enter_group($1, $2, $3, $4, $5, $6) e

-- name: discover
SELECT discover($1, $2, $3, $4, $5)

-- name: first_sets
-- functions/discover.sql
SELECT f.sets, f.messages, f.is_alone FROM first_sets($1, $2, $3, $4, $5, $6) f

-- name: lock_sets_ready
-- Higher priority first, then the oldest. Rows in flight of the same priority are walked over: as many as there are consumers.
SELECT s.* FROM set_lease s
WHERE s.queue_id = $1 AND s.group_id = $2 AND s.ready_at <= $3 AND ($5::text IS NULL OR s.partition = $5)
ORDER BY s.queue_id, s.group_id, s.priority DESC, s.ready_at, s.id + 0 LIMIT $4
FOR UPDATE SKIP LOCKED

-- name: lock_doomed_sets
SELECT s.* FROM set_lease s
WHERE s.ctid = ANY (ARRAY(
    SELECT r.ctid FROM (
        SELECT f.ctid, f.oldest_at, f.token, f.attempts FROM set_lease f
        WHERE f.queue_id = $1 AND f.group_id = $2 AND f.ready_at <= $3
        ORDER BY f.queue_id, f.group_id, f.priority DESC, f.ready_at, f.id + 0 LIMIT $4) r
    WHERE is_doomed(r.oldest_at, $5, r.token, r.attempts, $6)))
ORDER BY s.id + 0
FOR UPDATE SKIP LOCKED

-- name: visible
-- The messages of a set that can be delivered now, oldest first, with the bytes of each and all before it: created up to $3, or beyond
-- $5, so far ahead that the clock must have been put back since. The length of a value that is stored apart is known without reading it.
SELECT v.seq, sum(v.size_bytes) OVER (ORDER BY v.seq) AS through FROM (
    SELECT m.seq, octet_length(m.payload) + coalesce(octet_length(m.headers), 0) AS size_bytes
    FROM unnest($2::bigint[]) AS k (seq)
    CROSS JOIN LATERAL (SELECT * FROM message m WHERE (m.queue_id, m.seq) BETWEEN ($1, k.seq) AND ($1, k.seq) ORDER BY m.queue_id, m.seq LIMIT 1) m
    WHERE m.created_at <= $3 OR m.created_at > $5
    ORDER BY m.seq LIMIT $4) v
ORDER BY v.seq

-- name: created
SELECT m.seq, m.created_at FROM unnest($2::bigint[]) AS k (seq)
CROSS JOIN LATERAL (SELECT * FROM message m WHERE (m.queue_id, m.seq) BETWEEN ($1, k.seq) AND ($1, k.seq) ORDER BY m.queue_id, m.seq LIMIT 1) m
ORDER BY m.seq

-- name: lease_set
-- Leases some messages of a set. The others become a free row with the same attempts, as old as its first message.
WITH rest AS (
    INSERT INTO set_lease (queue_id, group_id, partition, priority, seqs, attempts, ready_at, oldest_at, last_error)
    SELECT s.queue_id, s.group_id, s.partition, s.priority, $7, s.attempts, s.ready_at,
           coalesce((SELECT least(m.created_at, $4) FROM message m WHERE (m.queue_id, m.seq) BETWEEN (s.queue_id, ($7::bigint[])[1]) AND (s.queue_id, ($7::bigint[])[1]) ORDER BY m.queue_id, m.seq LIMIT 1), s.oldest_at),
           CASE WHEN s.token IS NULL THEN s.last_error ELSE coalesce(s.last_error, $6) END
    FROM set_lease s WHERE s.id = $1 AND $7::bigint[] <> '{}'
)
UPDATE set_lease s SET seqs = $2, token = $3, leased_at = $4, ready_at = $5, attempts = s.attempts + 1, consumer = $8,
    last_error = CASE WHEN s.token IS NULL THEN s.last_error ELSE coalesce(s.last_error, $6) END
WHERE s.id = $1

-- name: keep_set
UPDATE set_lease s SET seqs = $2, oldest_at = $3, leased_at = NULL,
    last_error = CASE WHEN s.token IS NULL THEN s.last_error ELSE coalesce(s.last_error, $4) END, token = NULL
WHERE s.id = $1

-- name: rest_set
UPDATE set_lease s SET seqs = $2, ready_at = $3 WHERE s.id = $1

-- name: delete_set
DELETE FROM set_lease WHERE id = $1

-- name: delete_sets
DELETE FROM set_lease WHERE id = ANY ($1)

-- name: messages
-- By the primary key, one look-up each.
SELECT m.* FROM unnest($2::bigint[]) AS k (seq)
CROSS JOIN LATERAL (SELECT * FROM message m WHERE (m.queue_id, m.seq) BETWEEN ($1, k.seq) AND ($1, k.seq) ORDER BY m.queue_id, m.seq LIMIT 1) m

-- name: has_undiscovered
SELECT g.scan_seq < last_seq(q.id, q.floor_seq) FROM consumer_group g CROSS JOIN LATERAL (SELECT * FROM queue q WHERE q.id = $1 LIMIT 1) q
WHERE g.id = $2 AND g.queue_id = $1

-- name: next_ready_set_of
-- Of one partition.
SELECT min(s.ready_at) FROM set_lease s WHERE s.queue_id = $1 AND s.group_id = $2 AND s.partition = $3

-- name: next_ready_set
-- From priority to priority, at the left edge of each in the index: the rows themselves may be many.
WITH RECURSIVE first AS (
    (SELECT s.priority, s.ready_at FROM set_lease s WHERE s.queue_id = $1 AND s.group_id = $2
     ORDER BY s.queue_id, s.group_id, s.priority DESC, s.ready_at LIMIT 1)
    UNION ALL
    SELECT n.priority, n.ready_at FROM first f CROSS JOIN LATERAL (
        SELECT s.priority, s.ready_at FROM set_lease s WHERE s.queue_id = $1 AND s.group_id = $2 AND s.priority < f.priority
        ORDER BY s.queue_id, s.group_id, s.priority DESC, s.ready_at LIMIT 1) n
)
SELECT min(f.ready_at) FROM first f
