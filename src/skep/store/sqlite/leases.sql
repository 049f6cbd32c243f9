-- Rows of partition_lease: found, read, claimed, saved. Free and leased rows have an index each.

-- name: discover
-- From scan_seq along the table's own b-tree. The payload comes last in a row and is not read.
SELECT position, partition, priority, created_at, audience FROM message
WHERE position > ?1 AND position <= ?2
ORDER BY position
LIMIT ?3

-- name: discover_whole
-- The same with whole messages, for a pop that is about to deliver them.
SELECT position, created_at, priority, id, partition, transaction_id, trace_id, content_type, headers, payload, audience FROM message
WHERE position > ?1 AND position <= ?2
ORDER BY position
LIMIT ?3

-- name: note_work
-- A known partition gets more pending messages. Only a free row without open messages gets a new ready_at: the window buffer counts
-- from its newest message. ?8 is the delay, ?9 the window, ?10 the longest time that windows may hold it back, ?11 now. If the clock
-- was put back, a message from the future counts as created now, so that it does not wait for the wrong time.
INSERT INTO partition_lease (group_id, partition, delivered_seq, head_seq, pending, ready_at, oldest_at, newest_at, expires_at)
VALUES (?1, ?2, ?3 - 1, ?3, ?4, max(min(?5, ?11) + ?8, min(?6 + ?9, ?11 + ?9, min(?5, ?11) + ?10)), ?5, ?6, ?7)
ON CONFLICT (group_id, partition) DO UPDATE
SET pending = pending + excluded.pending,
    newest_at = excluded.newest_at,
    ready_at = CASE WHEN ?9 > 0 AND token IS NULL AND open IS NULL
                    THEN max(min(oldest_at, ?11) + ?8, min(excluded.newest_at + ?9, ?11 + ?9, min(oldest_at, ?11) + ?10))
                    ELSE ready_at END

-- name: claim_ready
-- Both indexes (free, leased) give their rows in the order of (ready_at, partition), and UNION ALL with ORDER BY merges
-- the two streams without a sort; the caller stops reading once its batch is full.
SELECT partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at, oldest_at, newest_at,
       last_error, consumer, group_id, head_seq, expires_at
FROM partition_lease INDEXED BY partition_lease_free
WHERE group_id = ?1 AND token IS NULL AND ready_at <= ?2
UNION ALL
SELECT partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at, oldest_at, newest_at,
       last_error, consumer, group_id, head_seq, expires_at
FROM partition_lease INDEXED BY partition_lease_leased
WHERE group_id = ?1 AND token IS NOT NULL AND ready_at <= ?2
ORDER BY ready_at, partition

-- name: claim_free
-- Only the free rows.
SELECT partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at, oldest_at, newest_at,
       last_error, consumer, group_id, head_seq, expires_at
FROM partition_lease INDEXED BY partition_lease_free
WHERE group_id = ?1 AND token IS NULL AND ready_at <= ?2
ORDER BY ready_at, partition

-- name: lease_of_partition
-- Primary key.
SELECT partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at, oldest_at, newest_at,
       last_error, consumer, group_id, head_seq, expires_at
FROM partition_lease
WHERE group_id = ?1 AND partition = ?2

-- name: leases_of_token
-- Index partition_lease_leased: the rows that are leased and have not run out (?3 is now), never the backlog.
SELECT partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at, oldest_at, newest_at,
       last_error, consumer, group_id, head_seq, expires_at
FROM partition_lease INDEXED BY partition_lease_leased
WHERE group_id = ?1 AND token IS NOT NULL AND ready_at > ?3 AND token = ?2
ORDER BY partition

-- name: leases_of_group
-- All rows of a group by its primary key: for clearing, which touches every one of them.
SELECT partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at, oldest_at, newest_at,
       last_error, consumer, group_id, head_seq, expires_at
FROM partition_lease
WHERE group_id = ?1

-- name: run_out_leases
-- Only the index of leased rows is walked, never the backlog.
SELECT partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at, oldest_at, newest_at,
       last_error, consumer, group_id, head_seq, expires_at
FROM partition_lease INDEXED BY partition_lease_leased
WHERE group_id = ?1 AND token IS NOT NULL AND ready_at <= ?2 AND attempts >= ?3
ORDER BY ready_at, partition
LIMIT ?4

