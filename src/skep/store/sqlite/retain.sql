-- Retention: deleting from the head of the log.

-- name: doomed
-- From the left edge of the queue's range in the table's own b-tree.
SELECT position, partition, audience FROM message
WHERE position BETWEEN ?1 AND ?2
ORDER BY position
LIMIT ?3

-- name: delete_range
DELETE FROM message WHERE position BETWEEN ?1 AND ?2

-- name: delete_dead_range
-- A dead-letter queue may have retention of its own: the letters go with their messages.
DELETE FROM dead_letter WHERE position BETWEEN ?1 AND ?2

-- name: settled_by
-- Index retention_history_queue: the seq up to which all groups had settled by that time.
SELECT settled_seq FROM retention_history
WHERE queue_id = ?1 AND at <= ?2
ORDER BY at DESC, position DESC
LIMIT 1

-- name: latest_pass
SELECT settled_seq FROM retention_history WHERE queue_id = ?1 ORDER BY at DESC, position DESC LIMIT 1

-- name: next_settled
SELECT at FROM retention_history WHERE queue_id = ?1 AND at > ?2 AND settled_seq >= ?3 ORDER BY at LIMIT 1

-- name: add_pass
INSERT INTO retention_history (queue_id, at, deleted, first_seq, settled_seq) VALUES (?, ?, ?, ?, ?)
