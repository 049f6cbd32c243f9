-- Positions in the log.

-- name: at_or_after
-- The first message at or after a position, which may be a gap: the table's own b-tree.
SELECT position, created_at FROM message WHERE position BETWEEN ?1 AND ?2 ORDER BY position LIMIT 1

-- name: beyond
-- The first position from ?1 to ?2 up to which payloads have more than ?3 bytes together, and whether it has them alone.
SELECT position, through = own
FROM (SELECT position, octet_length(payload) AS own,
             sum(octet_length(payload)) OVER (ORDER BY position ROWS UNBOUNDED PRECEDING) AS through
      FROM message WHERE position BETWEEN ?1 AND ?2)
WHERE through > ?3
LIMIT 1
