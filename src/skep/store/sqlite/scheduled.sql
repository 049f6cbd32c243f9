-- Scheduled messages, before they are due. A walk reads the columns that filters need; payloads are read only for the shown messages.
-- Places are (due_at, arrival): every index ends with the rowid, which is the arrival.

-- name: walk
-- Index scheduled_due.
SELECT queue_id, due_at, arrival, id, partition, transaction_id, trace_id, length(payload) + coalesce(length(headers), 0)
FROM scheduled INDEXED BY scheduled_due
WHERE queue_id = ?1 AND (due_at, arrival) > (?2, ?3) AND due_at < ?4
ORDER BY due_at, arrival
LIMIT ?5

-- name: with_id
-- Index scheduled_id.
SELECT queue_id, due_at, arrival, id, partition, transaction_id, trace_id, length(payload) + coalesce(length(headers), 0)
FROM scheduled INDEXED BY scheduled_id
WHERE id = ?1

-- name: with_transaction_id
-- Partial index scheduled_transaction_id.
SELECT queue_id, due_at, arrival, id, partition, transaction_id, trace_id, length(payload) + coalesce(length(headers), 0)
FROM scheduled INDEXED BY scheduled_transaction_id
WHERE transaction_id = ?1 AND transaction_id IS NOT NULL AND (due_at, arrival) > (?2, ?3) AND due_at < ?4
ORDER BY due_at, arrival
LIMIT ?5

-- name: with_trace_id
-- Partial index scheduled_trace: messages that were pushed with a trace id. The others are found by their id.
SELECT queue_id, due_at, arrival, id, partition, transaction_id, trace_id, length(payload) + coalesce(length(headers), 0)
FROM scheduled INDEXED BY scheduled_trace
WHERE trace_id = ?1 AND trace_id <> id AND (due_at, arrival) > (?2, ?3) AND due_at < ?4
ORDER BY due_at, arrival
LIMIT ?5

-- name: queue_name
SELECT name FROM queue WHERE id = ?1 AND tenant = ?2 AND deleted_at IS NULL

-- name: queues_with_schedule
-- Index queue_name.
SELECT id, name FROM queue WHERE tenant = ?1 AND deleted_at IS NULL AND scheduled_count > 0

-- name: show
-- ?2 is how many bytes of the payload are wanted; null is all of it.
SELECT due_at, arrival, id, partition, transaction_id, trace_id, headers, content_type,
       CASE WHEN ?2 IS NULL THEN payload ELSE coalesce(substr(payload, 1, ?2), x'') END, length(payload), priority
FROM scheduled
WHERE arrival = ?1

-- name: mark
-- The greatest arrival that was ever given out.
SELECT seq FROM sqlite_sequence WHERE name = 'scheduled'

-- name: whole
SELECT arrival, due_at, priority, id, partition, transaction_id, trace_id, content_type, headers, payload
FROM scheduled
WHERE arrival = ?1

-- name: arrive_anew
INSERT INTO scheduled (queue_id, due_at, priority, id, partition, transaction_id, trace_id, content_type, headers, payload)
SELECT queue_id, ?2, priority, id, partition, transaction_id, trace_id, content_type, headers, payload
FROM scheduled WHERE arrival = ?1

-- name: delete
DELETE FROM scheduled WHERE arrival = ?1

-- name: give_key_its_seq
-- Primary key of dedup. Only the key of this message: the key may have expired and been used again.
UPDATE dedup SET seq = ?5 WHERE queue_id = ?1 AND transaction_id = ?2 AND partition IN (?3, '') AND message_id = ?4
