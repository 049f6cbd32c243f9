-- name: any_due
SELECT EXISTS (SELECT 1 FROM scheduled s WHERE s.queue_id = $1 AND s.due_at <= $2)

-- name: next_due
SELECT s.due_at FROM scheduled s WHERE s.queue_id = $1 ORDER BY s.queue_id, s.due_at LIMIT 1

-- name: take_due
-- Under the queue's lock: no other server takes the same rows, and their tids stay. Of the first $3 rows, as many as reach $4 bytes;
-- lengths are known without reading payloads.
WITH due AS MATERIALIZED (
    SELECT s.ctid, length(s.payload) + coalesce(length(s.headers), 0) AS size_bytes, s.due_at, s.arrival
    FROM scheduled s WHERE s.queue_id = $1 AND s.due_at <= $2
    ORDER BY s.queue_id, s.due_at, s.arrival LIMIT $3
), first AS MATERIALIZED (
    SELECT f.ctid FROM (
        SELECT d.ctid, sum(d.size_bytes) OVER (ORDER BY d.due_at, d.arrival) - d.size_bytes AS before FROM due d) f
    WHERE f.before < $4::bigint
), taken AS (
    DELETE FROM scheduled s USING first f WHERE s.ctid = f.ctid RETURNING s.*
)
SELECT * FROM taken ORDER BY due_at, arrival

-- name: groups
-- In the order in which everyone shares them (functions/locks.sql).
SELECT id, name, external FROM consumer_group WHERE queue_id = $1 ORDER BY queue_id, name

-- name: share_group
SELECT share_group($1)

-- name: ensure_group
SELECT ensure_group($1, $2, 'all', 0, $3)

-- name: discover
SELECT discover($1, $2, $3, $4, $5)

-- name: given_up
SELECT coalesce(sum(c.dead + c.expired), 0)::bigint FROM group_counter c WHERE c.group_id = $1

-- name: next_expiry
-- The next end of a lease, and the creation of the oldest message: among discovered ones (ready rows come oldest first) and others. All
-- sets are read only where messages expire by age ($4); the next end of a set is looked up by priority.
WITH RECURSIVE priorities AS (
    (SELECT s.priority FROM set_lease s WHERE s.queue_id = $1 AND s.group_id = $2
     ORDER BY s.queue_id, s.group_id, s.priority DESC LIMIT 1)
    UNION ALL
    SELECT n.priority FROM priorities p CROSS JOIN LATERAL (
        SELECT s.priority FROM set_lease s WHERE s.queue_id = $1 AND s.group_id = $2 AND s.priority < p.priority
        ORDER BY s.queue_id, s.group_id, s.priority DESC LIMIT 1) n
)
SELECT least((SELECT l.ready_at FROM partition_lease l WHERE l.queue_id = $1 AND l.group_id::bigint = $2 AND l.ready_at > $3
              ORDER BY l.group_id::bigint, l.ready_at LIMIT 1),
             (SELECT min(n.ready_at) FROM priorities p CROSS JOIN LATERAL (
                  SELECT s.ready_at FROM set_lease s
                  WHERE s.queue_id = $1 AND s.group_id = $2 AND s.priority = p.priority AND s.ready_at > $3
                  ORDER BY s.queue_id, s.group_id, s.priority DESC, s.ready_at LIMIT 1) n)) AS deadline,
       least((SELECT l.oldest_at FROM partition_lease l WHERE l.queue_id = $1 AND l.group_id::bigint = $2
              ORDER BY l.group_id::bigint, l.ready_at LIMIT 1),
             CASE WHEN $4::boolean
                  THEN (SELECT min(s.oldest_at) FROM set_lease s WHERE s.queue_id = $1 AND s.group_id = $2) END) AS oldest_at,
       (SELECT m.created_at FROM message m
        WHERE m.queue_id = $1 AND m.seq > (SELECT g.scan_seq FROM consumer_group g WHERE g.id = $2)
        ORDER BY m.queue_id, m.seq LIMIT 1) AS undiscovered_at

