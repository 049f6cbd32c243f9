-- Forgetting messages for good. By hand and seldom: never in the path of a push, pop or settlement.

-- name: last_seq
SELECT last_seq(q.id, q.floor_seq) FROM queue q WHERE q.id = $1

-- name: messages
-- The first messages of ascending ranges, without their payloads. By the primary key, range by range.
SELECT m.* FROM unnest($2::bigint[], $3::bigint[]) AS k (first, last)
CROSS JOIN LATERAL (
    SELECT m.queue_id, m.seq, m.id, m.partition, m.transaction_id, coalesce(m.trace_id, m.id) AS trace_id FROM message m
    WHERE (m.queue_id, m.seq) BETWEEN ($1, k.first) AND ($1, k.last) ORDER BY m.queue_id, m.seq LIMIT $4) m
ORDER BY m.seq LIMIT $4

-- name: stored
-- Of these places in several logs, those that have a message. By the primary key.
SELECT m.* FROM unnest($1::integer[], $2::bigint[]) AS k (queue_id, seq)
CROSS JOIN LATERAL (
    SELECT m.queue_id, m.seq, m.id, m.partition, m.transaction_id, coalesce(m.trace_id, m.id) AS trace_id,
           (SELECT 1 FROM dead_letter d WHERE d.queue_id = m.queue_id AND d.seq = m.seq ORDER BY d.queue_id, d.seq LIMIT 1) IS NOT NULL AS is_letter
    FROM message m
    WHERE (m.queue_id, m.seq) BETWEEN (k.queue_id, k.seq) AND (k.queue_id, k.seq) ORDER BY m.queue_id, m.seq LIMIT 1) m
ORDER BY m.queue_id, m.seq

-- name: letters
-- The first dead letters of ascending ranges of a source, which is known by its name: whoever has the same seqs of an earlier queue of that
-- name tells by id and time. By the index on the source.
SELECT d.queue_id, d.seq, d.id, d.source_seq, d.created_at FROM unnest($2::bigint[], $3::bigint[]) AS k (first, last)
CROSS JOIN LATERAL (
    SELECT d.queue_id, d.seq, d.id, d.source_seq, d.created_at FROM dead_letter d
    WHERE d.source_queue = $1 AND d.source_seq BETWEEN k.first AND k.last
      AND (SELECT CASE WHEN q.deleted_at IS NULL THEN q.tenant END FROM queue q WHERE q.id = d.queue_id LIMIT 1) = $5
    ORDER BY d.source_queue, d.source_seq, d.queue_id::bigint, d.seq + 0 LIMIT $4) d
ORDER BY d.source_seq LIMIT $4

-- name: letters_of
-- The dead letters of places in several logs, with the ids of their messages; the id is null where the message is gone.
SELECT d.queue_id, d.seq FROM unnest($1::integer[], $2::bigint[], $3::uuid[]) AS k (queue_id, seq, id)
CROSS JOIN LATERAL (SELECT q.name COLLATE "default" AS name, q.tenant, q.created_at FROM queue q WHERE q.id = k.queue_id LIMIT 1) s
CROSS JOIN LATERAL (
    SELECT d.queue_id, d.seq FROM dead_letter d
    WHERE d.source_queue = s.name AND d.source_seq BETWEEN k.seq AND k.seq
      AND CASE WHEN k.id IS NULL THEN d.created_at >= s.created_at ELSE d.id = k.id END
      AND (SELECT CASE WHEN q.deleted_at IS NULL THEN q.tenant END FROM queue q WHERE q.id = d.queue_id LIMIT 1) = s.tenant
    ORDER BY d.source_queue, d.source_seq, d.queue_id::bigint, d.seq + 0) d

-- name: replays_of_letters
-- By the primary key.
SELECT r.dead_queue, r.dead_seq, r.queue_id, r.seq FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS k (queue_id, first, last)
CROSS JOIN LATERAL (
    SELECT r.dead_queue, r.dead_seq, r.queue_id, r.seq FROM replay_history r
    WHERE r.dead_queue = k.queue_id AND r.dead_seq BETWEEN k.first AND k.last ORDER BY r.dead_queue, r.dead_seq) r

-- name: replays_of_ids
-- A dead letter has the id of its message. By the index on these.
SELECT r.dead_queue, r.dead_seq, r.queue_id, r.seq FROM unnest($1::uuid[]) AS k (id)
CROSS JOIN LATERAL (
    SELECT r.dead_queue, r.dead_seq, r.queue_id, r.seq FROM replay_history r WHERE r.dead_id = k.id ORDER BY r.dead_id) r

-- name: queues
-- Those that are not deleted.
SELECT q.id, q.tenant, q.name FROM unnest($1::integer[]) AS k (id)
CROSS JOIN LATERAL (SELECT q.id, q.tenant, q.name, q.deleted_at FROM queue q WHERE q.id = k.id LIMIT 1) q
WHERE q.deleted_at IS NULL ORDER BY q.id

-- name: take_groups
-- functions/locks.sql
SELECT take_groups($1, $2)

-- name: lock_log
SELECT lock_log($1)

-- name: lock_groups
-- In the common order of groups (functions/locks.sql). Waits for an external group that moves.
SELECT g.id FROM consumer_group g WHERE g.queue_id = $1 ORDER BY g.queue_id, g.name FOR UPDATE

-- name: fence
-- functions/forget.sql, in the common order of groups.
SELECT fence($1, g.id, $2, $3, $4) FROM (SELECT x.id FROM consumer_group x WHERE x.queue_id = $1 ORDER BY x.queue_id, x.name) g

