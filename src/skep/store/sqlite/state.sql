-- Queues and groups, as a session caches them.

-- name: queue_by_key
-- Unique index queue_name; the partial index wants its condition repeated.
SELECT id, tenant, name, {settings},
       holds_dead_letters, floor_seq, first_seq, scheduled_count, gaps, created_at, updated_at
FROM queue
WHERE tenant = ?1 AND name = ?2 AND deleted_at IS NULL

-- name: last_message
-- The right edge of the queue's range in the table's own b-tree: one seek, whatever the log's length.
SELECT position, created_at FROM message WHERE position BETWEEN ?1 AND ?2 ORDER BY position DESC LIMIT 1

-- name: groups_of_queue
-- Unique index (queue_id, name). A queue has few groups, and depth looks at all of them.
SELECT id, queue_id, name, start_seq, scan_seq, completed, dead, expired, skipped, retried, created_at, external, gaps, active_at, idle,
       archived_seq
FROM consumer_group
WHERE queue_id = ?1

-- name: insert_group
-- Messages that are gone from the log before a group starts do not count for it.
INSERT INTO consumer_group (queue_id, name, start_seq, scan_seq, created_at, external, skipped, gaps, active_at)
VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6, ?6, ?4)

-- name: messages_between
-- The table's own b-tree. Never for a push, pop or settlement.
SELECT count(*) FROM message WHERE position > ?1 AND position <= ?2

-- name: save_group
-- One write per group and call, whatever the call did: counters are summed in memory first.
UPDATE consumer_group
SET start_seq = ?2, scan_seq = ?3, completed = ?4, dead = ?5, expired = ?6, skipped = ?7, retried = ?8, gaps = ?9,
    active_at = ?10, idle = ?11, archived_seq = ?12
WHERE id = ?1

-- name: save_queue_state
UPDATE queue SET floor_seq = ?2, first_seq = ?3, scheduled_count = ?4, holds_dead_letters = ?5, gaps = ?6 WHERE id = ?1

-- name: add_history
-- Once per call for all the leases that it ended.
INSERT INTO lease_history (queue_id, group_name, partition, first_seq, last_seq, messages, completed, attempt,
                           leased_at, settled_at, outcome, token, answer)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_failure
-- A lease may outlive its message. Of one that was forgotten meanwhile nothing is noted. Index forgotten_seq.
INSERT INTO failed_attempt (queue_id, seq, group_name, attempt, leased_at, failed_at, outcome, error, consumer)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9
WHERE coalesce((SELECT last_seq FROM forgotten WHERE queue_id = ?1 AND first_seq <= ?2 ORDER BY first_seq DESC LIMIT 1), 0) < ?2

-- name: forget_failures
-- The oldest failures of a message with many attempts. Index failed_attempt_message.
DELETE FROM failed_attempt WHERE queue_id = ?1 AND seq = ?2 AND group_name = ?3 AND attempt <= ?4

-- name: any_operation
-- As a rule there is none, and then this is one look into an empty index.
SELECT 1 FROM operation WHERE processed_at IS NULL LIMIT 1
