-- Finding places in the log.

-- name: at_or_after
-- The first message at or after a position, which may be a gap: the table's own b-tree.
SELECT position, created_at FROM message WHERE position BETWEEN ?1 AND ?2 ORDER BY position LIMIT 1
