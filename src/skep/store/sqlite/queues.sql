-- Making, changing and removing queues.

-- name: insert_queue
INSERT INTO queue (tenant, name, holds_dead_letters, created_at, updated_at, {settings})
VALUES (?1, ?2, ?3, ?4, ?4, {settings from ?5})

-- name: update_settings
UPDATE queue SET updated_at = ?2, ({settings}) = ({settings from ?3}) WHERE id = ?1

-- name: named_by_other
-- Partial index queue_buries_in: another queue that names this one
SELECT name FROM queue
WHERE tenant = ?1 AND dead_letter_queue = ?2 AND dead_letter_queue IS NOT NULL AND deleted_at IS NULL AND name <> ?2
LIMIT 1

-- name: list_queues
-- Unique index queue_name gives the order; the filters only drop rows.
SELECT id, tenant, name, {settings},
       holds_dead_letters, floor_seq, first_seq, scheduled_count, gaps, created_at, updated_at
FROM queue
WHERE tenant = ?1 AND name > ?2 AND deleted_at IS NULL
  AND (?4 IS NULL OR namespace = ?4) AND (?5 IS NULL OR task = ?5)
ORDER BY name
LIMIT ?3

-- name: sqs_note
-- Unique index queue_name.
SELECT sqs_note FROM queue WHERE tenant = ?1 AND name = ?2 AND deleted_at IS NULL

-- name: keep_sqs_note
UPDATE queue SET sqs_note = ?2 WHERE id = ?1 AND sqs_note IS ?3

-- name: next_tenant
-- Index queue_name: one seek, whatever the number of a tenant's queues.
SELECT tenant FROM queue INDEXED BY queue_name WHERE tenant > ?1 AND deleted_at IS NULL ORDER BY tenant LIMIT 1

-- name: mark_deleted
-- The name is free at once; `sweep` removes the data.
UPDATE queue SET deleted_at = ?2 WHERE id = ?1

-- name: set_partition_expiry
-- When max_wait or max_age changes: once over the group's rows, by its primary key.
UPDATE partition_lease SET expires_at = oldest_at + ?2 WHERE group_id = ?1

-- name: set_set_expiry
UPDATE set_lease SET expires_at = oldest_at + ?2 WHERE group_id = ?1
