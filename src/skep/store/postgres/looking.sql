-- name: last_seq
SELECT last_seq(q.id, q.floor_seq) FROM queue q WHERE q.id = $1

-- name: queue_figures
-- Of many queues at once, each by its own look-ups. The samples are those around a minute ago. Dead
-- letters are those it holds, and its own elsewhere: two sums of changes, so that they are not counted.
SELECT q.id, q.first_seq, x.last_seq, q.gaps, q.scheduled_count, log_depth(q.id, q.first_seq, x.last_seq, q.gaps) + q.scheduled_count AS depth,
       ((SELECT coalesce(sum(d.change), 0) FROM dead_letter_change d WHERE d.queue_id = q.id)
        + (SELECT coalesce(sum(d.change), 0) FROM dead_letter_change d WHERE d.source_queue = q.name AND d.queue_id = (
             SELECT t.id FROM queue t
             WHERE t.tenant = q.tenant AND t.name = coalesce(q.dead_letter_queue, q.name || '.dead') AND t.deleted_at IS NULL
               AND t.id <> q.id)))::bigint AS dead_letters,
       (SELECT m.created_at FROM message m WHERE m.queue_id = q.id AND m.seq >= q.first_seq ORDER BY m.queue_id, m.seq LIMIT 1) AS first_at,
       b.at AS before_at, b.last_seq AS before_seq, a.at AS after_at, a.last_seq AS after_seq
FROM unnest($1::integer[]) AS k (id)
CROSS JOIN LATERAL (SELECT * FROM queue q WHERE q.id = k.id LIMIT 1) q
CROSS JOIN LATERAL (SELECT last_seq(q.id, q.floor_seq) AS last_seq) x
LEFT JOIN LATERAL (SELECT p.last_seq, p.at FROM sample p WHERE p.queue_id = q.id AND p.group_id = 0 AND p.at <= $2
                   ORDER BY p.queue_id DESC, p.group_id DESC, p.at DESC LIMIT 1) b ON true
LEFT JOIN LATERAL (SELECT p.last_seq, p.at FROM sample p WHERE p.queue_id = q.id AND p.group_id = 0 AND p.at > $2
                   ORDER BY p.queue_id, p.group_id, p.at LIMIT 1) a ON true
WHERE q.deleted_at IS NULL

-- name: group_figures
-- Counters, and one walk over the rows of unsettled partitions: as many as there are partitions with work.
SELECT g.id, g.queue_id, g.name, g.start_seq, g.scan_seq, g.gaps, g.active_at, g.idle, g.created_at, g.external, c.completed, c.dead, c.expired, c.skipped, c.retried,
       l.unsettled + s.unsettled AS unsettled, l.in_flight + s.in_flight AS in_flight,
       l.partitions + s.partitions AS partitions, l.leased_partitions + s.leased_partitions AS leased_partitions,
       least(l.oldest_at, s.oldest_at) AS oldest_at,
       least(g.scan_seq, coalesce(l.settled, g.scan_seq), coalesce(s.settled, g.scan_seq)) AS progress_seq,
       (SELECT m.created_at FROM message m WHERE m.queue_id = g.queue_id AND m.seq > g.scan_seq
          AND (m.audience IS NULL OR m.audience = g.id OR g.external)
        ORDER BY m.queue_id, m.seq LIMIT 1) AS undiscovered_at,
       b.at AS before_at, b.last_seq AS before_seq, b.completed AS before_completed, b.dead AS before_dead,
       b.retried AS before_retried, a.at AS after_at, a.last_seq AS after_seq, a.completed AS after_completed,
       a.dead AS after_dead, a.retried AS after_retried
FROM unnest($1::integer[]) AS k (id)
CROSS JOIN LATERAL (
    SELECT * FROM consumer_group g WHERE g.queue_id = k.id AND ($4::text IS NULL OR g.name = $4) OFFSET 0) g
CROSS JOIN LATERAL (
    SELECT coalesce(sum(c.completed), 0)::bigint AS completed, coalesce(sum(c.dead), 0)::bigint AS dead,
           coalesce(sum(c.expired), 0)::bigint AS expired, coalesce(sum(c.skipped), 0)::bigint AS skipped,
           coalesce(sum(c.retried), 0)::bigint AS retried
    FROM group_counter c WHERE c.group_id = g.id) c
