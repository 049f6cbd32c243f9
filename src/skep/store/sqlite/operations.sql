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
-- Who is next, by priority, then age, each with the live one before it in its partition. Read as far as needed.
SELECT c.position, c.lane, c.messages, c.size_bytes, c.tries,
       (SELECT b.position FROM operation b
        WHERE b.processed_at IS NULL AND b.tenant = c.tenant AND b.queue = c.queue AND b.lane = c.lane
          AND b.partition = c.partition AND b.position < c.position
        ORDER BY b.position DESC LIMIT 1)
FROM operation c INDEXED BY operation_turn
WHERE c.processed_at IS NULL AND c.ready_at <= ?1
ORDER BY c.priority, c.position

-- name: claim
UPDATE operation SET status = 'processing', token = ?2, worker = ?3, started_at = ?4, tries = tries + 1,
                     ready_at = ?4 + CAST(timeout_seconds * 1000000 AS INTEGER)
WHERE position = ?1
RETURNING position, id, kind, queue, tenant, partition, payload, messages, tries, max_retries, timeout_seconds, created_at

-- name: release_claims
-- Nobody else has this file, so whoever had claimed these is gone.
UPDATE operation SET ready_at = 1 WHERE processed_at IS NULL AND status = 'processing'

-- name: claimed
-- The fence, and the live one before it in its partition.
SELECT o.queue, o.tenant, o.kind, o.tries, o.payload,
       (SELECT b.position FROM operation b
        WHERE b.processed_at IS NULL AND b.tenant = o.tenant AND b.queue = o.queue AND b.lane = o.lane
          AND b.partition = o.partition AND b.position < o.position
        ORDER BY b.position DESC LIMIT 1)
FROM operation o WHERE o.position = ?1 AND o.token = ?2 AND o.processed_at IS NULL

-- name: complete
UPDATE operation SET status = 'completed', processed_at = ?2, result = ?3, payload = NULL, token = NULL, error = NULL, code = NULL
WHERE position = ?1

-- name: retry
UPDATE operation SET status = 'pending', token = NULL, ready_at = ?2, error = coalesce(?3, error), code = coalesce(?4, code),
                     tries = tries - ?5
WHERE position = ?1

-- name: fail
-- The payload goes when the messages are among the dead letters, and stays when they are nowhere else.
UPDATE operation SET status = 'failed', processed_at = ?2, token = NULL, error = ?3, code = ?4, dead_letter_queue = ?5,
                     payload = CASE WHEN ?5 IS NULL THEN payload END
WHERE position = ?1

-- name: cancel
UPDATE operation SET status = 'cancelled', processed_at = ?3, payload = NULL
WHERE id = ?1 AND tenant = ?2 AND status = 'pending'

-- name: end_queue
UPDATE operation SET status = 'failed', processed_at = ?3, token = NULL, error = ?4, code = ?5, payload = NULL
WHERE processed_at IS NULL AND tenant = ?1 AND queue = ?2

-- name: find
SELECT position, id, kind, queue, tenant, partition, priority, status, size_bytes, messages, created_at, started_at, processed_at,
       ready_at, worker, timeout_seconds, tries, max_retries, error, code, dead_letter_queue, result
FROM operation WHERE id = ?1 AND tenant = ?2

-- name: list
-- Newest first by the primary key; read as far as the page and the bound on the walk go.
SELECT position, id, kind, queue, tenant, partition, priority, status, size_bytes, messages, created_at, started_at, processed_at,
       ready_at, worker, timeout_seconds, tries, max_retries, error, code, dead_letter_queue, NULL
FROM operation WHERE position < ?1 ORDER BY position DESC LIMIT ?2

-- name: list_status
-- The same along the index of one status.
SELECT position, id, kind, queue, tenant, partition, priority, status, size_bytes, messages, created_at, started_at, processed_at,
       ready_at, worker, timeout_seconds, tries, max_retries, error, code, dead_letter_queue, NULL
FROM operation WHERE position < ?1 AND status = ?3 ORDER BY position DESC LIMIT ?2

-- name: waiting
-- Bounded: along the index of live ones, which as a rule is empty.
SELECT kind, count(*), min(created_at), sum(created_at + ?2 * CAST(timeout_seconds * 1000000 AS INTEGER) <= ?3)
FROM (SELECT kind, created_at, timeout_seconds FROM operation
      WHERE processed_at IS NULL ORDER BY priority, position LIMIT ?1)
GROUP BY kind

-- name: next_ready
SELECT ready_at FROM operation WHERE processed_at IS NULL AND ready_at > 0 AND ready_at > ?1 ORDER BY ready_at LIMIT 1

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
