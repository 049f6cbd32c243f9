-- Deleting one message that is not settled. By hand and seldom: never in the path of a push, pop or settlement.

-- name: message
-- The primary keys of both tables.
SELECT m.id, m.partition, m.transaction_id, m.audience, q.first_seq
FROM message m CROSS JOIN LATERAL (SELECT q.first_seq FROM queue q WHERE q.id = m.queue_id LIMIT 1) q
WHERE (m.queue_id, m.seq) BETWEEN ($1, $2::bigint) AND ($1, $2::bigint) ORDER BY m.queue_id, m.seq LIMIT 1

-- name: lock_groups
-- In the common order of groups (functions/locks.sql). Waits for an external group that moves.
SELECT g.id, g.name, g.external, g.scan_seq FROM consumer_group g WHERE g.queue_id = $1 ORDER BY g.queue_id, g.name FOR UPDATE

-- name: lock_leases
-- The row of one partition for each group, in the given order. Waits for an ack under way.
SELECT l.* FROM unnest($1::integer[]) AS k (id)
CROSS JOIN LATERAL (
    SELECT l.group_id, l.delivered_seq, l.token, l.leased, l.open FROM partition_lease l
    WHERE l.partition = $2 AND l.group_id = k.id FOR UPDATE) l

-- name: lock_sets
-- The sets that hold a seq, at most one for each group, in the given order. Walks over the group's sets.
SELECT s.* FROM unnest($1::integer[]) AS k (id)
CROSS JOIN LATERAL (
    SELECT s.group_id, s.token FROM set_lease s
    WHERE s.queue_id = $2 AND s.group_id = k.id AND s.partition = $3 AND s.seqs @> ARRAY[$4::bigint] FOR UPDATE) s

-- name: forget_failures
-- The failed attempts of the message. By the index on (queue, seq, id).
DELETE FROM failed_attempt WHERE queue_id = $1 AND seq = $2
