-- Receipts: what was done once, and what was answered.

-- name: take
-- Index receipt_name. One that has run out and was not swept yet makes room; one that lives stays, and its row does not
-- change. ?1 is now, the braces are each row's parameters.
INSERT INTO receipt (name, tenant, scope, key, expires_at, answer) VALUES (?{}, ?{}, ?{}, ?{}, ?{}, ?{})
ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at, answer = excluded.answer
WHERE receipt.expires_at <= ?1

-- name: find
-- Index receipt_name. One that has run out does not count, though it is still there.
SELECT answer, expires_at FROM receipt WHERE name = ?1 AND expires_at > ?2

-- name: drop
DELETE FROM receipt WHERE name = ?1

-- name: rewrite
-- Index receipt_name. The message turned out to be there already, so the answer names that one.
UPDATE receipt SET answer = ?2 WHERE name = ?1
