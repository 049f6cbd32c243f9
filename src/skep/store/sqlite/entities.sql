-- Entities: their states, and the events that led to them.

-- name: version
-- Index entity_key.
SELECT number, version FROM entity WHERE tenant = ?1 AND type = ?2 AND id = ?3

-- name: insert
INSERT INTO entity (tenant, type, id, version, created_at, updated_at, state) VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)

-- name: update
UPDATE entity SET version = ?2, updated_at = ?3, state = ?4 WHERE number = ?1

-- name: add_event
INSERT INTO entity_event (entity, number, at, cause, name, data) VALUES (?, ?, ?, ?, ?, ?)

-- name: find
-- Index entity_key.
SELECT version, state, created_at, updated_at FROM entity WHERE tenant = ?1 AND type = ?2 AND id = ?3

-- name: list
-- Index entity_key, in its order.
SELECT id, version, state, created_at, updated_at FROM entity
WHERE tenant = ?1 AND type = ?2 AND id > ?3 ORDER BY id LIMIT ?4

-- name: types
-- From one type to the next by index entity_key, whatever the number of entities.
WITH RECURSIVE kind (type) AS (
    SELECT min(type) FROM entity WHERE tenant = ?1
    UNION ALL
    SELECT (SELECT min(e.type) FROM entity AS e WHERE e.tenant = ?1 AND e.type > kind.type) FROM kind WHERE kind.type IS NOT NULL
)
SELECT type FROM kind WHERE type IS NOT NULL

-- name: events
-- Primary key of entity_event.
SELECT v.number, v.name, v.data, v.at, v.cause
FROM entity AS e JOIN entity_event AS v ON v.entity = e.number
WHERE e.tenant = ?1 AND e.type = ?2 AND e.id = ?3 AND v.number > ?4
ORDER BY v.number LIMIT ?5
