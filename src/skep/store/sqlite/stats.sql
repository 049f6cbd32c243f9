-- Figures. They may walk a group's rows, so they run in the reader; in the writer only after a seek or a progress report.

-- name: lease_figures
-- The group's rows once, by its primary key. Messages under a lease that ran out are not in flight.
SELECT count(*), coalesce(sum(token IS NOT NULL AND ready_at > ?2), 0),
       coalesce(sum(CASE WHEN token IS NOT NULL AND ready_at > ?2 THEN leased END), 0), min(oldest_at), min(head_seq)
FROM partition_lease
WHERE group_id = ?1

-- name: set_figures
-- A set's size is its blob's, eight bytes a seq.
SELECT count(DISTINCT partition), count(DISTINCT CASE WHEN token IS NOT NULL AND ready_at > ?2 THEN partition END),
       coalesce(sum(CASE WHEN token IS NOT NULL AND ready_at > ?2 THEN length(seqs) / 8 END), 0), min(oldest_at), min(head_seq)
FROM set_lease
WHERE group_id = ?1

-- name: partitions
-- Primary key, by name.
SELECT partition, pending + coalesce(length(open) / 8, 0) - CASE WHEN token IS NOT NULL AND ready_at > ?4 THEN leased ELSE 0 END,
       CASE WHEN token IS NOT NULL AND ready_at > ?4 THEN leased ELSE 0 END, attempts, oldest_at, ready_at,
       CASE WHEN token IS NOT NULL AND ready_at > ?4 THEN ready_at END, last_error
FROM partition_lease
WHERE group_id = ?1 AND partition > ?2
ORDER BY partition
LIMIT ?3

-- name: set_partitions
-- Index set_lease_partition gives the groups in order.
SELECT partition, sum(CASE WHEN token IS NOT NULL AND ready_at > ?4 THEN 0 ELSE length(seqs) / 8 END),
       sum(CASE WHEN token IS NOT NULL AND ready_at > ?4 THEN length(seqs) / 8 ELSE 0 END), max(attempts), min(oldest_at), min(ready_at),
       min(CASE WHEN token IS NOT NULL AND ready_at > ?4 THEN ready_at END), max(last_error)
FROM set_lease INDEXED BY set_lease_partition
WHERE group_id = ?1 AND partition > ?2
GROUP BY partition
ORDER BY partition
LIMIT ?3

-- name: groups_of_tenant
-- Index queue_name, then consumer_group by queue.
SELECT g.id, q.name, g.name, q.ordering
FROM queue AS q
JOIN consumer_group AS g ON g.queue_id = q.id
WHERE q.tenant = ?1 AND q.deleted_at IS NULL AND (?2 IS NULL OR q.name = ?2)

-- name: live_leases
-- Index partition_lease_leased, by deadline.
SELECT partition, leased, head_seq, substr(open, leased * 8 - 7, 8), leased_at, ready_at, attempts, consumer
FROM partition_lease INDEXED BY partition_lease_leased
WHERE group_id = ?1 AND token IS NOT NULL AND ready_at > ?2 AND ready_at < ?3
ORDER BY ready_at, partition
LIMIT ?4

-- name: live_sets
-- Index set_lease_leased, by deadline.
SELECT partition, length(seqs) / 8, head_seq, substr(seqs, -8), leased_at, ready_at, attempts, consumer
FROM set_lease INDEXED BY set_lease_leased
WHERE group_id = ?1 AND token IS NOT NULL AND ready_at > ?2 AND ready_at < ?3
ORDER BY ready_at
LIMIT ?4

-- name: count_dead
-- The letters that it holds (the table's own b-tree), and its own letters elsewhere (index dead_letter_count_source). Triggers count them.
SELECT (SELECT coalesce(sum(letters), 0) FROM dead_letter_count WHERE queue_id = ?1)
     + (SELECT coalesce(sum(letters), 0) FROM dead_letter_count WHERE source_queue_id = ?1)

-- name: sample_before
-- Index sample_group, both ways from the wanted instant.
SELECT at, pushed, completed, retried, dead FROM sample
WHERE queue_id = ?1 AND group_id = ?2 AND at <= ?3
ORDER BY at DESC LIMIT 1

-- name: sample_after
SELECT at, pushed, completed, retried, dead FROM sample
WHERE queue_id = ?1 AND group_id = ?2 AND at > ?3
ORDER BY at LIMIT 1

-- name: retention_history
-- Index retention_history_queue, backwards.
SELECT at, deleted, first_seq, settled_seq FROM retention_history
WHERE queue_id = ?1
ORDER BY at DESC, position DESC
LIMIT ?2
