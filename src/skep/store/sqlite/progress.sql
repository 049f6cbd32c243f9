-- Moving groups by hand, and clearing queues.

-- name: delete_group
DELETE FROM consumer_group WHERE id = ?1

-- name: delete_scheduled
-- Index scheduled_due.
DELETE FROM scheduled WHERE queue_id = ?1
