-- name: find
-- By the unique index on (tenant, name) of queues that are not deleted.
SELECT * FROM queue WHERE tenant = $1 AND name = $2 AND deleted_at IS NULL

-- name: list
-- Keyset paging over the same index.
SELECT * FROM queue
WHERE tenant = $1 AND name > $2 AND deleted_at IS NULL
  AND ($4::text IS NULL OR namespace = $4) AND ($5::text IS NULL OR task = $5)
ORDER BY tenant, name LIMIT $3

-- name: tenants
-- A loose scan over the same index: one look-up per tenant, however many queues each has.
WITH RECURSIVE step (tenant) AS (
    (SELECT tenant FROM queue WHERE deleted_at IS NULL AND tenant > $1 ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT q.tenant FROM queue q WHERE q.deleted_at IS NULL AND q.tenant > step.tenant ORDER BY q.tenant LIMIT 1)
    FROM step WHERE step.tenant IS NOT NULL
)
SELECT tenant FROM step WHERE tenant IS NOT NULL LIMIT $2

-- name: sqs_note
SELECT sqs_note FROM queue WHERE tenant = $1 AND name = $2 AND deleted_at IS NULL

-- name: keep_sqs_note
UPDATE queue SET sqs_note = $2 WHERE id = $1 AND sqs_note IS NOT DISTINCT FROM $3

-- name: lock_configuration
-- One change at a time of a tenant's queues and their settings.
SELECT pg_advisory_xact_lock(1936418161, hashtext($1))

-- name: try_configuration
SELECT pg_try_advisory_xact_lock(1936418161, hashtext($1))

-- name: read_groups
-- Before configuration and log, in the common order of locks (functions/locks.sql).
SELECT read_groups()

-- name: lock_log
SELECT lock_log($1)

-- name: take_groups
-- functions/locks.sql
SELECT take_groups($1, $2)

-- name: insert
INSERT INTO queue (tenant, name, holds_dead_letters, created_at, updated_at, {settings})
VALUES ($1, $2, $3, $4, $4, {settings from $5})
RETURNING *

-- name: update
UPDATE queue SET updated_at = $2, ({settings}) = ({settings from $3}) WHERE id = $1 RETURNING *

-- name: has_unarchived
-- Whether the log holds a message that no archive has reported as safe in its lake. By the primary key.
SELECT (SELECT 1 FROM message m
        WHERE m.queue_id = q.id AND m.seq > greatest(q.first_seq - 1, coalesce(archived_seq(q.id), 0))
        ORDER BY m.queue_id, m.seq LIMIT 1) IS NOT NULL
FROM queue q WHERE q.id = $1

-- name: begin_anew
UPDATE queue SET first_seq = last_seq(id, floor_seq) + 1, gaps = 0 WHERE id = $1

-- name: mark_deleted
UPDATE queue SET deleted_at = $2 WHERE id = $1

-- name: mark_dead_letters
UPDATE queue SET holds_dead_letters = true WHERE id = $1 AND NOT holds_dead_letters

-- name: user_of
-- A queue whose dead letters go here: one that names it, or the one whose default it is ($3: the name without ".dead").
SELECT name FROM queue
WHERE tenant = $1 AND deleted_at IS NULL
  AND (dead_letter_queue = $2 OR (name = $3 AND dead_letter_queue IS NULL AND NOT holds_dead_letters))
  AND name <> $2
LIMIT 1

-- name: has_unsettled
-- Whether any group has something left to do, or, without groups, whether there is anything in the log.
SELECT EXISTS (SELECT 1 FROM consumer_group g
               CROSS JOIN LATERAL (SELECT 1 FROM partition_lease l WHERE l.group_id::bigint = g.id
                                   ORDER BY l.group_id::bigint, l.ready_at LIMIT 1) l WHERE g.queue_id = q.id)
    OR EXISTS (SELECT 1 FROM set_lease s WHERE s.queue_id = q.id)
    OR EXISTS (SELECT 1 FROM consumer_group g WHERE g.queue_id = q.id AND g.scan_seq + g.gaps < last_seq(q.id, q.floor_seq))
    OR (NOT EXISTS (SELECT 1 FROM consumer_group g WHERE g.queue_id = q.id) AND last_seq(q.id, q.floor_seq) - q.gaps >= q.first_seq)
FROM queue q WHERE q.id = $1
