-- The answers of settlements, in the newest rows of the lease history.

-- name: newest
SELECT position FROM lease_history ORDER BY position DESC LIMIT 1

-- name: ended_at
-- The table's own b-tree: the first row from a position on.
SELECT position, settled_at FROM lease_history WHERE position >= ?1 ORDER BY position LIMIT 1

-- name: remembered
-- The table's own b-tree, from a position on to its end. The braces are the tokens.
SELECT token, partition, first_seq, last_seq, completed, answer FROM lease_history
WHERE position >= ?1 AND settled_at > ?2 AND queue_id = ?3 AND group_name = ?4 AND token IN ({})

-- name: forget
-- A deleted group loses its kept answers: a new group with its name is another group.
UPDATE lease_history SET token = NULL WHERE position >= ?1 AND queue_id = ?2 AND group_name = ?3 AND token IS NOT NULL
