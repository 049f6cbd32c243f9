-- Applied specs, and endpoints that messages are delivered to.

-- name: revision
SELECT revision FROM app_revision

-- name: next_revision
UPDATE app_revision SET revision = revision + 1 RETURNING revision

-- name: put
INSERT INTO app (name, revision, applied_at, document) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, applied_at = excluded.applied_at, document = excluded.document

-- name: delete
DELETE FROM app WHERE name = ?1

-- name: list
SELECT name, document, revision, applied_at FROM app ORDER BY name

-- name: find_endpoint
SELECT url, tenant, failures, open_until, stopped_at, reason, updated_at FROM endpoint WHERE tenant = ?1 AND url = ?2

-- name: save_endpoint
INSERT OR REPLACE INTO endpoint (url, tenant, failures, open_until, stopped_at, reason, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: list_endpoints
-- Primary key of endpoint, in its order.
SELECT url, tenant, failures, open_until, stopped_at, reason, updated_at FROM endpoint
WHERE tenant = ?1 AND url > ?2 ORDER BY url LIMIT ?3

-- name: delete_endpoint
DELETE FROM endpoint WHERE tenant = ?1 AND url = ?2
