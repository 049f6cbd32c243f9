-- Receipts: what was done once, and what was answered.

-- name: take
-- Primary key of receipt. One that has run out and was not swept yet makes room; one that lives stays, and its row does not
-- change. ?1 is now, the braces are each row's parameters.
INSERT INTO receipt (tenant, scope, key, expires_at, answer) VALUES (?{}, ?{}, ?{}, ?{}, ?{})
ON CONFLICT (tenant, scope, key) DO UPDATE SET expires_at = excluded.expires_at, answer = excluded.answer
WHERE receipt.expires_at <= ?1

-- name: find
-- Primary key of receipt. One that has run out does not count, though it is still there.
SELECT answer, expires_at FROM receipt WHERE tenant = ?1 AND scope = ?2 AND key = ?3 AND expires_at > ?4

-- name: drop
DELETE FROM receipt WHERE tenant = ?1 AND scope = ?2 AND key = ?3
