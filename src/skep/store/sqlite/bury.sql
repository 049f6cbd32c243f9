-- Giving up on messages.

-- name: message_to_bury
SELECT id, partition, transaction_id, coalesce(trace_id, id), priority, content_type, headers, payload, created_at
FROM message
WHERE position = ?1

-- name: add_dead_letter
INSERT INTO dead_letter (position, source_queue_id, source_seq, source_queue, partition, group_name, reason, attempts,
                         created_at, failed_at, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: origin
SELECT source_queue, source_seq, partition, group_name, reason, error, attempts, failed_at FROM dead_letter WHERE position = ?1
