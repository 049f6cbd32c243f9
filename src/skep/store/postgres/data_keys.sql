-- Keys of queues' payloads. There are few, and they are all read at once.

-- name: put
INSERT INTO data_key (id, tenant, queue, master, wrapped, created_at) VALUES ($1, $2, $3, $4, $5, $6)

-- name: list
SELECT id, tenant, queue, master, wrapped, created_at FROM data_key ORDER BY created_at, id

-- name: forget_uses
DELETE FROM data_key_use WHERE id = ANY ($1::uuid[])

-- name: reserve
INSERT INTO data_key_use AS u (id, sealed) SELECT k.id, $2::bigint FROM data_key k WHERE k.id = $1
ON CONFLICT (id) DO UPDATE SET sealed = u.sealed + excluded.sealed RETURNING u.sealed
