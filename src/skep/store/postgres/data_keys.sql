-- Keys of queues' payloads. There are few, and they are all read at once.

-- name: put
INSERT INTO data_key (id, tenant, queue, master, wrapped, created_at) VALUES ($1, $2, $3, $4, $5, $6)

-- name: list
SELECT id, tenant, queue, master, wrapped, created_at FROM data_key ORDER BY created_at, id

-- name: rewrap
-- Only what is still wrapped as whoever unwrapped it saw it.
UPDATE data_key SET master = $2, wrapped = $3 WHERE id = $1 AND master = $4 RETURNING 1

-- name: shred
DELETE FROM data_key WHERE tenant = $1 AND ($2::text IS NULL OR queue = $2) RETURNING 1
