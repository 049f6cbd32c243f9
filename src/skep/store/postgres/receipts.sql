-- name: take
-- functions/records.sql
SELECT * FROM take_receipts($1, $2, $3, $4, $5, $6)

-- name: push_plain_once
-- functions/records.sql
SELECT * FROM push_plain_once($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)

-- name: find
-- One look-up per key by the primary key, without expired receipts that are still there.
SELECT k.ord, r.answer, r.expires_at
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (key, scope, tenant, ord)
CROSS JOIN LATERAL (SELECT r.answer, r.expires_at FROM receipt r
                    WHERE r.key = k.key AND r.scope = k.scope AND r.tenant = k.tenant LIMIT 1) r
WHERE r.expires_at > $4

-- name: rewrite
-- The first of several batches with this receipt was refused, so that of the next one counts; or the message was a duplicate. We hold
-- the row.
UPDATE receipt r SET answer = $4, expires_at = $5 WHERE r.key = $1 AND r.scope = $2 AND r.tenant = $3

-- name: drop
-- The calls of these receipts were not done after all. One look-up each by the primary key; we hold the rows, so their tids stay.
WITH found AS MATERIALIZED (
    SELECT r.ctid FROM unnest($1::text[], $2::text[], $3::text[]) AS k (key, scope, tenant)
    CROSS JOIN LATERAL (SELECT r.ctid FROM receipt r
                        WHERE r.key = k.key AND r.scope = k.scope AND r.tenant = k.tenant LIMIT 1) r
)
DELETE FROM receipt r USING found f WHERE r.ctid = f.ctid