-- name: forget_keys
-- Only the keys of these messages: a key may have expired and been used again. A key without a partition counts in the whole queue.
DELETE FROM dedup d
USING unnest(array_fill($1::integer, ARRAY[cardinality($2::text[])]), $2::text[], $3::text[], $4::uuid[]) AS k (queue_id, transaction_id, partition, id)
WHERE d.queue_id = ANY (ARRAY[k.queue_id]) AND d.transaction_id = k.transaction_id AND d.partition = ANY (ARRAY[k.partition, '']) AND d.message_id = k.id

-- name: forget_events
-- By the index on traces.
WITH found AS MATERIALIZED (
    SELECT e.ctid AS place FROM unnest($2::uuid[], $3::uuid[]) AS k (trace_id, id)
    CROSS JOIN LATERAL (SELECT e.ctid FROM trace_event e WHERE e.trace_id = k.trace_id AND e.tenant = $1 AND e.message_id = k.id
                        ORDER BY e.trace_id, e.tenant, e.position) e)
DELETE FROM trace_event e USING found f WHERE e.ctid = f.place

-- name: forget_failures
-- By the index on (queue, seq, id).
WITH found AS MATERIALIZED (
    SELECT f.ctid AS place FROM unnest($2::bigint[], $3::bigint[]) AS k (first, last)
    CROSS JOIN LATERAL (SELECT f.ctid FROM failed_attempt f WHERE f.queue_id = $1 AND f.seq BETWEEN k.first AND k.last
                        ORDER BY f.queue_id, f.seq, f.id) f)
DELETE FROM failed_attempt f USING found g WHERE f.ctid = g.place

-- name: forget_replays
-- Of letters of these seqs by the primary key, and those that made these messages by the index on messages.
WITH found AS MATERIALIZED (
    SELECT r.ctid AS place FROM unnest($2::bigint[], $3::bigint[]) AS k (first, last)
    CROSS JOIN LATERAL (
        (SELECT r.ctid FROM replay_history r WHERE r.dead_queue = $1 AND r.dead_seq BETWEEN k.first AND k.last
         ORDER BY r.dead_queue, r.dead_seq)
        UNION ALL
        (SELECT r.ctid FROM replay_history r WHERE r.queue_id::bigint = $1::integer AND r.seq BETWEEN k.first AND k.last
         ORDER BY r.queue_id::bigint, r.seq)) r)
DELETE FROM replay_history r USING found f WHERE r.ctid = f.place

-- name: known_tombstones
-- Those that overlap with ranges: they do not overlap with each other, so before a range only the last one can reach into it.
SELECT t.first_seq, t.last_seq FROM unnest($2::bigint[], $3::bigint[]) AS k (first, last)
CROSS JOIN LATERAL (
    (SELECT t.first_seq, t.last_seq FROM forgotten t WHERE t.queue_id::bigint = $1::integer AND t.first_seq < k.first
     ORDER BY t.queue_id::bigint DESC, t.first_seq DESC LIMIT 1)
    UNION ALL
    (SELECT t.first_seq, t.last_seq FROM forgotten t WHERE t.queue_id::bigint = $1::integer AND t.first_seq BETWEEN k.first AND k.last
     ORDER BY t.queue_id::bigint, t.first_seq)) t

-- name: add_tombstones
-- The holder of the log's lock gives out their positions.
INSERT INTO forgotten (queue_id, position, first_seq, last_seq, forgotten_at)
SELECT $1, coalesce((SELECT t.position FROM forgotten t WHERE t.queue_id = $1 ORDER BY t.queue_id DESC, t.position DESC LIMIT 1), 0) + k.place,
       k.first, k.last, $4
FROM unnest($2::bigint[], $3::bigint[]) WITH ORDINALITY AS k (first, last, place)

-- name: tombstones
-- By the primary key.
SELECT t.position, t.first_seq, t.last_seq, t.forgotten_at FROM forgotten t
WHERE t.queue_id = $1 AND t.position > $2 ORDER BY t.queue_id, t.position LIMIT $3

-- name: letters_of_source
-- A bounded look at the letters of a source, in the order of the index on it; payloads are not read. Letters of other tenants, and of an
-- earlier queue of that name ($7 is when this one was made), are passed over.
SELECT d.source_seq, d.queue_id, d.seq, q.name, d.partition, m.transaction_id, coalesce(m.trace_id, m.id) AS trace_id,
       q.tenant = $6 AND q.deleted_at IS NULL AND d.created_at >= $7 AS fits
FROM (SELECT d.source_seq, d.queue_id, d.seq, d.partition, d.created_at FROM dead_letter d
      WHERE d.source_queue = $1 AND (d.source_seq, d.queue_id::bigint, d.seq + 0) > ($2, $3::bigint, $4::bigint)
      ORDER BY d.source_queue, d.source_seq, d.queue_id::bigint, d.seq + 0 LIMIT $5) d
CROSS JOIN LATERAL (SELECT q.name, q.tenant, q.deleted_at FROM queue q WHERE q.id = d.queue_id LIMIT 1) q
CROSS JOIN LATERAL (SELECT m.transaction_id, m.trace_id, m.id FROM message m WHERE (m.queue_id, m.seq) BETWEEN (d.queue_id, d.seq) AND (d.queue_id, d.seq)
                    ORDER BY m.queue_id, m.seq LIMIT 1) m
ORDER BY d.source_seq, d.queue_id, d.seq
