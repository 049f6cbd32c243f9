-- Rows of set_lease: messages of an unordered queue with the same attempts and the same lease.

-- name: insert_set
INSERT INTO set_lease (group_id, partition, priority, head_seq, seqs, attempts, leased_at, ready_at, oldest_at, expires_at, last_error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: next_priority
-- The next lower priority in index set_lease_ready: the priorities in use are visited one by one, so
-- that rows in flight, which are not ready, are never walked over.
SELECT priority FROM set_lease WHERE group_id = ?1 AND priority < ?2 ORDER BY priority DESC LIMIT 1

-- name: ready_sets
-- Index set_lease_ready, whose entries end with the row's id.
SELECT partition, seqs, attempts, token, leased_at, last_error, consumer, id, group_id, priority, head_seq, ready_at, oldest_at, expires_at
FROM set_lease INDEXED BY set_lease_ready
WHERE group_id = ?1 AND priority = ?2 AND ready_at <= ?3
ORDER BY ready_at, id

-- name: sets_of_partition
-- Index set_lease_partition; a sort of one partition's rows.
SELECT partition, seqs, attempts, token, leased_at, last_error, consumer, id, group_id, priority, head_seq, ready_at, oldest_at, expires_at
FROM set_lease INDEXED BY set_lease_partition
WHERE group_id = ?1 AND partition = ?2
ORDER BY priority DESC, ready_at, id

-- name: sets_of_token
-- Partial index set_lease_token.
SELECT partition, seqs, attempts, token, leased_at, last_error, consumer, id, group_id, priority, head_seq, ready_at, oldest_at, expires_at
FROM set_lease INDEXED BY set_lease_token
WHERE group_id = ?1 AND token = ?2 AND token IS NOT NULL
ORDER BY id

-- name: sets_of_group
SELECT partition, seqs, attempts, token, leased_at, last_error, consumer, id, group_id, priority, head_seq, ready_at, oldest_at, expires_at
FROM set_lease INDEXED BY set_lease_ready
WHERE group_id = ?1

-- name: run_out_sets
-- Partial index set_lease_leased: never the backlog.
SELECT partition, seqs, attempts, token, leased_at, last_error, consumer, id, group_id, priority, head_seq, ready_at, oldest_at, expires_at
FROM set_lease INDEXED BY set_lease_leased
WHERE group_id = ?1 AND token IS NOT NULL AND ready_at <= ?2 AND attempts >= ?3
ORDER BY ready_at
LIMIT ?4

-- name: expiring_sets
-- Partial index set_lease_expiry.
SELECT partition, seqs, attempts, token, leased_at, last_error, consumer, id, group_id, priority, head_seq, ready_at, oldest_at, expires_at
FROM set_lease INDEXED BY set_lease_expiry
WHERE group_id = ?1 AND expires_at IS NOT NULL AND expires_at <= ?2 AND (token IS NULL OR ready_at <= ?2)
ORDER BY expires_at
LIMIT ?3

-- name: next_set_deadline
SELECT ready_at FROM set_lease INDEXED BY set_lease_leased
WHERE group_id = ?1 AND token IS NOT NULL AND ready_at > ?2
ORDER BY ready_at LIMIT 1

-- name: next_set_expiry
SELECT expires_at FROM set_lease INDEXED BY set_lease_expiry
WHERE group_id = ?1 AND expires_at IS NOT NULL AND expires_at > ?2
ORDER BY expires_at LIMIT 1

-- name: first_ready_of_priority
-- Left edge of one priority in index set_lease_ready.
SELECT ready_at FROM set_lease INDEXED BY set_lease_ready
WHERE group_id = ?1 AND priority = ?2
ORDER BY ready_at LIMIT 1

-- name: save_set
UPDATE set_lease
SET head_seq = ?2, seqs = ?3, attempts = ?4, token = ?5, leased_at = ?6, ready_at = ?7, oldest_at = ?8, expires_at = ?9,
    last_error = ?10, consumer = ?11
WHERE id = ?1

-- name: renew_sets
-- A lease that had run out begins now. leased_at is never after the renewal; `shift_sets` relies on that. ?5 is now. With ?6 only the
-- row of this message, which stands alone in it.
UPDATE set_lease SET ready_at = ?4, leased_at = CASE WHEN ready_at <= ?5 THEN ?5 ELSE min(leased_at, ?5) END
WHERE group_id = ?1 AND token = ?2 AND token IS NOT NULL AND partition = ?3 AND (?6 IS NULL OR head_seq = ?6)

-- name: delete_set
DELETE FROM set_lease WHERE id = ?1

-- name: delete_sets_of_group
DELETE FROM set_lease WHERE group_id = ?1

-- name: least_set_head
-- Once over the group's rows: for retention and figures, never for pops. Without rows it is null.
SELECT min(head_seq) FROM set_lease WHERE group_id = ?1
