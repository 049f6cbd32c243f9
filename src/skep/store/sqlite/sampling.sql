-- Samples of queues and groups. Only changed counters get a new row.

-- name: queues_after
-- The table's own b-tree.
SELECT id, tenant, name FROM queue WHERE id > ?1 AND deleted_at IS NULL ORDER BY id LIMIT ?2

-- name: newest_sample
-- Index sample_group, backwards.
SELECT at, pushed, completed, retried, dead FROM sample WHERE queue_id = ?1 AND group_id = ?2 ORDER BY at DESC LIMIT 1

-- name: add_sample
INSERT INTO sample (queue_id, group_id, at, pushed, completed, retried, dead) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: thin_samples
-- Index sample_group. Rows before the newest row up to ?3; a bounded number, as an older Skep kept two days of rows.
DELETE FROM sample WHERE position IN (
    SELECT position FROM sample WHERE queue_id = ?1 AND group_id = ?2 AND at < (
        SELECT at FROM sample WHERE queue_id = ?1 AND group_id = ?2 AND at <= ?3 ORDER BY at DESC LIMIT 1)
    ORDER BY at LIMIT 32)

-- name: newest_past
-- Index past_key, backwards.
SELECT at, pushed, completed, retried, dead, depth FROM past WHERE tenant = ?1 AND queue_id = ?2 ORDER BY minute DESC LIMIT 1

-- name: note_figures
-- The row of a minute has the last figures of that minute.
INSERT INTO past (tenant, queue_id, minute, at, pushed, completed, retried, dead, depth) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, queue_id, minute) DO UPDATE SET at = excluded.at, pushed = excluded.pushed, completed = excluded.completed,
    retried = excluded.retried, dead = excluded.dead, depth = excluded.depth