-- name: expiring_leases
-- Index partition_lease_expiry: rows whose first unsettled message is too old, unless a live lease works on it.
SELECT partition, delivered_seq, pending, open, leased, attempts, token, leased_at, ready_at, oldest_at, newest_at,
       last_error, consumer, group_id, head_seq, expires_at
FROM partition_lease INDEXED BY partition_lease_expiry
WHERE group_id = ?1 AND expires_at IS NOT NULL AND expires_at <= ?2 AND (token IS NULL OR ready_at <= ?2)
ORDER BY expires_at
LIMIT ?3

-- name: next_ready
-- The left edges of the two ready indexes.
SELECT min(ready_at) FROM (
    SELECT * FROM (SELECT ready_at FROM partition_lease INDEXED BY partition_lease_free
                   WHERE group_id = ?1 AND token IS NULL ORDER BY ready_at LIMIT 1)
    UNION ALL
    SELECT * FROM (SELECT ready_at FROM partition_lease INDEXED BY partition_lease_leased
                   WHERE group_id = ?1 AND token IS NOT NULL ORDER BY ready_at LIMIT 1))

-- name: next_deadline
SELECT ready_at FROM partition_lease INDEXED BY partition_lease_leased
WHERE group_id = ?1 AND token IS NOT NULL AND ready_at > ?2
ORDER BY ready_at LIMIT 1

-- name: next_expiry
SELECT expires_at FROM partition_lease INDEXED BY partition_lease_expiry
WHERE group_id = ?1 AND expires_at IS NOT NULL AND expires_at > ?2
ORDER BY expires_at LIMIT 1

-- name: save_lease
-- Primary key. Everything that a claim or a settlement may change, in one write.
UPDATE partition_lease
SET delivered_seq = ?2, pending = ?3, open = ?4, leased = ?5, attempts = ?6, token = ?7, leased_at = ?8, ready_at = ?9,
    oldest_at = ?10, newest_at = ?11, last_error = ?12, consumer = ?13, head_seq = ?15, expires_at = ?16
WHERE group_id = ?14 AND partition = ?1

-- name: delete_lease
DELETE FROM partition_lease WHERE group_id = ?1 AND partition = ?2

-- name: delete_leases_of_group
DELETE FROM partition_lease WHERE group_id = ?1

-- name: least_head
-- Once over the group's rows: for retention and figures, never for pops. Without rows it is null.
SELECT min(head_seq) FROM partition_lease WHERE group_id = ?1

-- name: next_of_partition
-- Index message_partition: inside a partition its entries are in the order of position.
SELECT position, created_at, priority, id, partition, transaction_id, trace_id, content_type, headers, payload FROM message
WHERE queue_id = ?1 AND partition = ?2 AND position > ?3 AND position <= ?4 AND (audience IS NULL OR audience = ?5)
ORDER BY position
LIMIT ?6

-- name: head_of_partition
-- As next_of_partition, but only the columns of the head that a lease row has.
SELECT position, created_at FROM message
WHERE queue_id = ?1 AND partition = ?2 AND position > ?3 AND position <= ?4 AND (audience IS NULL OR audience = ?5)
ORDER BY position
LIMIT 1

-- name: delivered_of_partition
-- As next_of_partition, but only positions, and with the first position included.
SELECT position FROM message
WHERE queue_id = ?1 AND partition = ?2 AND position >= ?3 AND position <= ?4 AND (audience IS NULL OR audience = ?5)
ORDER BY position
LIMIT ?6

-- name: head_of_queue
-- The first message a group has not discovered: the table's own b-tree. An external group (?4) reads messages for other groups, too.
SELECT position, created_at FROM message
WHERE position > ?1 AND position <= ?2 AND (audience IS NULL OR audience = ?3 OR ?4)
ORDER BY position
LIMIT 1

-- name: message_at
SELECT position, created_at, priority, id, partition, transaction_id, trace_id, content_type, headers, payload FROM message
WHERE position = ?1

-- name: names_at
SELECT id, transaction_id FROM message WHERE position = ?1

-- name: age_at
SELECT position, created_at FROM message WHERE position = ?1

-- name: created_at
SELECT created_at FROM message WHERE position = ?1
