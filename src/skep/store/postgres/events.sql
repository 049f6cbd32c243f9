-- Changes that servers tell each other.

-- name: note
-- One at a time, until commit: so positions rise in the order of commits, and whoever has read one has missed none before it.
-- Nothing is locked after this, so nobody waits for someone who waits for us.
WITH lock AS MATERIALIZED (SELECT pg_advisory_xact_lock(1936418162, 0))
INSERT INTO system_event (kind, tenant, name, at) SELECT $1, $2, $3, $4 FROM lock

-- name: position
SELECT coalesce(max(position), 0) FROM system_event

-- name: oldest
SELECT min(position) FROM system_event

-- name: read
SELECT e.position, e.kind, e.tenant AS event_tenant, e.name AS event_name, q.*
FROM (SELECT * FROM system_event e WHERE e.position > $1 ORDER BY e.position LIMIT $2) e
LEFT JOIN LATERAL (SELECT q.* FROM queue q WHERE q.tenant = e.tenant AND q.name = e.name AND q.deleted_at IS NULL LIMIT 1) q ON true
ORDER BY e.position
