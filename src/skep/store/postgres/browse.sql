-- name: group_id
SELECT id FROM consumer_group WHERE queue_id = $1 AND name = $2

-- name: bounds
-- The seqs of a period, by binary search. Cleared and retained messages may still be held by a group, or await their deletion.
-- Only with a filter by state, or when they are asked for ($4), they are shown.
SELECT CASE WHEN $2::bigint IS NULL THEN x.first_seq ELSE seq_at(q.id, x.first_seq, x.last_seq, $2) END AS low,
       CASE WHEN $3::bigint IS NULL THEN x.last_seq ELSE seq_at(q.id, x.first_seq, x.last_seq, $3) - 1 END AS high
FROM queue q CROSS JOIN LATERAL (
    SELECT CASE WHEN $4::boolean THEN 1 ELSE q.first_seq END AS first_seq, last_seq(q.id, q.floor_seq) AS last_seq) x
WHERE q.id = $1

-- name: by_seq
SELECT m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority, m.created_at, m.audience,
       length(m.payload) AS payload_bytes, CASE WHEN $5::integer IS NULL THEN m.payload ELSE substring(m.payload FOR $5) END AS payload
FROM message m WHERE m.queue_id = $1 AND m.seq BETWEEN $2 AND $3 ORDER BY m.queue_id, m.seq LIMIT $4

-- name: by_seq_down
SELECT m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority, m.created_at, m.audience,
       length(m.payload) AS payload_bytes, CASE WHEN $5::integer IS NULL THEN m.payload ELSE substring(m.payload FOR $5) END AS payload
FROM message m WHERE m.queue_id = $1 AND m.seq BETWEEN $2 AND $3 ORDER BY m.queue_id DESC, m.seq DESC LIMIT $4

-- name: by_seqs
-- The primary key, message by message, in the order in which they are asked for.
SELECT m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority, m.created_at, m.audience,
       length(m.payload) AS payload_bytes, CASE WHEN $3::integer IS NULL THEN m.payload ELSE substring(m.payload FOR $3) END AS payload
FROM unnest($2::bigint[]) WITH ORDINALITY AS k (seq, place)
CROSS JOIN LATERAL (SELECT * FROM message m WHERE (m.queue_id, m.seq) BETWEEN ($1, k.seq) AND ($1, k.seq) ORDER BY m.queue_id, m.seq LIMIT 1) m
ORDER BY k.place

-- name: by_partition
SELECT m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority, m.created_at, m.audience,
       length(m.payload) AS payload_bytes, CASE WHEN $5::integer IS NULL THEN m.payload ELSE substring(m.payload FOR $5) END AS payload
FROM message m WHERE m.partition = $6 AND m.queue_id = $1 AND m.seq BETWEEN $2 AND $3
ORDER BY m.partition, m.queue_id, m.seq LIMIT $4

-- name: by_partition_down
SELECT m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority, m.created_at, m.audience,
       length(m.payload) AS payload_bytes, CASE WHEN $5::integer IS NULL THEN m.payload ELSE substring(m.payload FOR $5) END AS payload
FROM message m WHERE m.partition = $6 AND m.queue_id = $1 AND m.seq BETWEEN $2 AND $3
ORDER BY m.partition DESC, m.queue_id DESC, m.seq DESC LIMIT $4

-- name: by_transaction_id
SELECT m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority, m.created_at, m.audience,
       length(m.payload) AS payload_bytes, CASE WHEN $7::integer IS NULL THEN m.payload ELSE substring(m.payload FOR $7) END AS payload
FROM message m
WHERE m.transaction_id = $2 AND m.queue_id = $1 AND m.seq BETWEEN $3 AND $4 AND ($5::text IS NULL OR m.partition = $5)
  AND ($8::uuid IS NULL OR coalesce(m.trace_id, m.id) = $8)
ORDER BY m.transaction_id, m.queue_id, m.seq LIMIT $6

-- name: by_transaction_id_down
SELECT m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority, m.created_at, m.audience,
       length(m.payload) AS payload_bytes, CASE WHEN $7::integer IS NULL THEN m.payload ELSE substring(m.payload FOR $7) END AS payload
FROM message m
WHERE m.transaction_id = $2 AND m.queue_id = $1 AND m.seq BETWEEN $3 AND $4 AND ($5::text IS NULL OR m.partition = $5)
  AND ($8::uuid IS NULL OR coalesce(m.trace_id, m.id) = $8)
ORDER BY m.transaction_id DESC, m.queue_id DESC, m.seq DESC LIMIT $6

-- name: by_trace
-- By the index on trace ids; the cast rules out the primary key, which leads through the whole log.
SELECT m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority, m.created_at, m.audience,
       length(m.payload) AS payload_bytes, CASE WHEN $4::integer IS NULL THEN m.payload ELSE substring(m.payload FOR $4) END AS payload
FROM message m
WHERE m.trace_id = $2 AND m.queue_id::bigint = $1::integer AND m.seq BETWEEN $5 AND $6 AND ($7::text IS NULL OR m.partition = $7)
ORDER BY m.seq LIMIT $3

-- name: by_trace_down
SELECT m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority, m.created_at, m.audience,
       length(m.payload) AS payload_bytes, CASE WHEN $4::integer IS NULL THEN m.payload ELSE substring(m.payload FOR $4) END AS payload
FROM message m
WHERE m.trace_id = $2 AND m.queue_id::bigint = $1::integer AND m.seq BETWEEN $5 AND $6 AND ($7::text IS NULL OR m.partition = $7)
ORDER BY m.seq DESC LIMIT $3

