-- name: enqueue
-- functions/operations.sql
SELECT * FROM enqueue_operations($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: fifo
SELECT k.ord FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (tenant, name, ord)
CROSS JOIN LATERAL (SELECT q.ordering FROM queue q
                    WHERE q.tenant = k.tenant AND q.name = k.name AND q.deleted_at IS NULL LIMIT 1) q
WHERE q.ordering = 'fifo'

-- name: claim
-- functions/operations.sql
SELECT * FROM claim_operations($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: heads
-- The first live operation of each partition, from the next partition on: one look-up each, however many wait behind it.
WITH RECURSIVE head AS (
    (SELECT o.tenant, o.queue, o.lane, o.partition, o.position, o.ready_at, 1 AS number FROM operation o
     WHERE o.processed_at IS NULL AND (o.tenant, o.queue, o.lane, o.partition) > ($1::text, $2::text, $3::text, $4::text)
     ORDER BY o.tenant, o.queue, o.lane, o.partition, o.position LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.queue, n.lane, n.partition, n.position, n.ready_at, h.number + 1 FROM head h
    CROSS JOIN LATERAL (
        SELECT o.tenant, o.queue, o.lane, o.partition, o.position, o.ready_at FROM operation o
        WHERE o.processed_at IS NULL AND (o.tenant, o.queue, o.lane, o.partition) > (h.tenant, h.queue, h.lane, h.partition)
        ORDER BY o.tenant, o.queue, o.lane, o.partition, o.position LIMIT 1) n
    WHERE h.number < $5::integer
)
SELECT h.tenant, h.queue, h.lane, h.partition, h.position, h.ready_at FROM head h ORDER BY h.number

-- name: claim_heads
-- functions/operations.sql
SELECT * FROM claim_heads($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: lock_claimed
-- The fence: only operations that are still ours (an ended one has no token). One look-up each by the primary key, in the given order,
-- which is ascending, and before any other lock.
SELECT o.position, o.queue, o.tenant FROM unnest($1::bigint[]) AS k (position)
CROSS JOIN LATERAL (SELECT o.position, o.queue, o.tenant FROM operation o
                    WHERE o.position BETWEEN k.position AND k.position AND o.token = $2 ORDER BY o.position LIMIT 1 FOR UPDATE) o

-- name: before
-- functions/operations.sql
SELECT * FROM operations_before($1)

-- name: complete
UPDATE operation o SET status = 'completed', processed_at = $3, result = r.result, payload = NULL, token = NULL, error = NULL, code = NULL,
                       error_at = NULL, blocked_at = NULL
FROM unnest($1::bigint[], $2::bytea[]) AS r (position, result)
WHERE o.position = ANY (ARRAY[r.position])

-- name: retry
-- An operation that was not tried, or that the store could not take, does not lose a try ($5 is 1).
UPDATE operation o SET status = CASE WHEN coalesce(r.blocked_at, o.blocked_at) IS NULL THEN 'pending' ELSE 'blocked' END, token = NULL,
                       ready_at = r.retry_at, tries = o.tries - r.untried, error = coalesce(r.error, o.error),
                       code = coalesce(r.code, o.code), blocked_at = coalesce(r.blocked_at, o.blocked_at),
                       error_at = CASE WHEN r.error IS NULL THEN o.error_at ELSE $7::bigint END
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::integer[], $6::bigint[])
     AS r (position, retry_at, error, code, untried, blocked_at)
WHERE o.position = ANY (ARRAY[r.position])

-- name: fail
-- The payload is deleted when the messages are dead letters, and stays when they are nowhere else.
UPDATE operation o SET status = 'failed', processed_at = $2, error_at = $2, token = NULL, error = $3, code = $4, dead_letter_queue = $5,
                       payload = CASE WHEN $5::text IS NULL THEN o.payload END
WHERE o.position = $1

-- name: payload
SELECT o.payload, o.kind, o.tries FROM operation o WHERE o.position = $1

-- name: cancel
UPDATE operation o SET status = 'cancelled', processed_at = $3, payload = NULL
WHERE o.id = $1 AND o.tenant = $2 AND o.status IN ('pending', 'blocked')
RETURNING 1

-- name: lock_queue
-- Before the locks of configuration and log, as when an operation is performed.
SELECT count(*) FROM (
    SELECT 1 FROM operation o WHERE o.processed_at IS NULL AND o.tenant = $1 AND o.queue = $2
    ORDER BY o.tenant, o.queue, o.lane, o.partition, o.position FOR UPDATE) l

-- name: end_queue
UPDATE operation o SET status = 'failed', processed_at = $3, error_at = $3, token = NULL, error = $4, code = $5, payload = NULL
WHERE o.position = ANY (ARRAY(
    SELECT l.position FROM operation l WHERE l.processed_at IS NULL AND l.tenant = $1 AND l.queue = $2
    ORDER BY l.tenant, l.queue, l.lane, l.partition, l.position))

-- name: any_live
-- The order keeps it to the index of partitions: while there are none, the planner takes all indexes of live ones to be alike.
SELECT (SELECT true FROM operation o WHERE o.processed_at IS NULL AND o.tenant = $1 AND o.queue = $2
        ORDER BY o.tenant, o.queue, o.lane, o.partition, o.position LIMIT 1)

-- name: lock_table
-- functions/operations.sql
SELECT lock_operations()

-- name: find
SELECT * FROM operation o WHERE o.id = $1 AND o.tenant = $2

-- name: list
-- Newest first by the primary key. The walk is bounded; every row has its end, and there is a row even if none matches.
WITH walk AS MATERIALIZED (
    SELECT o.position, o.id, o.kind, o.tenant, o.queue, o.partition, o.priority, o.status, o.size_bytes, o.messages, o.created_at,
           o.started_at, o.processed_at, o.ready_at, o.blocked_at, o.error_at, o.worker, o.timeout_seconds, o.tries, o.max_retries, o.error, o.code,
           o.dead_letter_queue, NULL::bytea AS result
    FROM operation o WHERE o.position < $1 ORDER BY o.position DESC LIMIT $2
)
SELECT e.walked, e.walk_end, w.*
FROM (SELECT count(*) AS walked, min(v.position) AS walk_end FROM walk v) e
LEFT JOIN LATERAL (
    SELECT v.* FROM walk v
    WHERE v.tenant = $3 AND ($4::text IS NULL OR v.status = $4) AND ($5::text IS NULL OR v.kind = $5)
      AND ($6::text IS NULL OR v.queue = $6) AND ($7::text IS NULL OR v.partition = $7)
    ORDER BY v.position DESC LIMIT $8) w ON true

-- name: list_failed
-- The same along the index of those that failed or were cancelled, which are few among many.
WITH walk AS MATERIALIZED (
    SELECT o.position, o.id, o.kind, o.tenant, o.queue, o.partition, o.priority, o.status, o.size_bytes, o.messages, o.created_at,
           o.started_at, o.processed_at, o.ready_at, o.blocked_at, o.error_at, o.worker, o.timeout_seconds, o.tries, o.max_retries, o.error, o.code,
           o.dead_letter_queue, NULL::bytea AS result
    FROM operation o WHERE o.position < $1 AND o.status = $4 AND o.status IN ('failed', 'cancelled')
    ORDER BY o.status DESC, o.position DESC LIMIT $2
)
SELECT e.walked, e.walk_end, w.*
FROM (SELECT count(*) AS walked, min(v.position) AS walk_end FROM walk v) e
LEFT JOIN LATERAL (
    SELECT v.* FROM walk v
    WHERE v.tenant = $3 AND v.status = $4 AND ($5::text IS NULL OR v.kind = $5)
      AND ($6::text IS NULL OR v.queue = $6) AND ($7::text IS NULL OR v.partition = $7)
    ORDER BY v.position DESC LIMIT $8) w ON true

-- name: waiting
-- Bounded: along the index of live ones, which as a rule is empty.
SELECT w.kind, count(*) AS depth, min(w.created_at) AS oldest_at,
       count(*) FILTER (WHERE w.created_at + $2::bigint * (w.timeout_seconds * 1000000)::bigint <= $3::bigint) AS stuck,
       count(*) FILTER (WHERE w.blocked_at IS NOT NULL) AS blocked
FROM (SELECT o.kind, o.created_at, o.timeout_seconds, o.blocked_at FROM operation o
      WHERE o.processed_at IS NULL ORDER BY o.priority, o.position LIMIT $1) w
GROUP BY w.kind

-- name: figures
-- Bounded: the live ones, and the latest of the others.
SELECT w.kind, w.priority, w.status, count(*) AS count, min(w.created_at) AS oldest_at, max(w.created_at) AS newest_at,
       avg(w.processed_at - w.created_at)::double precision / 1000000 AS average_seconds
FROM (
    (SELECT o.kind, o.priority, o.status, o.created_at, o.processed_at FROM operation o
     WHERE o.processed_at IS NULL AND o.tenant = $1 ORDER BY o.tenant, o.queue, o.lane, o.partition, o.position LIMIT $2)
    UNION ALL
    (SELECT l.kind, l.priority, l.status, l.created_at, l.processed_at FROM (
        SELECT o.tenant, o.kind, o.priority, o.status, o.created_at, o.processed_at FROM operation o
        ORDER BY o.position DESC LIMIT $2) l
     WHERE l.tenant = $1 AND l.processed_at IS NOT NULL)) w
GROUP BY w.kind, w.priority, w.status
ORDER BY w.priority, w.kind, w.status

-- name: sweep_completed
WITH old AS (
    SELECT o.ctid FROM operation o WHERE o.status = 'completed' AND o.processed_at <= $1 ORDER BY o.processed_at LIMIT $2
    FOR UPDATE SKIP LOCKED
), gone AS (DELETE FROM operation o USING old WHERE o.ctid = old.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_ended
-- Of each status from its oldest on, up to the limit; they ended about in the order in which they came.
WITH first AS (
    SELECT o.place, o.processed_at FROM unnest(ARRAY['failed', 'cancelled']) AS k (status)
    CROSS JOIN LATERAL (SELECT o.ctid AS place, o.processed_at FROM operation o
                        WHERE o.status = k.status AND o.status IN ('failed', 'cancelled')
                        ORDER BY o.status, o.position LIMIT $2) o
), gone AS (DELETE FROM operation o USING first f WHERE o.ctid = f.place AND f.processed_at <= $1 RETURNING 1)
SELECT count(*) FROM gone
