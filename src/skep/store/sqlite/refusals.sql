-- Refused requests to webhooks: few rows, written together.

-- name: note
INSERT INTO hook_refusal (webhook, at, code, status, message, remote, excerpt, tenant, queue)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)

-- name: forget
-- Index hook_refusal_webhook, backwards: all but the newest.
DELETE FROM hook_refusal WHERE webhook = ?1 AND position <= (
    SELECT position FROM hook_refusal WHERE webhook = ?1 ORDER BY position DESC LIMIT 1 OFFSET ?2
)

-- name: list
-- The newest of each webhook, so that a flooded webhook hides no other. It reads the whole table, which has few rows.
SELECT webhook, at, code, status, message, remote, excerpt, tenant, queue
FROM (SELECT r.*, row_number() OVER (PARTITION BY r.webhook ORDER BY r.position DESC) AS place FROM hook_refusal r) r
WHERE r.place <= ?1 ORDER BY r.position DESC

-- name: list_of
-- Index hook_refusal_webhook, backwards.
SELECT webhook, at, code, status, message, remote, excerpt, tenant, queue FROM hook_refusal WHERE webhook = ?2
ORDER BY position DESC LIMIT ?1
