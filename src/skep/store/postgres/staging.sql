-- Staged messages, all by the primary key.

-- name: stage
-- A chunk that is sent again takes the place of the first.
INSERT INTO staged_chunk (tenant, query, epoch, partition, attempt, number, messages, expires_at, queues, data)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (query, epoch, partition, attempt, number, tenant) DO UPDATE SET
    messages = excluded.messages, expires_at = excluded.expires_at, queues = excluded.queues, data = excluded.data

-- name: queues
SELECT DISTINCT unnest(s.queues) AS name FROM staged_chunk s WHERE s.query = $2 AND s.epoch = $3 AND s.tenant = $1 ORDER BY name

-- name: attempts
SELECT s.partition, s.attempt, sum(s.messages)::bigint AS messages, count(*) AS chunks
FROM staged_chunk s WHERE s.query = $2 AND s.epoch = $3 AND s.tenant = $1
GROUP BY s.partition, s.attempt ORDER BY s.partition, s.attempt

-- name: chunks
-- In the order in which they were written. Locked, so that nobody reaps or replaces one while they are published.
SELECT s.number, s.messages, s.queues FROM staged_chunk s
WHERE s.query = $2 AND s.epoch = $3 AND s.partition = $4 AND s.attempt = $5 AND s.tenant = $1
ORDER BY s.query, s.epoch, s.partition, s.attempt, s.number FOR UPDATE

-- name: data
SELECT s.data FROM staged_chunk s
WHERE s.query = $2 AND s.epoch = $3 AND s.partition = $4 AND s.attempt = $5 AND s.number = $6 AND s.tenant = $1

-- name: drop_epoch
WITH gone AS (DELETE FROM staged_chunk s WHERE s.query = $2 AND s.epoch = $3 AND s.tenant = $1 RETURNING 1)
SELECT count(*) FROM gone

-- name: drop_attempt
WITH gone AS (
    DELETE FROM staged_chunk s
    WHERE s.query = $2 AND s.epoch = $3 AND s.partition = $4 AND s.attempt = $5 AND s.tenant = $1 RETURNING 1
)
SELECT count(*) FROM gone