-- name: sweep_past
WITH old AS (SELECT p.ctid FROM past p WHERE p.minute <= $1 ORDER BY p.minute LIMIT $2 FOR UPDATE SKIP LOCKED),
     gone AS (DELETE FROM past p USING old o WHERE p.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_traces
-- In the order of their positions, so the walk stops at the first that is young and among the latest.
WITH first AS (
         SELECT e.ctid AS place, e.at <= $1 OR e.position <= (
                    SELECT n.position FROM trace_event n ORDER BY n.position DESC LIMIT 1) - $3::bigint AS is_old
         FROM trace_event e ORDER BY e.position LIMIT $2),
     gone AS (DELETE FROM trace_event e USING first f WHERE e.ctid = f.place AND f.is_old RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_dedup
WITH old AS (SELECT d.ctid FROM dedup d WHERE d.expires_at <= $1 ORDER BY d.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED),
     gone AS (DELETE FROM dedup d USING old o WHERE d.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_receipts
WITH old AS (SELECT r.ctid FROM receipt r WHERE r.expires_at <= $1 ORDER BY r.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED),
     gone AS (DELETE FROM receipt r USING old o WHERE r.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_staged
-- Staged messages that nobody published or aborted.
WITH old AS (
         SELECT s.ctid FROM staged_chunk s WHERE s.expires_at <= $1 ORDER BY s.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED),
     gone AS (DELETE FROM staged_chunk s USING old o WHERE s.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_access_keys
-- Keys that were revoked, or expired, long ago.
WITH old AS (
         SELECT k.ctid FROM access_key k WHERE k.forget_at <= $1 ORDER BY k.forget_at LIMIT $2 FOR UPDATE SKIP LOCKED),
     gone AS (DELETE FROM access_key k USING old o WHERE k.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_sessions
WITH old AS (SELECT s.ctid FROM session s WHERE s.expires_at <= $1 ORDER BY s.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED),
     gone AS (DELETE FROM session s USING old o WHERE s.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_audit
WITH old AS (SELECT a.ctid FROM audit a WHERE a.expires_at <= $1 ORDER BY a.expires_at LIMIT $2 FOR UPDATE SKIP LOCKED),
     gone AS (DELETE FROM audit a USING old o WHERE a.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_samples
WITH old AS (SELECT s.ctid FROM sample s WHERE s.at <= $1 ORDER BY s.at LIMIT $2),
     gone AS (DELETE FROM sample s USING old o WHERE s.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_replays
WITH old AS (SELECT r.ctid FROM replay_history r WHERE r.replayed_at <= $1 ORDER BY r.replayed_at LIMIT $2),
     gone AS (DELETE FROM replay_history r USING old o WHERE r.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_retention
-- One look-up per queue: the history is kept by queue and time. A queue's completed_retention reads passes as old as itself,
-- so they are kept for longer by that.
WITH old AS (SELECT r.ctid FROM queue q
             CROSS JOIN LATERAL (SELECT r.ctid FROM retention_history r
                                 WHERE r.queue_id = q.id AND r.at <= $1 - (q.completed_retention_seconds * 1e6)::bigint
                                 ORDER BY r.queue_id, r.at LIMIT $2) r
             LIMIT $2),
     gone AS (DELETE FROM retention_history r USING old o WHERE r.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_leases
-- The history is in the order of its ids, so the oldest rows come first and the walk stops at the first young one.
WITH first AS (SELECT h.ctid AS place, h.settled_at FROM lease_history h ORDER BY h.id LIMIT $2),
     gone AS (DELETE FROM lease_history h USING first f WHERE h.ctid = f.place AND f.settled_at <= $1 RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_failures
-- By age as above, and all before the latest ones: however much fails, the table stays bounded.
WITH first AS (
         SELECT f.ctid AS place, f.failed_at <= $1 OR f.id <= (
                    SELECT n.id FROM failed_attempt n ORDER BY n.id DESC LIMIT 1) - $3::bigint AS is_old
         FROM failed_attempt f ORDER BY f.id LIMIT $2),
     gone AS (DELETE FROM failed_attempt f USING first o WHERE f.ctid = o.place AND o.is_old RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_deleted_failures
WITH old AS (SELECT f.ctid FROM failed_attempt f WHERE f.queue_id = $1 ORDER BY f.queue_id, f.seq, f.id LIMIT $2),
     gone AS (DELETE FROM failed_attempt f USING old o WHERE f.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_watchers
WITH gone AS (DELETE FROM watcher w WHERE w.until <= $1 AND $2 > 0 RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_events
-- The first rows by position, up to the last old one. Rows before that are older, even if a clock that was ahead stamped them (a stamp is
-- never changed, as it identifies its row). If the newest row is old, all are. The newest stays: a server that has read it must find it
-- again.
WITH newest AS (SELECT n.position, n.at FROM system_event n ORDER BY n.position DESC LIMIT 1),
     first AS (SELECT e.ctid AS place, e.position, e.at FROM system_event e
               WHERE e.position < (SELECT n.position FROM newest n) ORDER BY e.position LIMIT $2),
     gone AS (DELETE FROM system_event e USING first f
              WHERE e.ctid = f.place AND (f.position <= (SELECT max(o.position) FROM first o WHERE o.at <= $1)
                                          OR (SELECT n.at FROM newest n) <= $1)
              RETURNING 1)
SELECT count(*) FROM gone

-- name: deleted_queue
-- One sweep of a queue at a time: one that finds nothing left, as another is at work, must not forget the queue.
SELECT id FROM queue WHERE deleted_at IS NOT NULL ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED

-- name: take_groups
-- Locks all groups of the queue, if nobody uses one now. It does not wait, as a sweep holds many other locks.
SELECT coalesce(bool_and(pg_try_advisory_xact_lock(1936418164, g.id)), true) FROM consumer_group g WHERE g.queue_id = $1

-- name: sweep_deleted_message
WITH old AS (SELECT m.ctid FROM message m WHERE m.queue_id = $1 ORDER BY m.queue_id, m.seq LIMIT $2),
     gone AS (DELETE FROM message m USING old o WHERE m.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_deleted_dedup
WITH old AS (SELECT d.ctid FROM dedup d WHERE d.queue_id = $1 LIMIT $2),
     gone AS (DELETE FROM dedup d USING old o WHERE d.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_deleted_scheduled
WITH old AS (SELECT s.ctid FROM scheduled s WHERE s.queue_id = $1 LIMIT $2),
     gone AS (DELETE FROM scheduled s USING old o WHERE s.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sum_dead_letters
-- One row for each queue and source again. Two servers that do this at once sum different rows.
WITH several AS (
    SELECT c.queue_id, c.source_queue FROM dead_letter_change c GROUP BY c.queue_id, c.source_queue HAVING count(*) > 1 LIMIT $1
), old AS MATERIALIZED (
    SELECT c.ctid FROM several s
    CROSS JOIN LATERAL (SELECT c.ctid FROM dead_letter_change c WHERE c.queue_id = s.queue_id AND c.source_queue = s.source_queue
                        FOR UPDATE SKIP LOCKED) c
), gone AS (
    DELETE FROM dead_letter_change c USING old o WHERE c.ctid = o.ctid RETURNING c.*
)
INSERT INTO dead_letter_change (change, queue_id, source_queue)
SELECT sum(g.change), g.queue_id, g.source_queue FROM gone g GROUP BY g.queue_id, g.source_queue HAVING sum(g.change) <> 0

-- name: sweep_deleted_dead_letter
WITH old AS (SELECT d.ctid FROM dead_letter d WHERE d.queue_id = $1 LIMIT $2),
     gone AS (DELETE FROM dead_letter d USING old o WHERE d.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_deleted_lease
WITH old AS (SELECT l.ctid FROM consumer_group g
             CROSS JOIN LATERAL (SELECT l.ctid FROM partition_lease l WHERE l.group_id::bigint = g.id LIMIT $2) l
             WHERE g.queue_id = $1 LIMIT $2),
     gone AS (DELETE FROM partition_lease l USING old o WHERE l.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_deleted_set
WITH old AS (SELECT s.ctid FROM set_lease s WHERE s.queue_id = $1 LIMIT $2),
     gone AS (DELETE FROM set_lease s USING old o WHERE s.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_deleted_history
WITH gone AS (DELETE FROM retention_history r WHERE r.queue_id = $1 AND $2 > 0 RETURNING 1)
SELECT count(*) FROM gone

-- name: sweep_deleted_forgotten
WITH old AS (SELECT t.ctid FROM forgotten t WHERE t.queue_id = $1 ORDER BY t.queue_id, t.position LIMIT $2),
     gone AS (DELETE FROM forgotten t USING old o WHERE t.ctid = o.ctid RETURNING 1)
SELECT count(*) FROM gone

-- name: forget_queue_groups
WITH counters AS (DELETE FROM group_counter c WHERE c.group_id = ANY (ARRAY(SELECT g.id FROM consumer_group g WHERE g.queue_id = $1)))
DELETE FROM consumer_group g WHERE g.queue_id = $1

-- name: forget_queue
DELETE FROM queue WHERE id = $1 AND deleted_at IS NOT NULL
