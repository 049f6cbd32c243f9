-- name: waits
SELECT 1 FROM operation
WHERE processed_at IS NULL AND tenant = ?1 AND queue = ?2 AND lane = 'push' AND partition = ?3 LIMIT 1

-- name: live_of_queue
SELECT 1 FROM operation WHERE processed_at IS NULL AND tenant = ?1 AND queue = ?2 LIMIT 1

-- name: enqueue
INSERT INTO operation (id, kind, lane, tenant, queue, partition, priority, size_bytes, messages, created_at, timeout_seconds,
                       max_retries, payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)

-- name: candidates
-- The next operations by priority, then age, each with the live one before it in its partition. They are read as far as needed.
SELECT c.position, c.lane, c.messages, c.size_bytes, c.tries, c.ready_at,
       (SELECT b.position FROM operation b
        WHERE b.processed_at IS NULL AND b.tenant = c.tenant AND b.queue = c.queue AND b.lane = c.lane
          AND b.partition = c.partition AND b.position < c.position
        ORDER BY b.position DESC LIMIT 1)
FROM operation c INDEXED BY operation_turn
WHERE c.processed_at IS NULL
ORDER BY c.priority, c.position

-- name: heads
-- The first live operation of each partition, from the next partition on: a few look-ups each, however many wait behind it. SQLite
-- would walk an index for a comparison of several columns at once, so each column has a look-up of its own.
WITH RECURSIVE head (tenant, queue, lane, partition, position, ready_at) AS (
    SELECT ?1, ?2, ?3, ?4, 0, 0
    UNION ALL
    SELECT o.tenant, o.queue, o.lane, o.partition, o.position, o.ready_at FROM head h
    JOIN operation o ON o.position = coalesce(
        (SELECT n.position FROM operation n INDEXED BY operation_partition
         WHERE n.processed_at IS NULL AND n.tenant = h.tenant AND n.queue = h.queue AND n.lane = h.lane AND n.partition > h.partition
         ORDER BY n.partition, n.position LIMIT 1),
        (SELECT n.position FROM operation n INDEXED BY operation_partition
         WHERE n.processed_at IS NULL AND n.tenant = h.tenant AND n.queue = h.queue AND n.lane > h.lane
         ORDER BY n.lane, n.partition, n.position LIMIT 1),
        (SELECT n.position FROM operation n INDEXED BY operation_partition
         WHERE n.processed_at IS NULL AND n.tenant = h.tenant AND n.queue > h.queue
         ORDER BY n.queue, n.lane, n.partition, n.position LIMIT 1),
        (SELECT n.position FROM operation n INDEXED BY operation_partition
         WHERE n.processed_at IS NULL AND n.tenant > h.tenant
         ORDER BY n.tenant, n.queue, n.lane, n.partition, n.position LIMIT 1))
)
SELECT tenant, queue, lane, partition, position, ready_at FROM head LIMIT ?5 OFFSET 1

-- name: partition_candidates
-- The first operation of a partition and those behind it, with the columns of `candidates`.
SELECT c.position, c.lane, c.messages, c.size_bytes, c.tries, c.ready_at,
       (SELECT b.position FROM operation b
        WHERE b.processed_at IS NULL AND b.tenant = c.tenant AND b.queue = c.queue AND b.lane = c.lane
          AND b.partition = c.partition AND b.position < c.position
        ORDER BY b.position DESC LIMIT 1)
FROM operation h JOIN operation c ON c.processed_at IS NULL AND c.tenant = h.tenant AND c.queue = h.queue AND c.lane = h.lane
                                     AND c.partition = h.partition AND c.position >= h.position
WHERE h.position = ?1
ORDER BY c.position LIMIT ?2

-- name: claim
-- A claim that comes after a lost one lasts twice as long, up to a bound.
UPDATE operation SET status = 'processing', token = ?2, worker = ?3, started_at = ?4, tries = tries + 1,
                     ready_at = ?4 + CAST(timeout_seconds * 1000000 AS INTEGER) * (1 << min(tries, ?5)),
                     code = CASE WHEN status = 'processing' THEN 'INTERNAL' ELSE code END,
                     error = CASE WHEN status = 'processing' THEN ?6 ELSE error END,
                     error_at = CASE WHEN status = 'processing' THEN ?4 ELSE error_at END,
                     blocked_at = CASE WHEN status = 'processing' AND (code IS NOT 'INTERNAL' OR blocked_at IS NULL)
                                       THEN started_at ELSE blocked_at END
WHERE position = ?1
RETURNING position, id, kind, queue, tenant, partition, payload, messages, tries, max_retries, timeout_seconds, created_at,
          blocked_at, code, error

-- name: release_claims
-- No other process has this file, so the workers of these claims are gone. A claim that was lost before keeps its time: its operation may
-- be what ends the server.
UPDATE operation SET ready_at = 1 WHERE processed_at IS NULL AND status = 'processing' AND tries <= 1

