-- Marks of log chunks that are cached in memory.

-- name: mark
-- By the unique index on the names of queues that are not deleted, then by the primary key. A cached chunk has a message for
-- every seq. Its messages are counted only if some were deleted amid the log.
SELECT q.id, m.id, m.created_at, m.transaction FROM queue q
CROSS JOIN LATERAL (SELECT m.id, m.created_at, m.xmin::text AS transaction FROM message m
                    WHERE (m.queue_id, m.seq) BETWEEN (q.id, $4) AND (q.id, $4) ORDER BY m.queue_id, m.seq LIMIT 1) m
WHERE q.tenant = $1 AND q.name = $2 AND q.deleted_at IS NULL AND q.first_seq <= $3 AND NOT q.holds_dead_letters
  AND (q.gaps = 0 OR $4::bigint - $3::bigint + 1 =
       (SELECT count(*) FROM (SELECT 1 FROM message m WHERE (m.queue_id, m.seq) BETWEEN (q.id, $3) AND (q.id, $4)
                              ORDER BY m.queue_id, m.seq) c))