-- name: by_implied_trace
-- The trace id was not given, so it is the message's own id: look where its millisecond lies in the log.
SELECT m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority, m.created_at, m.audience,
       length(m.payload) AS payload_bytes, CASE WHEN $5::integer IS NULL THEN m.payload ELSE substring(m.payload FOR $5) END AS payload
FROM queue q
CROSS JOIN LATERAL (SELECT last_seq(q.id, q.floor_seq) AS last_seq) x
CROSS JOIN LATERAL (
    SELECT * FROM message m
    WHERE (m.queue_id, m.seq) >= (q.id, seq_at(q.id, q.first_seq, x.last_seq, $3))
      AND (m.queue_id, m.seq) < (q.id, seq_at(q.id, q.first_seq, x.last_seq, $4)) AND m.id = $2 AND m.trace_id IS NULL
    ORDER BY m.queue_id, m.seq) m
WHERE q.id = $1

-- name: states
-- The state of each message of a page in a group; null when it is for another group only. A dead letter is also compared by its id: an
-- earlier queue of that name may have left letters with the same seqs. Expired messages are not dead, and neither are those that the
-- group was moved back to: they come again.
WITH viewer AS MATERIALIZED (
    SELECT g.id, g.name, g.scan_seq, g.external, q.name COLLATE "default" AS queue_name,
           (SELECT t.id FROM queue t WHERE t.tenant = q.tenant AND t.name = coalesce(q.dead_letter_queue, q.name || '.dead')
              AND t.deleted_at IS NULL) AS grave
    FROM (SELECT * FROM consumer_group g WHERE g.id = $2 LIMIT 1) g
    CROSS JOIN LATERAL (SELECT * FROM queue q WHERE q.id = g.queue_id LIMIT 1) q
), page AS MATERIALIZED (
    -- One walk over the group's sets, matched by grouping: a join may compare each message with each in a set.
    SELECT x.seq, min(x.ord) AS ord, min(x.partition) AS partition, min(x.audience) AS audience,
           (array_agg(x.id) FILTER (WHERE x.ord IS NOT NULL))[1] AS id, bool_or(x.leased) AS in_leased_set
    FROM (SELECT k.seq, k.partition, k.audience, k.id, k.ord, NULL::boolean AS leased
          FROM unnest($4::bigint[], $5::text[], $6::integer[], $7::uuid[]) WITH ORDINALITY AS k (seq, partition, audience, id, ord)
          UNION ALL
          SELECT u.seq, NULL, NULL, NULL, NULL, s.token IS NOT NULL AND s.ready_at > $3
          FROM set_lease s CROSS JOIN unnest(s.seqs) AS u (seq) WHERE s.queue_id = $1 AND s.group_id = $2) x
    GROUP BY x.seq HAVING count(x.ord) > 0
)
SELECT CASE
    WHEN k.audience <> v.id AND NOT v.external THEN NULL
    WHEN k.seq > v.scan_seq OR k.seq > l.delivered_seq THEN 'pending'
    WHEN k.seq = ANY (l.open) THEN
        CASE WHEN l.token IS NOT NULL AND l.ready_at > $3 AND k.seq = ANY (l.open[1:l.leased]) THEN 'in_flight' ELSE 'pending' END
    WHEN k.in_leased_set IS NOT NULL THEN CASE WHEN k.in_leased_set THEN 'in_flight' ELSE 'pending' END
    WHEN d.seq IS NOT NULL THEN 'dead'
    ELSE 'settled' END AS state
FROM page k CROSS JOIN viewer v
LEFT JOIN LATERAL (SELECT l.* FROM partition_lease l WHERE l.partition = k.partition AND l.group_id = v.id LIMIT 1) l ON true
LEFT JOIN LATERAL (SELECT d.seq FROM dead_letter d
                   WHERE d.queue_id = v.grave AND d.source_queue = v.queue_name AND d.source_seq = k.seq AND d.id = k.id
                     AND d.group_name = v.name AND d.reason <> 'expired'
                   ORDER BY d.source_queue, d.source_seq, d.queue_id::bigint LIMIT 1) d ON true
ORDER BY k.ord

-- name: log_bounds
-- The primary keys, backwards.
SELECT q.first_seq, greatest(m.seq, q.floor_seq) AS last_seq, m.created_at AS last_at, q.created_at, coalesce(t.position, 0) AS forgotten
FROM queue q
LEFT JOIN LATERAL (SELECT m.seq, m.created_at FROM message m WHERE m.queue_id = q.id
                   ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1) m ON true
LEFT JOIN LATERAL (SELECT t.position FROM forgotten t WHERE t.queue_id = q.id ORDER BY t.queue_id DESC, t.position DESC LIMIT 1) t ON true
WHERE q.id = $1

-- name: bounds_of_logs
-- The same for many queues, each found by the unique index on (tenant, name): the limit keeps the planner from a walk over all of them.
SELECT q.name, q.first_seq, greatest(m.seq, q.floor_seq) AS last_seq, m.created_at AS last_at, q.created_at,
       coalesce(t.position, 0) AS forgotten
FROM unnest($2::text[]) AS wanted(name)
CROSS JOIN LATERAL (SELECT * FROM queue q WHERE q.tenant = $1 AND q.name = wanted.name AND q.deleted_at IS NULL LIMIT 1) q
LEFT JOIN LATERAL (SELECT m.seq, m.created_at FROM message m WHERE m.queue_id = q.id
                   ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1) m ON true
LEFT JOIN LATERAL (SELECT t.position FROM forgotten t WHERE t.queue_id = q.id ORDER BY t.queue_id DESC, t.position DESC LIMIT 1) t ON true
