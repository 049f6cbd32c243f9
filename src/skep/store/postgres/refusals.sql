-- Refused requests to webhooks: few rows, written together.

-- name: note
INSERT INTO hook_refusal (webhook, at, code, status, message, remote, excerpt, tenant, queue)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])

-- name: forget
-- Index hook_refusal_by_webhook, backwards: all but the newest. Rows that another server is deleting are left to it.
WITH old AS (
    SELECT r.ctid FROM hook_refusal r WHERE r.webhook = $1 ORDER BY r.webhook DESC, r.position DESC OFFSET $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM hook_refusal r USING old o WHERE r.ctid = o.ctid

-- name: list
-- The newest of each webhook, so that a flooded one does not hide the others. The whole table: it has few rows.
SELECT webhook, at, code, status, message, remote, excerpt, tenant, queue
FROM (SELECT r.*, row_number() OVER (PARTITION BY r.webhook ORDER BY r.position DESC) AS place FROM hook_refusal r) r
WHERE r.place <= $1 ORDER BY r.position DESC

-- name: list_of
-- Index hook_refusal_by_webhook, backwards.
SELECT webhook, at, code, status, message, remote, excerpt, tenant, queue FROM hook_refusal r WHERE r.webhook = $2
ORDER BY r.webhook DESC, r.position DESC LIMIT $1
