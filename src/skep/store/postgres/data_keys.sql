-- Keys of queues' payloads. There are few, and they are all read at once.

-- name: put
INSERT INTO data_key (id, tenant, queue, master, wrapped, created_at) VALUES ($1, $2, $3, $4, $5, $6)

-- name: list
SELECT id, tenant, queue, master, wrapped, created_at FROM data_key ORDER BY created_at, id

-- name: lock
-- Whoever wants to read or add a key waits. A dump has the table for as long as it takes, and the keys with it.
LOCK TABLE data_key IN ACCESS EXCLUSIVE MODE

-- name: empty
-- Not DELETE: it leaves its rows in the file, and so does VACUUM, which takes them off the list and does not write over them. TRUNCATE
-- gives the table a new file, and the old one is cut to nothing at commit. The rows that stay were read under the lock, and come back.
TRUNCATE data_key

-- name: forget_uses
DELETE FROM data_key_use u WHERE NOT EXISTS (SELECT 1 FROM data_key k WHERE k.id = u.id)

-- name: reserve
INSERT INTO data_key_use AS u (id, sealed) SELECT k.id, $2::bigint FROM data_key k WHERE k.id = $1
ON CONFLICT (id) DO UPDATE SET sealed = u.sealed + excluded.sealed RETURNING u.sealed
