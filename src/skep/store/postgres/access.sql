-- Keys, sessions and the audit log: few rows, seldom written.

-- name: put_key
INSERT INTO access_key (id, digest, created_at, document, expires_at, revoked_at, forget_at)
SELECT $1, $2, $3, $4, $5, $6, $7 WHERE (SELECT count(*) FROM access_key) < $8

-- name: set_closed
INSERT INTO access_state (only_one, closed, changed_at) VALUES (1, $1, $2)
ON CONFLICT (only_one) DO UPDATE SET closed = excluded.closed, changed_at = excluded.changed_at

-- name: is_closed
SELECT closed FROM access_state

-- name: get_key
SELECT id, digest, created_at, document, expires_at, revoked_at, forget_at FROM access_key WHERE id = $1

-- name: list_keys
SELECT id, digest, created_at, document, expires_at, revoked_at, forget_at FROM access_key WHERE id > $1 ORDER BY id LIMIT $2

-- name: revoke_key
UPDATE access_key SET revoked_at = $2, forget_at = $3 WHERE id = $1 AND revoked_at IS NULL

-- name: note
INSERT INTO audit (at, expires_at, tenant, actor, action, queues, outcome) VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING position

-- name: forget
-- The entries beyond the limit, whatever their age: mostly one.
WITH old AS (SELECT a.ctid FROM audit a WHERE a.position <= $1 ORDER BY a.position LIMIT 100 FOR UPDATE SKIP LOCKED)
DELETE FROM audit a USING old o WHERE a.ctid = o.ctid

-- name: finish
UPDATE audit SET tenant = $2, queues = $3, outcome = $4, detail = $5
WHERE ctid = (SELECT a.ctid FROM audit a WHERE a.position BETWEEN $1 AND $1 ORDER BY a.position LIMIT 1)

-- name: list
SELECT position, at, actor, action, tenant, queues, outcome, expires_at, detail FROM audit WHERE position < $1 ORDER BY position DESC LIMIT $2

-- name: list_of
-- Index audit_by_tenant, backwards.
SELECT position, at, actor, action, tenant, queues, outcome, expires_at, detail FROM audit WHERE tenant = $3 AND position < $1
ORDER BY position DESC LIMIT $2

-- name: put_session
INSERT INTO session (id, owner, created_at, used_at, expires_at, document) VALUES ($1, $2, $3, $4, $5, $6)

-- name: end_oldest_sessions
-- Index session_by_owner. The sessions beyond the owner's limit, longest unused first: mostly none.
WITH old AS (SELECT s.ctid FROM session s WHERE s.owner = $1 ORDER BY s.used_at DESC LIMIT 100 OFFSET $2 FOR UPDATE SKIP LOCKED)
DELETE FROM session s USING old o WHERE s.ctid = o.ctid

-- name: get_session
SELECT id, owner, created_at, used_at, expires_at, document FROM session WHERE id = $1

-- name: use_session
UPDATE session SET used_at = greatest(used_at, $2) WHERE id = $1

-- name: end_session
DELETE FROM session WHERE id = $1

-- name: end_sessions_of
-- Index session_by_owner.
DELETE FROM session WHERE owner = $1
