-- Browsing messages. A walk reads the columns that filters need; payloads are read only for the shown messages.

-- name: walk_up
-- The table's own b-tree.
SELECT position, partition, id, transaction_id, trace_id, audience FROM message
WHERE position BETWEEN ?1 AND ?2
ORDER BY position
LIMIT ?3

-- name: walk_down
SELECT position, partition, id, transaction_id, trace_id, audience FROM message
WHERE position BETWEEN ?1 AND ?2
ORDER BY position DESC
LIMIT ?3

-- name: walk_partition_up
-- Index message_partition, in the order of position.
SELECT position, partition, id, transaction_id, trace_id, audience FROM message
WHERE queue_id = ?4 AND partition = ?5 AND position BETWEEN ?1 AND ?2
ORDER BY position
LIMIT ?3

-- name: walk_partition_down
SELECT position, partition, id, transaction_id, trace_id, audience FROM message
WHERE queue_id = ?4 AND partition = ?5 AND position BETWEEN ?1 AND ?2
ORDER BY position DESC
LIMIT ?3

-- name: walk_transaction_id_up
-- Index message_transaction_id, in the order of position.
SELECT position, partition, id, transaction_id, trace_id, audience FROM message
WHERE queue_id = ?4 AND transaction_id = ?5 AND position BETWEEN ?1 AND ?2
ORDER BY position
LIMIT ?3

-- name: walk_transaction_id_down
SELECT position, partition, id, transaction_id, trace_id, audience FROM message
WHERE queue_id = ?4 AND transaction_id = ?5 AND position BETWEEN ?1 AND ?2
ORDER BY position DESC
LIMIT ?3

-- name: show
-- ?2 is how many bytes of the payload are wanted; null is all of it.
SELECT position, partition, id, transaction_id, coalesce(trace_id, id), headers, content_type,
       CASE WHEN ?2 IS NULL THEN payload ELSE coalesce(substr(payload, 1, ?2), x'') END, length(payload), priority, created_at
FROM message
WHERE position = ?1

-- name: is_dead
-- Index dead_letter_source. Expired messages do not count as dead.
SELECT 1 FROM dead_letter WHERE source_queue_id = ?1 AND source_seq = ?2 AND group_name = ?3 AND reason <> 'expired' LIMIT 1
