-- History: figures by the minute, deliveries of a message, events of traces. Each read is bounded.

-- name: figures
-- From the newest row before the minute on, which has the figures at its beginning.
SELECT p.at, p.pushed, p.completed, p.retried, p.dead, p.depth FROM past p
WHERE p.tenant = $1 AND p.queue_id = $2 AND p.minute >= coalesce(
    (SELECT b.minute FROM past b WHERE b.tenant = $1 AND b.queue_id = $2 AND b.minute < $3
     ORDER BY b.tenant DESC, b.queue_id DESC, b.minute DESC LIMIT 1), $3)
ORDER BY p.tenant, p.queue_id, p.minute LIMIT $4

-- name: figures_of
-- Of many queues at once, each by its own look-ups.
SELECT k.place, p.at, p.pushed, p.completed, p.retried, p.dead, p.depth
FROM unnest($2::text[]) WITH ORDINALITY AS k (name, place)
CROSS JOIN LATERAL (SELECT q.id FROM queue q WHERE q.tenant = $1 AND q.name = k.name AND q.deleted_at IS NULL
                    ORDER BY q.tenant, q.name LIMIT 1) q
CROSS JOIN LATERAL (
    SELECT * FROM past p WHERE p.tenant = $1 AND p.queue_id = q.id AND p.minute >= coalesce(
        (SELECT b.minute FROM past b WHERE b.tenant = $1 AND b.queue_id = q.id AND b.minute < $3
         ORDER BY b.tenant DESC, b.queue_id DESC, b.minute DESC LIMIT 1), $3)
    ORDER BY p.tenant, p.queue_id, p.minute LIMIT $4) p
ORDER BY k.place, p.minute

-- name: queue_id
SELECT q.id FROM queue q WHERE q.tenant = $1 AND q.name = $2 AND q.deleted_at IS NULL

-- name: first_lease_ended
SELECT first_lease_ended($1)

-- name: last_lease_ended
SELECT h.id FROM lease_history h WHERE h.id > 0 ORDER BY h.id DESC LIMIT 1

-- name: lease_history
-- The primary key, from an id on.
SELECT h.*, coalesce(g.name, '') AS group_name FROM lease_history h 
LEFT JOIN LATERAL (SELECT g.name FROM consumer_group g WHERE g.id = h.group_id LIMIT 1) g ON true
WHERE h.id > $2 AND h.queue_id = $1 AND h.settled_at >= $4 ORDER BY h.id LIMIT $3

-- name: deliveries
-- Of many messages at once. A bounded number of rows from the first lease that ended after a message came, and of the newest rows; of
-- these, the leases of the message.
SELECT k.place, h.*, coalesce(g.name, '') AS group_name
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) WITH ORDINALITY
    AS k (tenant, queue, partition, seq, created_at, place)
CROSS JOIN LATERAL (SELECT q.id FROM queue q WHERE q.tenant = k.tenant AND q.name = k.queue AND q.deleted_at IS NULL
                    ORDER BY q.tenant, q.name LIMIT 1) q
CROSS JOIN LATERAL (SELECT coalesce(first_lease_ended(k.created_at), $6) AS id) f
CROSS JOIN LATERAL (
    SELECT * FROM (
        (SELECT * FROM lease_history h WHERE h.id >= f.id AND h.id < f.id + $7 ORDER BY h.id LIMIT $7)
        UNION ALL
        (SELECT * FROM lease_history h WHERE h.id >= greatest(f.id + $7, $6 + 1 - $7) ORDER BY h.id LIMIT $7)) h
    WHERE h.queue_id = q.id AND h.partition = k.partition AND h.first_seq <= k.seq AND h.last_seq >= k.seq
    OFFSET 0) h
LEFT JOIN LATERAL (SELECT g.name FROM consumer_group g WHERE g.id = h.group_id LIMIT 1) g ON true
ORDER BY k.place, h.id

-- name: failures
-- Of many messages at once, each by its own look-up in the index on (queue, seq, id).
SELECT k.place, f.* FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS k (tenant, queue, seq, place)
CROSS JOIN LATERAL (SELECT q.id FROM queue q WHERE q.tenant = k.tenant AND q.name = k.queue AND q.deleted_at IS NULL
                    ORDER BY q.tenant, q.name LIMIT 1) q
CROSS JOIN LATERAL (
    SELECT f.id, f.group_name, f.attempt, f.leased_at, f.failed_at, f.outcome, f.error, f.consumer FROM failed_attempt f
    WHERE f.queue_id = q.id AND f.seq = k.seq ORDER BY f.queue_id DESC, f.seq DESC, f.id DESC LIMIT $4) f
ORDER BY k.place, f.id

-- name: lease_times
-- By the index on (queue, id), backwards; each first message by the primary key. A settled lease has left its token.
SELECT coalesce(g.name, '') AS group_name, h.settled_at, CASE WHEN h.attempt = 1 THEN h.leased_at - m.created_at END AS wait_micros,
       CASE WHEN h.token IS NOT NULL AND h.outcome <> 'released' THEN h.settled_at - h.leased_at END AS held_micros
FROM (SELECT h.* FROM lease_history h WHERE h.queue_id::bigint = $1::integer
      ORDER BY h.queue_id::bigint DESC, h.id + 0 DESC LIMIT $2) h
LEFT JOIN LATERAL (SELECT m.created_at FROM message m WHERE (m.queue_id, m.seq) BETWEEN ($1, h.first_seq) AND ($1, h.first_seq)
                   ORDER BY m.queue_id, m.seq LIMIT 1) m ON true
LEFT JOIN LATERAL (SELECT g.name FROM consumer_group g WHERE g.id = h.group_id LIMIT 1) g ON true
WHERE h.settled_at >= $3

-- name: note_events
INSERT INTO trace_event (at, tenant, trace_id, message_id, queue, name, data)
SELECT e.at, $1, e.trace_id, e.message_id, e.queue, e.name, e.data
FROM unnest($2::bigint[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::bytea[])
    WITH ORDINALITY AS e (at, trace_id, message_id, queue, name, data, place)
ORDER BY e.place

-- name: events_of_trace
SELECT e.* FROM trace_event e WHERE e.trace_id = $2 AND e.tenant = $1
ORDER BY e.trace_id, e.tenant, e.position LIMIT $3

-- name: events_of_name
SELECT e.* FROM trace_event e WHERE e.tenant = $1 AND e.name = $2 AND e.position < $3
ORDER BY e.tenant DESC, e.name DESC, e.position DESC LIMIT $4

-- name: names
-- One step from name to name by the index, however many events each has.
WITH RECURSIVE found AS (
    (SELECT e.name FROM trace_event e WHERE e.tenant = $1 AND e.name > $2 ORDER BY e.tenant, e.name LIMIT 1)
    UNION ALL
    SELECT n.name FROM found f CROSS JOIN LATERAL (
        SELECT e.name FROM trace_event e WHERE e.tenant = $1 AND e.name > f.name ORDER BY e.tenant, e.name LIMIT 1) n
), page AS (SELECT f.name FROM found f LIMIT $3)
SELECT s.name, l.at FROM page s CROSS JOIN LATERAL (
    SELECT e.at FROM trace_event e WHERE e.tenant = $1 AND e.name = s.name
    ORDER BY e.tenant DESC, e.name DESC, e.position DESC LIMIT 1) l

-- name: deaths
SELECT d.seq, d.source_queue, d.group_name, d.reason, d.error, d.attempts, d.failed_at FROM dead_letter d
WHERE d.queue_id = $1 ORDER BY d.queue_id DESC, d.seq DESC LIMIT $2
