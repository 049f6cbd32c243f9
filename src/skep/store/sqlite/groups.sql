-- Deleting groups, clearing queues, ending leases.

-- name: delete_group
DELETE FROM consumer_group WHERE id = ?1

-- name: delete_scheduled
-- Index scheduled_due.
DELETE FROM scheduled WHERE queue_id = ?1

-- name: end_lease
-- Primary key.
UPDATE partition_lease SET ready_at = ?3 WHERE group_id = ?1 AND partition = ?2 AND token IS NOT NULL AND ready_at > ?3

-- name: end_sets
-- Index set_lease_partition.
UPDATE set_lease SET ready_at = ?3 WHERE group_id = ?1 AND partition = ?2 AND token IS NOT NULL AND ready_at > ?3

-- name: release_lease
-- Primary key. The row gets a token that nobody has: it looks like any lease that ran out, and no holder can reach it.
UPDATE partition_lease SET ready_at = min(ready_at, ?4), token = randomblob(16) WHERE group_id = ?1 AND partition = ?2 AND token = ?3

-- name: release_sets
-- Index set_lease_token.
UPDATE set_lease SET ready_at = min(ready_at, ?4), token = randomblob(16) WHERE group_id = ?1 AND partition = ?2 AND token = ?3
