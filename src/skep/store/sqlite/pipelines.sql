-- Runs of pipelines: few, and the oldest make room.

-- name: put
-- A run keeps the time of its first report.
INSERT INTO pipeline_run (tenant, id, started_at, updated_at, document) VALUES (?1, ?2, ?3, ?3, ?4)
ON CONFLICT (tenant, id) DO UPDATE SET updated_at = excluded.updated_at, document = excluded.document
RETURNING started_at

-- name: forget
-- Index pipeline_run_age.
DELETE FROM pipeline_run WHERE rowid IN (
    SELECT rowid FROM pipeline_run WHERE tenant = ?1 ORDER BY started_at DESC, id DESC LIMIT -1 OFFSET ?2)

-- name: list
-- Index pipeline_run_age, backwards.
SELECT id, started_at, updated_at, document, tenant FROM pipeline_run WHERE tenant = ?1 ORDER BY started_at DESC, id DESC LIMIT ?2

-- name: find
SELECT id, started_at, updated_at, document, tenant FROM pipeline_run WHERE tenant = ?1 AND id = ?2
