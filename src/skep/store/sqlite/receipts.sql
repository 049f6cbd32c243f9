-- Receipts: the calls that happen once, and their answers.

-- name: take
-- Index receipt_name. An expired receipt that was not swept yet makes room; a live one stays unchanged. ?1 is now, the braces are each
-- row's parameters.
INSERT INTO receipt (name, tenant, scope, key, expires_at, answer) VALUES (?{}, ?{}, ?{}, ?{}, ?{}, ?{})
ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at, answer = excluded.answer
WHERE receipt.expires_at <= ?1

-- name: find
-- Index receipt_name. An expired receipt does not count, even before it is swept.
SELECT answer, expires_at FROM receipt WHERE name = ?1 AND expires_at > ?2

-- name: drop
DELETE FROM receipt WHERE name = ?1

-- name: rewrite
-- Index receipt_name. The message is a duplicate, so the answer names the first one.
UPDATE receipt SET answer = ?2 WHERE name = ?1