CROSS JOIN LATERAL (
    SELECT coalesce(sum(l.pending + cardinality(l.open)), 0)::bigint AS unsettled,
           coalesce(sum(l.leased) FILTER (WHERE l.token IS NOT NULL AND l.ready_at > $2), 0)::bigint AS in_flight,
           count(*) FILTER (WHERE l.token IS NULL OR l.ready_at <= $2) AS partitions,
           count(*) FILTER (WHERE l.token IS NOT NULL AND l.ready_at > $2) AS leased_partitions,
           min(l.oldest_at) AS oldest_at, min(coalesce(l.open[1] - 1, l.delivered_seq)) AS settled
    FROM partition_lease l WHERE l.queue_id = g.queue_id AND l.group_id::bigint = g.id) l
CROSS JOIN LATERAL (
    SELECT coalesce(sum(cardinality(s.seqs)), 0)::bigint AS unsettled,
           coalesce(sum(cardinality(s.seqs)) FILTER (WHERE s.token IS NOT NULL AND s.ready_at > $2), 0)::bigint AS in_flight,
           count(DISTINCT s.partition) FILTER (WHERE s.token IS NULL OR s.ready_at <= $2) AS partitions,
           count(DISTINCT s.partition) FILTER (WHERE s.token IS NOT NULL AND s.ready_at > $2) AS leased_partitions,
           min(s.oldest_at) AS oldest_at, min(s.seqs[1]) - 1 AS settled
    FROM set_lease s WHERE s.queue_id = g.queue_id AND s.group_id = g.id) s
LEFT JOIN LATERAL (SELECT * FROM sample p WHERE p.queue_id = g.queue_id AND p.group_id = g.id AND p.at <= $3
                   ORDER BY p.queue_id DESC, p.group_id DESC, p.at DESC LIMIT 1) b ON true
LEFT JOIN LATERAL (SELECT * FROM sample p WHERE p.queue_id = g.queue_id AND p.group_id = g.id AND p.at > $3
                   ORDER BY p.queue_id, p.group_id, p.at LIMIT 1) a ON true
ORDER BY g.queue_id, g.name

-- name: partitions
SELECT x.partition, sum(x.unsettled)::bigint AS unsettled, sum(x.in_flight)::bigint AS in_flight, max(x.attempts) AS attempts,
       min(x.oldest_at) AS oldest_at, min(x.ready_at) AS ready_at, min(x.lease_deadline) AS lease_deadline,
       max(x.last_error) AS last_error
FROM (
    SELECT l.partition, l.pending + cardinality(l.open) AS unsettled,
           CASE WHEN l.token IS NOT NULL AND l.ready_at > $3 THEN l.leased ELSE 0 END AS in_flight, l.attempts, l.oldest_at,
           l.ready_at, CASE WHEN l.token IS NOT NULL AND l.ready_at > $3 THEN l.ready_at END AS lease_deadline, l.last_error
    FROM consumer_group g
    CROSS JOIN LATERAL (SELECT * FROM partition_lease l WHERE l.queue_id = $1 AND l.group_id::bigint = g.id OFFSET 0) l
    WHERE g.queue_id = $1 AND g.name = $2 AND l.partition > $4
    UNION ALL
    SELECT s.partition, cardinality(s.seqs),
           CASE WHEN s.token IS NOT NULL AND s.ready_at > $3 THEN cardinality(s.seqs) ELSE 0 END, s.attempts, s.oldest_at,
           s.ready_at, CASE WHEN s.token IS NOT NULL AND s.ready_at > $3 THEN s.ready_at END, s.last_error
    FROM consumer_group g
    CROSS JOIN LATERAL (SELECT * FROM set_lease s WHERE s.queue_id = $1 AND s.group_id = g.id OFFSET 0) s
    WHERE g.queue_id = $1 AND g.name = $2 AND s.partition > $4
) x
GROUP BY x.partition ORDER BY x.partition LIMIT $5

-- name: leases
-- Live leases by deadline: what is ready later than now and has a token.
-- The order within keeps the planner to the tenant's queues.
SELECT q.name AS queue_name, g.name AS group_name, x.*
FROM (SELECT k.id, k.name FROM queue k
      WHERE k.tenant = $1 AND k.deleted_at IS NULL AND ($3::text IS NULL OR k.name = $3) ORDER BY k.tenant, k.name) q
