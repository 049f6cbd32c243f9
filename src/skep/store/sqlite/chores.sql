-- Bounded passes that the engine's timers run.

-- name: due
-- Index scheduled_due: by due time, then by arrival.
SELECT arrival, due_at, priority, id, partition, transaction_id, trace_id, content_type, headers, payload,
       length(payload) + coalesce(length(headers), 0)
FROM scheduled
WHERE queue_id = ?1 AND due_at <= ?2
ORDER BY due_at, arrival
LIMIT ?3

-- name: next_due
SELECT due_at FROM scheduled WHERE queue_id = ?1 ORDER BY due_at LIMIT 1

-- name: all_queues
SELECT tenant, name FROM queue WHERE deleted_at IS NULL

-- name: sweep_keys
-- Index dedup_expiry.
DELETE FROM dedup WHERE (queue_id, transaction_id, partition) IN (
    SELECT queue_id, transaction_id, partition FROM dedup INDEXED BY dedup_expiry WHERE expires_at <= ?1 LIMIT ?2)

-- name: sweep_receipts
-- Index receipt_expiry.
DELETE FROM receipt WHERE rowid IN (
    SELECT rowid FROM receipt INDEXED BY receipt_expiry WHERE expires_at <= ?1 LIMIT ?2)

-- name: sweep_lease_history
-- Histories grow in the order of time: only their left edge is looked at.
DELETE FROM lease_history WHERE position IN (
    SELECT position FROM (SELECT position, settled_at AS at FROM lease_history ORDER BY position LIMIT ?2) WHERE at <= ?1)

-- name: sweep_failures
-- Also those before the latest 100,000, so that their room is bounded.
DELETE FROM failed_attempt WHERE position IN (
    SELECT position FROM (SELECT position, failed_at AS at FROM failed_attempt ORDER BY position LIMIT ?2)
    WHERE at <= ?1 OR position <= (SELECT max(position) FROM failed_attempt) - 100000)

-- name: next_failure
SELECT failed_at FROM failed_attempt ORDER BY position LIMIT 1

-- name: sweep_samples
DELETE FROM sample WHERE position IN (
    SELECT position FROM (SELECT position, at FROM sample ORDER BY position LIMIT ?2) WHERE at <= ?1)

-- name: sweep_past
DELETE FROM past WHERE position IN (
    SELECT position FROM (SELECT position, at FROM past ORDER BY position LIMIT ?2) WHERE at <= ?1)

-- name: next_past
SELECT at FROM past ORDER BY position LIMIT 1

-- name: sweep_trace_events
DELETE FROM trace_event WHERE position IN (
    SELECT position FROM (SELECT position, at FROM trace_event ORDER BY position LIMIT ?2)
    WHERE at <= ?1 OR position <= (SELECT max(position) FROM trace_event) - 1000000)

-- name: next_trace_event
SELECT at FROM trace_event ORDER BY position LIMIT 1

-- name: sweep_retention_history
-- Index retention_history_queue. completed_retention reads passes of that age, so a queue's passes are kept longer by it.
DELETE FROM retention_history WHERE position IN (
    SELECT h.position FROM queue AS q CROSS JOIN retention_history AS h INDEXED BY retention_history_queue ON h.queue_id = q.id
    WHERE h.at <= ?1 - CAST(q.completed_retention_seconds * 1000000 AS INTEGER) LIMIT ?2)

-- name: sweep_replay_history
DELETE FROM replay_history WHERE position IN (
    SELECT position FROM (SELECT position, at FROM replay_history ORDER BY position LIMIT ?2) WHERE at <= ?1)

-- name: next_key_expiry
SELECT expires_at FROM dedup INDEXED BY dedup_expiry ORDER BY expires_at LIMIT 1

-- name: sweep_staged
-- Index staged_chunk_expiry. Chunks that nobody published or aborted.
DELETE FROM staged_chunk WHERE rowid IN (SELECT rowid FROM staged_chunk WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)

-- name: sweep_access_keys
-- Index access_key_forget. Keys that were revoked, or expired, long ago.
DELETE FROM access_key WHERE id IN (SELECT id FROM access_key WHERE forget_at <= ?1 ORDER BY forget_at LIMIT ?2)

