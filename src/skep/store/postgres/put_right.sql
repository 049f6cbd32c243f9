-- Corrections of times after the clock was put back. $1 is now. None of this runs otherwise.

-- name: read
-- One server at a time notes the time, so that deadlines are moved once.
SELECT latest_at, put_back_at FROM clock FOR UPDATE

-- name: note
UPDATE clock SET latest_at = $1 WHERE latest_at < $1

-- name: put_back
UPDATE clock SET latest_at = $1, put_back_at = $1

-- name: all_right
UPDATE clock SET put_back_at = NULL

-- name: shift_deadlines
-- functions/put_right.sql
SELECT shift_deadlines($1, $2, $3)

-- name: queues_ahead
-- The queues whose log ends ahead of an instant, by one look-up each.
SELECT q.id FROM queue q CROSS JOIN LATERAL (
    SELECT m.created_at FROM message m WHERE m.queue_id = q.id ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1) l
WHERE q.deleted_at IS NULL AND l.created_at > $1 ORDER BY q.id

-- name: lock_log
SELECT lock_log($1)

-- name: stamp_ahead
-- functions/put_right.sql
SELECT stamp_ahead($1, $2, $3, $4)

-- name: stamp_leases
UPDATE lease_history SET settled_at = $1, leased_at = least(leased_at, $1) WHERE settled_at > $1

-- name: stamp_failures
UPDATE failed_attempt SET failed_at = $1, leased_at = least(leased_at, $1) WHERE failed_at > $1

-- name: stamp_traces
UPDATE trace_event SET at = $1 WHERE at > $1

-- name: stamp_replays
UPDATE replay_history SET replayed_at = $1 WHERE replayed_at > $1

-- name: queues_ahead_by_letters
SELECT DISTINCT d.queue_id AS id FROM dead_letter d WHERE d.failed_at > $1 ORDER BY d.queue_id

-- name: stamp_letters
-- Of the queues $2, whose logs are locked: who deletes letters finds them by their tids, which an update changes.
UPDATE dead_letter SET failed_at = $1, created_at = least(created_at, $1) WHERE failed_at > $1 AND queue_id = ANY ($2::integer[])

-- name: stamp_live_operations
UPDATE operation SET created_at = least(created_at, $1), started_at = CASE WHEN started_at > $1 THEN $1 ELSE started_at END,
                     blocked_at = CASE WHEN blocked_at > $1 THEN $1 ELSE blocked_at END,
                     error_at = CASE WHEN error_at > $1 THEN $1 ELSE error_at END
WHERE created_at > $1 OR started_at > $1 OR blocked_at > $1 OR error_at > $1

-- name: stamp_operations
UPDATE operation SET processed_at = $1 WHERE processed_at > $1

-- name: stamp_groups
-- A group whose last use lies in the future would never be idle.
UPDATE consumer_group SET active_at = $1 WHERE active_at > $1

-- name: stamp_audit
UPDATE audit SET at = $1, expires_at = $1 + expires_at - at WHERE at > $1

-- name: stamp_refusals
UPDATE hook_refusal SET at = $1 WHERE at > $1

-- name: drop_samples
-- Figures of the future would be taken for the latest.
DELETE FROM sample WHERE at > $1

-- name: drop_past
DELETE FROM past WHERE at > $1

-- name: drop_retention
DELETE FROM retention_history WHERE at > $1

-- name: cut_keys
-- A key lives for its queue's window from now on, and no longer.
UPDATE dedup d SET expires_at = $1 + (q.dedup_window_seconds * 1e6)::bigint FROM queue q
WHERE q.id = d.queue_id AND d.expires_at > $1 + (q.dedup_window_seconds * 1e6)::bigint

-- name: cut_receipts
UPDATE receipt SET expires_at = $1 + $2 WHERE expires_at > $1::bigint + $2::bigint

-- name: cut_staged
UPDATE staged_chunk SET expires_at = $1 + $2 WHERE expires_at > $1::bigint + $2::bigint
