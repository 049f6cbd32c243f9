-- name: ensure
SELECT ensure_group($1, $2, $3, $4, $5)

-- name: take_group
-- functions/locks.sql
SELECT take_group($1, $2, $3)

-- name: take_groups
-- functions/locks.sql
SELECT take_groups($1, $2)

-- name: group_id
SELECT g.id FROM consumer_group g WHERE g.queue_id = $1 AND g.name = $2

-- name: end_lease
WITH ended AS (
    UPDATE partition_lease l SET ready_at = $4
    WHERE l.partition = $3 AND l.queue_id = $1 AND l.group_id = $2 AND l.token IS NOT NULL AND l.ready_at + 0 > $4 RETURNING 1)
SELECT count(*) FROM ended

-- name: end_sets
-- Locked in the order of ids first, like everywhere.
WITH locked AS MATERIALIZED (
    SELECT s.id FROM set_lease s
    WHERE s.queue_id = $1 AND s.group_id = $2 AND s.partition = $3 AND s.token IS NOT NULL AND s.ready_at > $4
    ORDER BY s.id + 0 FOR UPDATE
), ended AS (
    UPDATE set_lease s SET ready_at = $4 FROM locked k WHERE s.id = ANY (ARRAY[k.id]) RETURNING 1)
SELECT count(*) FROM ended

-- name: release_lease
-- The row gets a token that nobody has: it looks like any lease that ran out, and no holder can reach it.
WITH released AS (
    UPDATE partition_lease l SET ready_at = least(l.ready_at, $5), token = gen_random_uuid()
    WHERE l.partition = $3 AND l.queue_id = $1 AND l.group_id = $2 AND l.token = $4 RETURNING 1)
SELECT count(*) FROM released

-- name: release_sets
-- Locked in the order of ids first, like everywhere.
WITH locked AS MATERIALIZED (
    SELECT s.id FROM set_lease s
    WHERE s.queue_id = $1 AND s.group_id = $2 AND s.partition = $3 AND s.token = $4
    ORDER BY s.id + 0 FOR UPDATE
), released AS (
    UPDATE set_lease s SET ready_at = least(s.ready_at, $5), token = gen_random_uuid() FROM locked k WHERE s.id = ANY (ARRAY[k.id]) RETURNING 1)
SELECT count(*) FROM released

-- name: delete_leases
-- Locked in ascending partition order first, like everywhere.
WITH locked AS (
    SELECT l.partition FROM partition_lease l WHERE l.queue_id = $1 AND l.group_id::bigint = $2 ORDER BY l.partition || '' FOR UPDATE
)
DELETE FROM partition_lease l
WHERE l.partition = ANY (ARRAY(SELECT k.partition FROM locked k)) AND l.queue_id = $1 AND l.group_id = $2

-- name: delete_sets
DELETE FROM set_lease WHERE queue_id = $1 AND group_id = $2

-- name: reset_counters
DELETE FROM group_counter WHERE group_id = $1

-- name: move
-- A group that is moved back may be an archive that lost what is beyond; one that is moved forward has archived nothing.
UPDATE consumer_group g SET start_seq = p.position, scan_seq = p.position, active_at = $5, idle = false,
    archived_seq = CASE WHEN g.archived_seq > p.position THEN p.position ELSE g.archived_seq END
FROM (SELECT start_position($2, $3, $4) AS position) p WHERE g.id = $1

-- name: pass_over_gaps
SELECT pass_over_gaps($1, $2)

-- name: report_progress
SELECT state, last FROM report_progress($1, $2, $3, $4, $5, $6)

-- name: report_progress_of_logs
SELECT queue, state, last, progress FROM report_progress_of_logs($1, $2, $3, $4, $5, $6, $7)

-- name: delete
DELETE FROM consumer_group WHERE id = $1

-- name: lock_log
SELECT lock_log($1)

-- name: clear_scheduled
-- Their deduplication keys stay: a repeat of a dropped message is still a repeat.
WITH gone AS (DELETE FROM scheduled WHERE queue_id = $1 RETURNING 1),
     counted AS (UPDATE queue SET scheduled_count = 0 WHERE id = $1)
SELECT count(*) FROM gone

-- name: clear_log
SELECT clear_log($1, $2, $3, $4)