-- name: next_access_key
SELECT forget_at FROM access_key WHERE forget_at IS NOT NULL ORDER BY forget_at LIMIT 1

-- name: sweep_sessions
-- Index session_expiry.
DELETE FROM session WHERE id IN (SELECT id FROM session WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)

-- name: next_session
SELECT expires_at FROM session ORDER BY expires_at LIMIT 1

-- name: sweep_audit
-- Index audit_expiry.
DELETE FROM audit WHERE position IN (SELECT position FROM audit WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)

-- name: next_audit
SELECT expires_at FROM audit ORDER BY expires_at LIMIT 1

-- name: next_staged_expiry
SELECT expires_at FROM staged_chunk ORDER BY expires_at LIMIT 1

-- name: next_receipt_expiry
SELECT expires_at FROM receipt INDEXED BY receipt_expiry ORDER BY expires_at LIMIT 1

-- name: next_lease_history
SELECT settled_at FROM lease_history ORDER BY position LIMIT 1

-- name: next_sample
SELECT at FROM sample ORDER BY position LIMIT 1

-- name: next_retention_history
SELECT min(at) FROM (
    SELECT CAST(q.completed_retention_seconds * 1000000 AS INTEGER) + (
        SELECT h.at FROM retention_history AS h WHERE h.queue_id = q.id ORDER BY h.at LIMIT 1) AS at
    FROM queue AS q)
HAVING min(at) IS NOT NULL

-- name: next_replay_history
SELECT at FROM replay_history ORDER BY position LIMIT 1

-- name: deleted_queue
-- Index queue_deleted: the longest deleted one.
SELECT id FROM queue WHERE deleted_at IS NOT NULL ORDER BY deleted_at LIMIT 1

-- name: strip_message
-- The data of a deleted queue, table by table, each bounded. Here the table's own b-tree.
DELETE FROM message WHERE position IN (
    SELECT position FROM message WHERE position BETWEEN ?1 << 40 AND (?1 << 40) + 1099511627775 LIMIT ?2)

-- name: strip_dead_letter
DELETE FROM dead_letter WHERE position IN (
    SELECT position FROM dead_letter WHERE position BETWEEN ?1 << 40 AND (?1 << 40) + 1099511627775 LIMIT ?2)

-- name: strip_dedup
DELETE FROM dedup WHERE (queue_id, transaction_id, partition) IN (
    SELECT queue_id, transaction_id, partition FROM dedup WHERE queue_id = ?1 LIMIT ?2)

-- name: strip_scheduled
DELETE FROM scheduled WHERE arrival IN (SELECT arrival FROM scheduled WHERE queue_id = ?1 LIMIT ?2)

-- name: strip_partition_lease
DELETE FROM partition_lease WHERE (group_id, partition) IN (
    SELECT l.group_id, l.partition FROM consumer_group AS g JOIN partition_lease AS l ON l.group_id = g.id
    WHERE g.queue_id = ?1 LIMIT ?2)

-- name: strip_set_lease
DELETE FROM set_lease WHERE id IN (
    SELECT s.id FROM consumer_group AS g JOIN set_lease AS s ON s.group_id = g.id WHERE g.queue_id = ?1 LIMIT ?2)

-- name: strip_consumer_group
DELETE FROM consumer_group WHERE id IN (SELECT id FROM consumer_group WHERE queue_id = ?1 LIMIT ?2)

-- name: strip_lease_history
DELETE FROM lease_history WHERE position IN (SELECT position FROM lease_history WHERE queue_id = ?1 LIMIT ?2)

-- name: strip_failures
DELETE FROM failed_attempt WHERE position IN (SELECT position FROM failed_attempt WHERE queue_id = ?1 LIMIT ?2)

-- name: strip_retention_history
DELETE FROM retention_history WHERE position IN (SELECT position FROM retention_history WHERE queue_id = ?1 LIMIT ?2)

-- name: strip_sample
DELETE FROM sample WHERE position IN (SELECT position FROM sample WHERE queue_id = ?1 LIMIT ?2)

-- name: strip_forgotten
DELETE FROM forgotten WHERE (queue_id, position) IN (SELECT queue_id, position FROM forgotten WHERE queue_id = ?1 LIMIT ?2)

-- name: strip_queue
DELETE FROM queue WHERE id = ?1
