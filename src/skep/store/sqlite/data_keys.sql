-- Keys of queues' payloads. There are few, and they are all read at once.

-- name: put
INSERT INTO data_key (id, tenant, queue, master, wrapped, created_at) VALUES (?, ?, ?, ?, ?, ?)

-- name: list
SELECT id, tenant, queue, master, wrapped, created_at FROM data_key ORDER BY created_at, id

-- name: empty
-- All rows: SQLite then frees every page of the table, and secure_delete writes zeros over each. Row by row, what was moved from page to
-- page when the table grew would stay where it was.
DELETE FROM data_key

-- name: forget_uses
DELETE FROM data_key_use WHERE id = ?

-- name: reserve
INSERT INTO data_key_use (id, sealed) SELECT id, ?2 FROM data_key WHERE id = ?1
ON CONFLICT (id) DO UPDATE SET sealed = sealed + excluded.sealed RETURNING sealed