CROSS JOIN LATERAL (SELECT * FROM consumer_group g WHERE g.queue_id = q.id OFFSET 0) g
CROSS JOIN LATERAL (
    (SELECT l.partition, l.leased AS messages, l.open[1] AS first_seq, l.open[l.leased] AS last_seq, l.leased_at, l.ready_at, l.attempts, l.consumer
     FROM partition_lease l
     WHERE l.queue_id = q.id AND l.group_id::bigint = g.id AND l.ready_at > $2 AND l.token IS NOT NULL
       AND ($4::bigint IS NULL OR l.ready_at < $4)
     ORDER BY l.group_id::bigint, l.ready_at LIMIT $5)
    UNION ALL
    (SELECT s.partition, cardinality(s.seqs), s.seqs[1], s.seqs[cardinality(s.seqs)], s.leased_at, s.ready_at, s.attempts, s.consumer
     FROM set_lease s
     WHERE s.queue_id = q.id AND s.group_id = g.id AND s.ready_at > $2 AND s.token IS NOT NULL
       AND ($4::bigint IS NULL OR s.ready_at < $4)
     ORDER BY s.ready_at LIMIT $5)) x
ORDER BY x.ready_at, q.name, g.name, x.partition LIMIT $5

-- name: group_id
SELECT id FROM consumer_group WHERE queue_id = $1 AND name = $2

-- name: bounds
-- The seqs of a stretch of time, by binary search. Messages that were cleared or retained away may still be held by a group, or await
-- their deletion. Only a filter by state ($4) shows them.
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
-- Nobody gave a trace id, so it is the message's own: looked for where its millisecond lies in the log.
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
-- How far a group has come with each message of a page; null when it is for another group only. A dead letter is known by its id
-- too: an earlier queue of that name may have left letters with the same seqs. What expired is not counted as dead, and neither is
-- what the group was moved back to: it is to come again.
WITH viewer AS MATERIALIZED (
    SELECT g.id, g.name, g.scan_seq, g.external, q.name AS queue_name,
           (SELECT t.id FROM queue t WHERE t.tenant = q.tenant AND t.name = coalesce(q.dead_letter_queue, q.name || '.dead')
              AND t.deleted_at IS NULL) AS grave
    FROM (SELECT * FROM consumer_group g WHERE g.id = $2 LIMIT 1) g
    CROSS JOIN LATERAL (SELECT * FROM queue q WHERE q.id = g.queue_id LIMIT 1) q
), page AS MATERIALIZED (
    -- Once over the group's sets, and matched by grouping: a join may compare each message with each that is in a set.
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
                   ORDER BY d.queue_id, d.source_queue, d.source_seq LIMIT 1) d ON true
ORDER BY k.ord

-- name: retention_history
SELECT * FROM retention_history r WHERE r.queue_id = $1 ORDER BY r.queue_id DESC, r.at DESC LIMIT $2

-- name: log_bounds
-- The primary key, backwards.
SELECT q.first_seq, greatest(m.seq, q.floor_seq) AS last_seq, m.created_at AS last_at, q.created_at
FROM queue q
LEFT JOIN LATERAL (SELECT m.seq, m.created_at FROM message m WHERE m.queue_id = q.id
                   ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1) m ON true
WHERE q.id = $1

-- name: bounds_of_logs
-- The same for many queues, each found by the unique index on (tenant, name): the limit keeps the planner from a walk over all of them.
SELECT q.name, q.first_seq, greatest(m.seq, q.floor_seq) AS last_seq, m.created_at AS last_at, q.created_at
FROM unnest($2::text[]) AS wanted(name)
CROSS JOIN LATERAL (SELECT * FROM queue q WHERE q.tenant = $1 AND q.name = wanted.name AND q.deleted_at IS NULL LIMIT 1) q
LEFT JOIN LATERAL (SELECT m.seq, m.created_at FROM message m WHERE m.queue_id = q.id
                   ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1) m ON true

-- name: first_seq_at
SELECT start_position($1, 'time', $2) + 1

-- name: beyond
-- The first seq from $2 to $3 up to which payloads have more than $4 bytes together, and whether it has them alone. The length of a
-- payload that is stored apart is known without reading it; the walk ends where that is.
SELECT b.seq, b.through = b.own AS is_first
FROM (SELECT m.seq, octet_length(m.payload) AS own,
             sum(octet_length(m.payload)) OVER (ORDER BY m.queue_id, m.seq ROWS UNBOUNDED PRECEDING) AS through
      FROM message m WHERE m.queue_id = $1 AND m.seq >= $2 AND m.seq <= $3) b
WHERE b.through > $4
LIMIT 1
