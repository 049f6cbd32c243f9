-- Burials.

-- name: message_to_bury
SELECT id, partition, transaction_id, coalesce(trace_id, id), priority, content_type, headers, payload, created_at
FROM message
WHERE position = ?1

-- name: to_bury
-- Which of the messages at ?1, a JSON list of positions, are still there: one look-up each by the table's own b-tree.
SELECT m.position, m.partition, m.created_at
FROM json_each(?1) AS k CROSS JOIN message AS m ON m.position = k.value

-- name: copy
-- The messages at ?1, in its order, from position ?2 on; ?3 is their new queue, ?4 when they enter it, ?5 the one partition of a fifo queue.
INSERT INTO message (position, queue_id, created_at, priority, id, partition, transaction_id, trace_id, content_type, headers, payload)
SELECT ?2 + k.key, ?3, ?4, m.priority, m.id, coalesce(?5, m.partition), m.transaction_id, coalesce(m.trace_id, m.id),
       m.content_type, m.headers, m.payload
FROM json_each(?1) AS k CROSS JOIN message AS m ON m.position = k.value

-- name: add_dead_letter
INSERT INTO dead_letter (position, source_queue_id, source_seq, source_queue, partition, group_name, reason, attempts,
                         created_at, failed_at, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: origin
SELECT source_queue, source_seq, partition, group_name, reason, error, attempts, failed_at FROM dead_letter WHERE position = ?1
