-- Changes that servers announce to each other.

-- name: note
-- One at a time, until commit: so positions rise in the order of commits, and a reader misses none. No lock is taken after this one, so
-- it cannot deadlock.
WITH lock AS MATERIALIZED (SELECT pg_advisory_xact_lock(1936418162, 0))
INSERT INTO system_event (kind, tenant, name, at) SELECT $1, $2, $3, $4 FROM lock

-- name: position
-- The newest change, with its time and transaction: they tell it from any other change that may get its number.
SELECT t.timeline, e.position, e.at || ' ' || e.xmin AS mark
FROM (SELECT timeline() AS timeline) t
LEFT JOIN LATERAL (SELECT e.position, e.at, e.xmin::text AS xmin FROM system_event e ORDER BY e.position DESC LIMIT 1) e ON true

-- name: read
-- From the change that was read last on, which must still be there; always at least one row, for the timeline.
SELECT t.timeline, e.position, e.at || ' ' || e.xmin AS mark, e.kind, e.tenant AS event_tenant, e.name AS event_name, q.*
FROM (SELECT timeline() AS timeline) t
LEFT JOIN LATERAL (SELECT e.position, e.at, e.xmin::text AS xmin, e.kind, e.tenant, e.name
                   FROM system_event e WHERE e.position >= $1 ORDER BY e.position LIMIT $2) e ON true
LEFT JOIN LATERAL (SELECT q.* FROM queue q WHERE q.tenant = e.tenant AND q.name = e.name AND q.deleted_at IS NULL LIMIT 1) q ON true
ORDER BY e.position