-- name: claimed
-- The operation, if the claim still holds (fencing), and the live one before it in its partition.
SELECT o.queue, o.tenant, o.kind, o.tries, o.payload,
       (SELECT b.position FROM operation b
        WHERE b.processed_at IS NULL AND b.tenant = o.tenant AND b.queue = o.queue AND b.lane = o.lane
          AND b.partition = o.partition AND b.position < o.position
        ORDER BY b.position DESC LIMIT 1)
FROM operation o WHERE o.position = ?1 AND o.token = ?2 AND o.processed_at IS NULL

-- name: complete
UPDATE operation SET status = 'completed', processed_at = ?2, result = ?3, payload = NULL, token = NULL, error = NULL, code = NULL,
                     error_at = NULL, blocked_at = NULL
WHERE position = ?1

-- name: retry
-- ?5 is 1 for an operation that was not tried, or that the store could not take: it does not lose a try.
UPDATE operation SET status = CASE WHEN coalesce(?6, blocked_at) IS NULL THEN 'pending' ELSE 'blocked' END, token = NULL, ready_at = ?2,
                     error = coalesce(?3, error), code = coalesce(?4, code), tries = tries - ?5, blocked_at = coalesce(?6, blocked_at),
                     error_at = CASE WHEN ?3 IS NULL THEN error_at ELSE ?7 END
WHERE position = ?1

-- name: fail
-- The payload is deleted when the messages were buried, and stays when it is their only copy.
UPDATE operation SET status = 'failed', processed_at = ?2, error_at = ?2, token = NULL, error = ?3, code = ?4, dead_letter_queue = ?5,
                     payload = CASE WHEN ?5 IS NULL THEN payload END
WHERE position = ?1

-- name: cancel
UPDATE operation SET status = 'cancelled', processed_at = ?3, payload = NULL
WHERE id = ?1 AND tenant = ?2 AND status IN ('pending', 'blocked')

-- name: end_queue
UPDATE operation SET status = 'failed', processed_at = ?3, error_at = ?3, token = NULL, error = ?4, code = ?5, payload = NULL
WHERE processed_at IS NULL AND tenant = ?1 AND queue = ?2

-- name: find
SELECT position, id, kind, queue, tenant, partition, priority, status, size_bytes, messages, created_at, started_at, processed_at,
       ready_at, worker, timeout_seconds, tries, max_retries, error, code, dead_letter_queue, result, blocked_at, error_at
FROM operation WHERE id = ?1 AND tenant = ?2

-- name: list
-- Newest first by the primary key; read as far as the page and the bound on the walk go.
SELECT position, id, kind, queue, tenant, partition, priority, status, size_bytes, messages, created_at, started_at, processed_at,
       ready_at, worker, timeout_seconds, tries, max_retries, error, code, dead_letter_queue, NULL, blocked_at, error_at
FROM operation WHERE position < ?1 ORDER BY position DESC LIMIT ?2

-- name: list_status
-- The same along the index of one status.
SELECT position, id, kind, queue, tenant, partition, priority, status, size_bytes, messages, created_at, started_at, processed_at,
       ready_at, worker, timeout_seconds, tries, max_retries, error, code, dead_letter_queue, NULL, blocked_at, error_at
FROM operation WHERE position < ?1 AND status = ?3 ORDER BY position DESC LIMIT ?2

-- name: waiting
-- Bounded: along the index of live ones, which as a rule is empty.
SELECT kind, count(*), min(created_at), sum(created_at + ?2 * CAST(timeout_seconds * 1000000 AS INTEGER) <= ?3), count(blocked_at)
FROM (SELECT kind, created_at, timeout_seconds, blocked_at FROM operation
      WHERE processed_at IS NULL ORDER BY priority, position LIMIT ?1)
GROUP BY kind

-- name: figures
-- Bounded: the live ones, and the latest of the others.
SELECT kind, priority, status, count(*), min(created_at), max(created_at), avg(processed_at - created_at) / 1000000.0
FROM (
    SELECT * FROM (
        SELECT kind, priority, status, created_at, processed_at FROM operation
        WHERE processed_at IS NULL AND tenant = ?1 LIMIT ?2)
    UNION ALL
    SELECT kind, priority, status, created_at, processed_at FROM (
        SELECT tenant, kind, priority, status, created_at, processed_at FROM operation ORDER BY position DESC LIMIT ?2)
    WHERE tenant = ?1 AND processed_at IS NOT NULL)
GROUP BY kind, priority, status
ORDER BY priority, kind, status

-- name: sweep_completed
-- From the oldest on, up to the limit: they ended about in the order in which they came.
DELETE FROM operation WHERE position IN (
    SELECT position FROM (
        SELECT position, processed_at FROM operation INDEXED BY operation_status WHERE status = 'completed' ORDER BY position LIMIT ?2)
    WHERE processed_at <= ?1)

-- name: sweep_ended
DELETE FROM operation WHERE position IN (
    SELECT position FROM (
        SELECT position, processed_at FROM operation INDEXED BY operation_status WHERE status = 'failed' ORDER BY position LIMIT ?2)
    WHERE processed_at <= ?1
    UNION ALL
    SELECT position FROM (
        SELECT position, processed_at FROM operation INDEXED BY operation_status WHERE status = 'cancelled' ORDER BY position LIMIT ?2)
    WHERE processed_at <= ?1)
