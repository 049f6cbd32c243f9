-- Runs of pipelines: few, and the oldest are deleted.

-- name: put
-- The time of its first report stays.
INSERT INTO pipeline_run (tenant, id, started_at, updated_at, document) VALUES ($1, $2, $3, $3, $4)
ON CONFLICT (tenant, id) DO UPDATE SET updated_at = excluded.updated_at, document = excluded.document
RETURNING started_at

-- name: forget
-- The index by age, backwards, and by their tids to those beyond the last that is kept.
WITH old AS (
    SELECT r.ctid FROM pipeline_run r WHERE r.tenant = $1
    ORDER BY r.tenant DESC, r.started_at DESC, r.id DESC OFFSET $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM pipeline_run r USING old o WHERE r.ctid = o.ctid

-- name: list
SELECT r.id, r.started_at, r.updated_at, r.document, r.tenant FROM pipeline_run r WHERE r.tenant = $1
ORDER BY r.tenant DESC, r.started_at DESC, r.id DESC LIMIT $2

-- name: find
SELECT r.id, r.started_at, r.updated_at, r.document, r.tenant FROM pipeline_run r WHERE r.tenant = $1 AND r.id = $2
