-- Corrections after the clock was put back. ?1 is now. Otherwise only `read`, `note` and `write_something` run.

-- name: read
SELECT latest_at, put_back_at FROM clock

-- name: note
UPDATE clock SET latest_at = ?1 WHERE latest_at < ?1

-- name: write_something
UPDATE clock SET latest_at = latest_at

-- name: put_back
UPDATE clock SET latest_at = ?1, put_back_at = ?1

-- name: all_right
UPDATE clock SET put_back_at = NULL

-- name: shift_leases
-- Every row is read once. leased_at tells when a lease or a retry was written: one from the future lasts as long as it was asked for, from
-- now on, and one that was written since stays. A lease from the future that was renewed lasts no longer than the renewal or the queue's
-- lease, whichever is longer. ?2 is by how much the clock was put back, ?3 how many windows may hold a row back.
UPDATE partition_lease SET
    ready_at = min(ready_at, max(?1, CASE
        WHEN leased_at > ?1 AND token IS NULL THEN ?1 + ready_at - leased_at
        WHEN leased_at > ?1 THEN min(?1 + ready_at - leased_at, max(ready_at - ?2, ?1 + s.lease))
        ELSE max(min(oldest_at, ?1) + s.delay, min(min(newest_at, ?1) + s.window, min(oldest_at, ?1) + s.window * ?3)) END)),
    leased_at = min(leased_at, ?1)
FROM (SELECT g.id, CAST(q.lease_seconds * 1000000 AS INTEGER) AS lease, CAST(q.delayed_processing_seconds * 1000000 AS INTEGER) AS delay,
             CAST(q.window_buffer_seconds * 1000000 AS INTEGER) AS window
      FROM consumer_group g JOIN queue q ON q.id = g.queue_id) AS s
WHERE s.id = group_id AND ready_at > ?1 AND (leased_at > ?1 OR leased_at = 0)

-- name: shift_sets
UPDATE set_lease SET
    ready_at = min(ready_at, max(?1, CASE
        WHEN leased_at > ?1 AND token IS NULL THEN ?1 + ready_at - leased_at
        WHEN leased_at > ?1 THEN min(?1 + ready_at - leased_at, max(ready_at - ?2, ?1 + s.lease))
        ELSE min(oldest_at, ?1) + s.delay END)),
    leased_at = min(leased_at, ?1)
FROM (SELECT g.id, CAST(q.lease_seconds * 1000000 AS INTEGER) AS lease, CAST(q.delayed_processing_seconds * 1000000 AS INTEGER) AS delay
      FROM consumer_group g JOIN queue q ON q.id = g.queue_id) AS s
WHERE s.id = group_id AND ready_at > ?1 AND (leased_at > ?1 OR leased_at = 0)

-- name: shift_operations
-- A claim has its time in started_at. A wait is moved, but no nearer than the longest wait (?3).
UPDATE operation SET
    ready_at = CASE WHEN status = 'processing' THEN max(?1, ?1 + ready_at - started_at)
                    ELSE min(ready_at, max(?1 + ?3, ready_at - ?2)) END,
    started_at = min(started_at, ?1)
WHERE processed_at IS NULL AND ready_at > ?1 AND (status <> 'processing' OR started_at > ?1)

-- name: shift_endpoints
UPDATE endpoint SET open_until = max(?1, open_until - ?2) WHERE open_until > ?1

-- name: shift_sessions
-- A session from the future lasts its full time from now on.
UPDATE session SET expires_at = expires_at - max(0, created_at - ?1), created_at = min(created_at, ?1), used_at = min(used_at, ?1)
WHERE used_at > ?1

-- name: ahead
-- From the first message in the future on: the table's own b-tree. The payload comes last in a row and is not read.
SELECT position, id FROM message WHERE position BETWEEN ?1 AND ?2 ORDER BY position LIMIT ?3

-- name: before
SELECT created_at FROM message WHERE position BETWEEN ?1 AND ?2 ORDER BY position DESC LIMIT 1

-- name: stamp
-- The millisecond of the id no longer finds the trace, so the trace id is written.
UPDATE message SET created_at = ?2, trace_id = coalesce(trace_id, id) WHERE position = ?1

-- name: stamp_partition_leases
UPDATE partition_lease SET expires_at = expires_at - (oldest_at - ?1), oldest_at = ?1, newest_at = min(newest_at, ?1) WHERE oldest_at > ?1

-- name: stamp_newest
UPDATE partition_lease SET newest_at = ?1 WHERE newest_at > ?1

-- name: stamp_set_leases
UPDATE set_lease SET expires_at = expires_at - (oldest_at - ?1), oldest_at = ?1 WHERE oldest_at > ?1

-- name: stamp_leases
UPDATE lease_history SET settled_at = ?1, leased_at = min(leased_at, ?1) WHERE settled_at > ?1

-- name: stamp_failures
UPDATE failed_attempt SET failed_at = ?1, leased_at = min(leased_at, ?1) WHERE failed_at > ?1

-- name: stamp_traces
UPDATE trace_event SET at = ?1 WHERE at > ?1

-- name: stamp_replays
UPDATE replay_history SET at = ?1 WHERE at > ?1

-- name: stamp_letters
UPDATE dead_letter SET failed_at = ?1, created_at = min(created_at, ?1) WHERE failed_at > ?1

-- name: stamp_live_operations
UPDATE operation SET created_at = min(created_at, ?1), started_at = min(started_at, ?1), blocked_at = min(blocked_at, ?1),
                     error_at = min(error_at, ?1)
WHERE created_at > ?1 OR started_at > ?1 OR blocked_at > ?1 OR error_at > ?1

-- name: stamp_operations
UPDATE operation SET processed_at = ?1 WHERE processed_at > ?1

-- name: stamp_groups
-- A group with a use in the future would never be idle.
UPDATE consumer_group SET active_at = ?1 WHERE active_at > ?1

-- name: stamp_audit
UPDATE audit SET at = ?1, expires_at = ?1 + expires_at - at WHERE at > ?1

-- name: stamp_refusals
UPDATE hook_refusal SET at = ?1 WHERE at > ?1

-- name: drop_samples
-- Figures from the future would be taken for the latest.
DELETE FROM sample WHERE at > ?1

-- name: drop_past
DELETE FROM past WHERE at > ?1

-- name: drop_retention
DELETE FROM retention_history WHERE at > ?1

-- name: cut_keys
-- From now on a key lives no longer than its queue's window.
UPDATE dedup SET expires_at = ?1 + CAST(q.dedup_window_seconds * 1000000 AS INTEGER) FROM queue AS q
WHERE q.id = dedup.queue_id AND dedup.expires_at > ?1 + CAST(q.dedup_window_seconds * 1000000 AS INTEGER)

-- name: cut_receipts
UPDATE receipt SET expires_at = ?1 + ?2 WHERE expires_at > ?1 + ?2

-- name: cut_staged
UPDATE staged_chunk SET expires_at = ?1 + ?2 WHERE expires_at > ?1 + ?2
