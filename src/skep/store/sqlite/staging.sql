-- Staged messages, all by the index on the key.

-- name: stage
-- A chunk that is sent again takes the place of the first.
INSERT OR REPLACE INTO staged_chunk (tenant, query, epoch, partition, attempt, number, messages, expires_at, queues, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: queues
SELECT DISTINCT q.value FROM staged_chunk AS s, json_each(s.queues) AS q WHERE s.tenant = ?1 AND s.query = ?2 AND s.epoch = ?3 ORDER BY 1

-- name: attempts
SELECT partition, attempt, sum(messages), count(*) FROM staged_chunk
WHERE tenant = ?1 AND query = ?2 AND epoch = ?3
GROUP BY partition, attempt
ORDER BY partition, attempt

-- name: chunks
-- In the order in which they were written.
SELECT rowid, messages FROM staged_chunk
WHERE tenant = ?1 AND query = ?2 AND epoch = ?3 AND partition = ?4 AND attempt = ?5
ORDER BY number

-- name: data
SELECT data FROM staged_chunk WHERE rowid = ?1

-- name: drop_epoch
DELETE FROM staged_chunk WHERE tenant = ?1 AND query = ?2 AND epoch = ?3

-- name: drop_attempt
DELETE FROM staged_chunk WHERE tenant = ?1 AND query = ?2 AND epoch = ?3 AND partition = ?4 AND attempt = ?5
