-- name: lock_revision
-- A change of apps locks this row.
SELECT revision FROM app_revision FOR UPDATE

-- name: revision
SELECT revision FROM app_revision

-- name: set_revision
UPDATE app_revision SET revision = $1

-- name: put
INSERT INTO app (name, document, revision, applied_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET document = excluded.document, revision = excluded.revision, applied_at = excluded.applied_at

-- name: delete
DELETE FROM app WHERE name = $1 RETURNING name

-- name: list
SELECT name, document, revision, applied_at FROM app ORDER BY name

-- name: lock_endpoint
SELECT * FROM endpoint e WHERE e.tenant = $1 AND e.url = $2 FOR UPDATE

-- name: add_endpoint
-- The report of the first failure makes the row, and then locks it as all others do.
INSERT INTO endpoint (tenant, url, failures, updated_at) VALUES ($1, $2, 0, $3) ON CONFLICT (tenant, url) DO NOTHING

-- name: save_endpoint
UPDATE endpoint e SET failures = $3, open_until = $4, stopped_at = $5, reason = $6, updated_at = $7
WHERE e.tenant = $1 AND e.url = $2

-- name: list_endpoints
-- The primary key, in its order.
SELECT * FROM endpoint e WHERE e.tenant = $1 AND e.url > $2 ORDER BY e.tenant, e.url LIMIT $3

-- name: delete_endpoint
DELETE FROM endpoint e WHERE e.tenant = $1 AND e.url = $2 RETURNING url
