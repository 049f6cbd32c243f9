-- name: last_seq
SELECT last_seq(q.id, q.floor_seq) FROM queue q WHERE q.id = $1

-- name: queue_figures
-- Of many queues at once, each by its own look-ups. The samples are those around a minute ago. Dead
-- letters are those a queue holds and its own in other queues: two sums of changes, so that no letters are counted.
SELECT q.id, q.first_seq, x.last_seq, q.gaps, q.scheduled_count, log_depth(q.id, q.first_seq, x.last_seq, q.gaps) + q.scheduled_count AS depth,
       ((SELECT coalesce(sum(d.change), 0) FROM dead_letter_change d WHERE d.queue_id = q.id)
        + (SELECT coalesce(sum(d.change), 0) FROM dead_letter_change d WHERE d.source_queue = q.name AND d.queue_id = (
             SELECT t.id FROM queue t
             WHERE t.tenant = q.tenant AND t.name = coalesce(q.dead_letter_queue, q.name || '.dead') AND t.deleted_at IS NULL
               AND t.id <> q.id)))::bigint AS dead_letters,
       (SELECT m.created_at FROM message m WHERE m.queue_id = q.id AND m.seq >= q.first_seq ORDER BY m.queue_id, m.seq LIMIT 1) AS first_at,
       v.archived_seq, (SELECT m.created_at FROM message m WHERE q.retention_requires_archive AND m.queue_id = q.id
                          AND m.seq > greatest(q.first_seq - 1, coalesce(v.archived_seq, 0))
                        ORDER BY m.queue_id, m.seq LIMIT 1) AS unarchived_at,
       b.at AS before_at, b.last_seq AS before_seq, a.at AS after_at, a.last_seq AS after_seq
FROM unnest($1::integer[]) AS k (id)
CROSS JOIN LATERAL (SELECT * FROM queue q WHERE q.id = k.id LIMIT 1) q
CROSS JOIN LATERAL (SELECT last_seq(q.id, q.floor_seq) AS last_seq) x
CROSS JOIN LATERAL (SELECT CASE WHEN q.retention_requires_archive THEN archived_seq(q.id) END AS archived_seq) v
LEFT JOIN LATERAL (SELECT p.last_seq, p.at FROM sample p WHERE p.queue_id = q.id AND p.group_id = 0 AND p.at <= $2
                   ORDER BY p.queue_id DESC, p.group_id DESC, p.at DESC LIMIT 1) b ON true
LEFT JOIN LATERAL (SELECT p.last_seq, p.at FROM sample p WHERE p.queue_id = q.id AND p.group_id = 0 AND p.at > $2
                   ORDER BY p.queue_id, p.group_id, p.at LIMIT 1) a ON true
WHERE q.deleted_at IS NULL

-- name: group_figures
-- Counters, and one walk over the rows of unsettled partitions: as many as there are partitions with work.
SELECT g.id, g.queue_id, g.name, g.start_seq, g.scan_seq, g.gaps, g.active_at, g.idle, g.created_at, g.external, g.archived_seq, c.completed, c.dead, c.expired, c.skipped, c.retried,
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

-- name: progress_of_logs
-- Each queue by the unique index on (tenant, name). The least first unsettled seq - 1, over the group's rows; without rows, how far it has discovered.
SELECT q.name, least(g.scan_seq, coalesce(l.settled, g.scan_seq), coalesce(s.settled, g.scan_seq)) AS seq
FROM unnest($2::text[]) AS wanted(name)
CROSS JOIN LATERAL (SELECT * FROM queue q WHERE q.tenant = $1 AND q.name = wanted.name AND q.deleted_at IS NULL LIMIT 1) q
CROSS JOIN LATERAL (SELECT * FROM consumer_group g WHERE g.queue_id = q.id AND g.name = $3 LIMIT 1) g
CROSS JOIN LATERAL (SELECT min(coalesce(l.open[1] - 1, l.delivered_seq)) AS settled
                    FROM partition_lease l WHERE l.queue_id = g.queue_id AND l.group_id::bigint = g.id) l
CROSS JOIN LATERAL (SELECT min(s.seqs[1]) - 1 AS settled FROM set_lease s WHERE s.queue_id = g.queue_id AND s.group_id = g.id) s

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

-- name: leased_in_partitions
-- The messages under live leases of some partitions: a row each of an ordered queue, or the sets of an unordered one.
SELECT x.partition, x.token, x.deadline, m.seq, m.id, m.transaction_id
FROM (
    SELECT l.partition, l.token, l.ready_at AS deadline, unnest(l.open[1:l.leased]) AS seq
    FROM unnest($3::text[]) AS k (partition)
    CROSS JOIN LATERAL (
        SELECT * FROM partition_lease l
        WHERE l.partition = k.partition AND l.queue_id = $1 AND l.group_id = $2 AND l.token IS NOT NULL AND l.ready_at + 0 > $4
        OFFSET 0) l
    UNION ALL
    SELECT s.partition, s.token, s.ready_at, unnest(s.seqs) FROM set_lease s
    WHERE s.queue_id = $1 AND s.group_id = $2 AND s.partition = ANY ($3) AND s.token IS NOT NULL AND s.ready_at > $4) x
CROSS JOIN LATERAL (
    SELECT m.seq, m.id, m.transaction_id FROM message m
    WHERE (m.queue_id, m.seq) BETWEEN ($1, x.seq) AND ($1, x.seq) ORDER BY m.queue_id, m.seq LIMIT 1) m
ORDER BY x.partition, m.seq

-- name: leased_under_token
-- The same of all partitions under one token. What is ready later than now is leased or rests: the backlog is not walked over.
SELECT x.partition, x.token, x.deadline, m.seq, m.id, m.transaction_id
FROM (
    SELECT l.partition, l.token, l.ready_at AS deadline, unnest(l.open[1:l.leased]) AS seq FROM partition_lease l
    WHERE l.queue_id = $1 AND l.group_id::bigint = $2 AND l.token = $3 AND l.ready_at > $4
    UNION ALL
    SELECT s.partition, s.token, s.ready_at, unnest(s.seqs) FROM set_lease s
    WHERE s.token = $3 AND s.queue_id + 0 = $1 AND s.group_id + 0 = $2 AND s.ready_at + 0 > $4) x
CROSS JOIN LATERAL (
    SELECT m.seq, m.id, m.transaction_id FROM message m
    WHERE (m.queue_id, m.seq) BETWEEN ($1, x.seq) AND ($1, x.seq) ORDER BY m.queue_id, m.seq LIMIT 1) m
ORDER BY x.partition, m.seq

-- name: retention_history
SELECT * FROM retention_history r WHERE r.queue_id = $1 ORDER BY r.queue_id DESC, r.at DESC LIMIT $2
