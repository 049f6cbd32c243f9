-- Messages of a trace, or with a transaction id.

-- name: traced
-- Partial index message_trace.
SELECT m.created_at, q.name, m.position
FROM message AS m
JOIN queue AS q ON q.id = m.queue_id
WHERE m.trace_id = ?1 AND m.trace_id IS NOT NULL AND q.tenant = ?2 AND q.deleted_at IS NULL
ORDER BY m.position
LIMIT ?3

-- name: with_transaction_id
-- Index queue_name, then message_transaction_id: one look for each queue.
SELECT m.position, q.name
FROM queue AS q INDEXED BY queue_name
CROSS JOIN message AS m INDEXED BY message_transaction_id
WHERE q.tenant = ?2 AND q.deleted_at IS NULL AND m.queue_id = q.id AND m.transaction_id = ?1 AND m.transaction_id IS NOT NULL
LIMIT ?3

-- name: queues_of_tenant
-- Index queue_name.
SELECT name FROM queue WHERE tenant = ?1 AND deleted_at IS NULL

-- name: by_id
-- A message without a trace id is its own trace: looked for only in the seconds around its id's millisecond.
SELECT position, created_at FROM message WHERE position BETWEEN ?1 AND ?2 AND id = ?3 AND trace_id IS NULL LIMIT 1
