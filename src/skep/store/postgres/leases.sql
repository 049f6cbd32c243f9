-- Rows of partition_lease that the careful way of settling writes back.

-- name: next_created
-- When the first unsettled message of each partition was created: of the open one, or of the next beyond what was delivered.
SELECT fresh.seq AS next_seq, CASE WHEN k.head IS NULL THEN fresh.created_at ELSE opened.created_at END AS created_at
FROM unnest($3::text[], $4::bigint[], $5::bigint[]) WITH ORDINALITY AS k (partition, delivered_seq, head, ord)
LEFT JOIN LATERAL (
    SELECT m.seq, m.created_at FROM message m
    WHERE k.head IS NULL AND m.partition = k.partition AND m.queue_id = $1 AND m.seq > k.delivered_seq
      AND (m.audience IS NULL OR m.audience = $2)
    ORDER BY m.partition, m.queue_id, m.seq LIMIT 1) fresh ON true
LEFT JOIN LATERAL (SELECT m.created_at FROM message m WHERE (m.queue_id, m.seq) BETWEEN ($1, k.head) AND ($1, k.head) ORDER BY m.queue_id, m.seq LIMIT 1) opened ON true
ORDER BY k.ord

-- name: delivered
-- A partition's messages from one to another, as far as they are still there; by the index on (partition, queue, seq).
SELECT m.seq FROM message m
WHERE m.partition = $3 AND m.queue_id = $1 AND m.seq >= $4 AND m.seq <= $5 AND (m.audience IS NULL OR m.audience = $2)
ORDER BY m.partition, m.queue_id, m.seq LIMIT $6

-- name: present
-- By the primary key, one look-up each.
SELECT k.seq FROM unnest($2::bigint[]) AS k (seq)
CROSS JOIN LATERAL (SELECT 1 FROM message m WHERE (m.queue_id, m.seq) BETWEEN ($1, k.seq) AND ($1, k.seq) ORDER BY m.queue_id, m.seq LIMIT 1) m

-- name: delete_leases
DELETE FROM partition_lease WHERE queue_id = $1 AND group_id = $2 AND partition = ANY ($3)

-- name: update_lease
UPDATE partition_lease SET pending = $4, open = $5, leased = $6, attempts = $7, token = $8, leased_at = $9, ready_at = $10,
    oldest_at = $11, last_error = $12, delivered_seq = $13
WHERE partition = $3 AND queue_id = $1 AND group_id = $2
