-- name: lock
-- functions/records.sql
SELECT * FROM lock_entities($1, $2, $3, $4, $5)

-- name: write
-- States and events in one round trip. One look-up per entity by the primary key, where a join may walk the table; the rows are
-- locked, so their tids lead straight back to them. $1 to $5 entities with their new versions and states, $6 now, $7 to $11 events.
WITH found AS MATERIALIZED (
    SELECT e.ctid, k.version, k.state
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bytea[]) AS k (tenant, type, id, version, state)
    CROSS JOIN LATERAL (SELECT e.ctid FROM entity e
                        WHERE e.tenant = k.tenant AND e.type = k.type AND e.id = k.id LIMIT 1) e
), changed AS (
    UPDATE entity e SET version = f.version, state = f.state, updated_at = $6 FROM found f WHERE e.ctid = f.ctid
)
INSERT INTO entity_event (entity, number, at, cause, name, data)
SELECT n.entity, n.number, $6, n.cause, n.name, n.data
FROM unnest($7::bigint[], $8::bigint[], $9::uuid[], $10::text[], $11::bytea[]) AS n (entity, number, cause, name, data)

-- name: drop
-- Rows that were made for new entities whose effects do not hold; found as in `write`.
WITH found AS MATERIALIZED (
    SELECT e.ctid FROM unnest($1::text[], $2::text[], $3::text[]) AS k (tenant, type, id)
    CROSS JOIN LATERAL (SELECT e.ctid, e.version FROM entity e
                        WHERE e.tenant = k.tenant AND e.type = k.type AND e.id = k.id LIMIT 1) e
    WHERE e.version = 0
)
DELETE FROM entity e USING found f WHERE e.ctid = f.ctid

-- name: find
-- One look-up per key by the primary key. A state beyond $4 bytes is null: it is counted and not read.
SELECT f.ord, f.version, CASE WHEN f.upto - octet_length(f.state) < $4::bigint THEN f.state END AS state, f.created_at, f.updated_at
FROM (SELECT k.ord, e.*, sum(octet_length(e.state)) OVER (ORDER BY k.ord ROWS UNBOUNDED PRECEDING) AS upto
      FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (tenant, type, id, ord)
      CROSS JOIN LATERAL (SELECT e.version, e.state, e.created_at, e.updated_at FROM entity e
                          WHERE e.tenant = k.tenant AND e.type = k.type AND e.id = k.id LIMIT 1) e) f

-- name: list
-- The primary key, in its order, up to the state that reaches $5 bytes: later states are counted and not read.
SELECT p.id, p.version, p.state, p.created_at, p.updated_at
FROM (SELECT e.*, sum(octet_length(e.state)) OVER (ORDER BY e.id ROWS UNBOUNDED PRECEDING) AS upto
      FROM (SELECT e.id, e.version, e.state, e.created_at, e.updated_at FROM entity e
            WHERE e.tenant = $1 AND e.type = $2 AND e.id > $3 ORDER BY e.tenant, e.type, e.id LIMIT $4) e) p
WHERE p.upto - octet_length(p.state) < $5::bigint ORDER BY p.id

-- name: types
-- From one type to the next by the primary key, whatever the number of entities.
WITH RECURSIVE kind (type) AS (
    (SELECT e.type FROM entity e WHERE e.tenant = $1 ORDER BY e.tenant, e.type LIMIT 1)
    UNION ALL
    SELECT (SELECT e.type FROM entity e WHERE e.tenant = $1 AND e.type > k.type ORDER BY e.tenant, e.type LIMIT 1)
    FROM kind k WHERE k.type IS NOT NULL
)
SELECT k.type FROM kind k WHERE k.type IS NOT NULL

-- name: events
-- Two primary keys; up to the one that reaches $6 bytes, as in `list`.
SELECT p.number, p.name, p.data, p.at, p.cause
FROM (SELECT v.*, sum(octet_length(v.data)) OVER (ORDER BY v.number ROWS UNBOUNDED PRECEDING) AS upto
      FROM (SELECT v.number, v.name, v.data, v.at, v.cause
            FROM (SELECT e.number FROM entity e WHERE e.tenant = $1 AND e.type = $2 AND e.id = $3 LIMIT 1) e
            CROSS JOIN LATERAL (SELECT v.* FROM entity_event v WHERE v.entity = e.number AND v.number > $4
                                ORDER BY v.entity, v.number LIMIT $5) v) v) p
WHERE p.upto - octet_length(p.data) < $6::bigint ORDER BY p.number
