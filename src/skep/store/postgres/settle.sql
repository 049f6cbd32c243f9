-- name: settle_acks
-- functions/settle.sql
SELECT * FROM settle_acks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: account
-- A queue and one of its groups, by their unique indexes; the group is shared (functions/locks.sql). If it was deleted while we
-- waited for that, it has no leases left.
SELECT q.*, g.id AS group_id, g.active_at, g.idle, share_group(g.id)
FROM queue q CROSS JOIN LATERAL (SELECT g.* FROM consumer_group g WHERE g.queue_id = q.id AND g.name = $3 LIMIT 1) g
WHERE q.tenant = $1 AND q.name = $2 AND q.deleted_at IS NULL

-- name: share_groups
-- Given, and so shared, in the common order of groups.
SELECT share_group(g.id) FROM unnest($1::text[], $2::text[], $3::text[]) AS k (tenant, name, group_name)
CROSS JOIN LATERAL (
    SELECT q.id FROM queue q WHERE q.tenant = k.tenant AND q.name = k.name AND q.deleted_at IS NULL LIMIT 1) q
CROSS JOIN LATERAL (SELECT g.id FROM consumer_group g WHERE g.queue_id = q.id AND g.name = k.group_name LIMIT 1) g

-- name: mark_active
SELECT mark_active($1, $2)

-- name: lock_leases
-- Given, and so locked, in ascending partition order, like everywhere.
SELECT l.* FROM unnest($2::text[], $3::uuid[]) AS k (partition, token)
CROSS JOIN LATERAL (
    SELECT l.* FROM partition_lease l
    WHERE l.partition = k.partition AND l.group_id = $1 AND l.token = k.token FOR UPDATE) l

-- name: lock_sets
-- By the index on token; the casts rule out the other, which leads through all sets of the group.
SELECT s.* FROM set_lease s WHERE s.token = ANY ($3) AND s.queue_id::bigint = $1::integer AND s.group_id::bigint = $2::integer
ORDER BY s.id + 0 FOR UPDATE

-- name: shrink_set
UPDATE set_lease SET seqs = $2 WHERE id = $1

-- name: delete_set
DELETE FROM set_lease WHERE id = $1

-- name: insert_failed
INSERT INTO set_lease (queue_id, group_id, partition, priority, seqs, attempts, leased_at, ready_at, oldest_at, last_error)
SELECT $1, $2, s.partition, s.priority, $4, s.attempts, $8, $5,
       CASE WHEN m.created_at <= $8::bigint THEN m.created_at WHEN m.created_at IS NULL THEN s.oldest_at ELSE $8 END, $6
FROM set_lease s
LEFT JOIN LATERAL (SELECT m.created_at FROM message m WHERE (m.queue_id, m.seq) BETWEEN ($1, $7::bigint) AND ($1, $7::bigint) ORDER BY m.queue_id, m.seq LIMIT 1) m ON true
WHERE s.id = $3

-- name: insert_released
INSERT INTO set_lease (queue_id, group_id, partition, priority, seqs, attempts, ready_at, oldest_at, last_error)
SELECT s.queue_id, s.group_id, s.partition, s.priority, $2, s.attempts - 1, $3,
       coalesce((SELECT min(least(m.created_at, $3)) FROM unnest($2::bigint[]) AS k (seq) CROSS JOIN LATERAL (
           SELECT m.created_at FROM message m WHERE (m.queue_id, m.seq) BETWEEN (s.queue_id, k.seq) AND (s.queue_id, k.seq) ORDER BY m.queue_id, m.seq LIMIT 1) m), s.oldest_at),
       s.last_error
FROM set_lease s WHERE s.id = $1

-- name: end_leases
INSERT INTO lease_history (queue_id, group_id, settled_at, partition, first_seq, last_seq, messages, completed, attempt,
                           leased_at, outcome, token, answer)
SELECT $1, $2, $3, e.*
FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::integer[], $8::integer[], $9::integer[], $10::bigint[], $11::text[],
            $12::uuid[], $13::bytea[]) e

-- name: note_failures
-- A lease may outlive its message. Of one that was forgotten meanwhile nothing is noted. By the index on tombstones, which do not overlap.
INSERT INTO failed_attempt (queue_id, group_name, failed_at, seq, attempt, leased_at, outcome, error, consumer)
SELECT $1, $2, $3, f.*
FROM unnest($4::bigint[], $5::integer[], $6::bigint[], $7::text[], $8::text[], $9::text[]) AS f (seq, attempt, leased_at, outcome, error, consumer)
WHERE coalesce((SELECT t.last_seq FROM forgotten t WHERE t.queue_id::bigint = $1::integer AND t.first_seq <= f.seq
                ORDER BY t.queue_id::bigint DESC, t.first_seq DESC LIMIT 1), 0) < f.seq

-- name: forget_failures
-- functions/pop.sql
SELECT forget_failures($1, $2, $3, $4)

-- name: count_up
SELECT count_up($1, $2, $3, $4, $5, $6, 0, $7)

-- name: renew
-- One of the two tables holds the lease, by (partition, token).
SELECT renew($1, $2, $3, $4, $5, $6, $7, $8)
