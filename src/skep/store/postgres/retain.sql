-- name: lock_log
SELECT lock_log($1)

-- name: log_head
-- The setting is read anew: to switch it on one locks the log, so a pass that has locked it knows.
SELECT q.first_seq, last_seq(q.id, q.floor_seq) AS last_seq, settled_seq(q.id, 'in use') AS settled_seq,
       settled_seq(q.id, 'all') AS settled_by_all, q.retention_requires_archive,
       CASE WHEN q.retention_requires_archive THEN archived_seq(q.id) END AS archived_seq
FROM queue q WHERE q.id = $1

-- name: mark_idle
-- Marks groups as idle that nobody used since $2, except the last used one and those with a live lease; and others as not idle. $2 is
-- null where no group ever is idle; with $4 false none becomes idle. A use under way has locked its row, and is waited for.
UPDATE consumer_group g SET idle = NOT g.idle
WHERE g.queue_id = $1 AND ($4::boolean OR g.idle) AND g.idle <> (
    coalesce(g.active_at <= $2, false)
    AND g.id <> (SELECT l.id FROM consumer_group l WHERE l.queue_id = $1 ORDER BY l.active_at DESC, l.id DESC LIMIT 1)
    AND (SELECT 1 FROM partition_lease l
         WHERE l.queue_id = $1 AND l.group_id::bigint = g.id AND l.ready_at > $3 AND l.token IS NOT NULL LIMIT 1) IS NULL
    AND (SELECT 1 FROM set_lease s
         WHERE s.queue_id = $1 AND s.group_id = g.id AND s.ready_at > $3 AND s.token IS NOT NULL
         ORDER BY s.queue_id, s.group_id, s.priority DESC, s.ready_at LIMIT 1) IS NULL)
RETURNING g.name, g.idle, g.active_at

-- name: settled_by_poppers
SELECT settled_seq($1, 'popping')

-- name: oldest_at
SELECT m.created_at FROM message m WHERE m.queue_id = $1 ORDER BY m.queue_id, m.seq LIMIT 1

-- name: seq_before
-- The last seq created before an instant.
SELECT seq_at(q.id, least(q.first_seq, coalesce(
    (SELECT m.seq FROM message m WHERE m.queue_id = q.id ORDER BY m.queue_id, m.seq LIMIT 1), q.first_seq)),
    last_seq(q.id, q.floor_seq), $2::bigint + 1) - 1
FROM queue q WHERE q.id = $1

-- name: settled_since
-- The last seq that all groups had settled at the latest pass that is old enough.
SELECT r.settled_seq FROM retention_history r WHERE r.queue_id = $1 AND r.at <= $2
ORDER BY r.queue_id DESC, r.at DESC LIMIT 1

-- name: nth_from_head
SELECT m.seq FROM message m WHERE m.queue_id = $1 ORDER BY m.queue_id, m.seq OFFSET $2 - 1 LIMIT 1

-- name: doomed
SELECT m.seq FROM message m WHERE m.queue_id = $1 AND m.seq <= $2 ORDER BY m.queue_id, m.seq

-- name: delete_head
-- The floor keeps the last seq when the whole log is deleted; dead letters go with their messages. Gaps before the log's new beginning
-- are no longer counted.
WITH head AS MATERIALIZED (SELECT m.ctid AS place FROM message m
                           WHERE (m.queue_id, m.seq) BETWEEN ($1, 0) AND ($1, $2::bigint) ORDER BY m.queue_id, m.seq),
     gone AS (DELETE FROM message m USING head h WHERE m.ctid = h.place RETURNING m.seq),
     letters AS (DELETE FROM dead_letter d WHERE d.queue_id = $1 AND d.seq <= $2),
     moved AS (
         UPDATE queue q SET first_seq = greatest(q.first_seq, $2::bigint + 1), floor_seq = greatest(q.floor_seq, $2::bigint),
             gaps = q.gaps - greatest(0, $2::bigint - q.first_seq + 1) + (SELECT count(*) FROM gone g WHERE g.seq >= q.first_seq)
         WHERE q.id = $1)
SELECT count(*) FROM gone

-- name: note_retention
-- A row per pass that did something, or after which more is settled than before.
INSERT INTO retention_history (queue_id, at, deleted, first_seq, settled_seq)
SELECT q.id, $2::bigint, $3::bigint, q.first_seq, $4::bigint FROM queue q
WHERE q.id = $1 AND ($3::bigint > 0 OR $4::bigint > coalesce(
    (SELECT r.settled_seq FROM retention_history r WHERE r.queue_id = q.id ORDER BY r.queue_id DESC, r.at DESC LIMIT 1), -1))
ON CONFLICT (queue_id, at) DO UPDATE SET deleted = retention_history.deleted + excluded.deleted,
    first_seq = excluded.first_seq, settled_seq = excluded.settled_seq
