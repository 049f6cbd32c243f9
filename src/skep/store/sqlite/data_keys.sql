-- Data keys. There are few, and all are read at once.

-- name: put
INSERT INTO data_key (id, tenant, queue, master, wrapped, created_at) VALUES (?, ?, ?, ?, ?, ?)

-- name: list
SELECT id, tenant, queue, master, wrapped, created_at FROM data_key ORDER BY created_at, id

-- name: empty
-- All rows: SQLite then frees every page of the table, and secure_delete overwrites each with zeros. A delete of single rows would
-- leave the old copies of rows that moved between pages when the table grew.
DELETE FROM data_key

-- name: forget_uses
DELETE FROM data_key_use WHERE id = ?

-- name: reserve
INSERT INTO data_key_use (id, sealed) SELECT id, ?2 FROM data_key WHERE id = ?1
ON CONFLICT (id) DO UPDATE SET sealed = sealed + excluded.sealed RETURNING sealed
