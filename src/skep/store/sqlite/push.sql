-- Appending to the log.

-- name: append
-- The hot statement: positions rise, so it goes to the right edge of the table's b-tree.
INSERT INTO message (position, queue_id, created_at, priority, audience, id, partition, transaction_id, trace_id,
                     content_type, headers, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: append_plain
-- The same for messages that have only their own columns: ?1 is the queue, ?2 the time, the braces are each row's parameters.
INSERT INTO message (position, queue_id, created_at, priority, id, partition, trace_id, content_type, headers, payload)
VALUES (?{}, ?1, ?2, ?{}, ?{}, ?{}, ?{}, ?{}, ?{}, ?{})

-- name: find_key
-- Primary key of dedup. An expired key does not count, even before it is swept.
SELECT message_id, seq FROM dedup
WHERE queue_id = ?1 AND transaction_id = ?2 AND partition = ?3 AND expires_at > ?4

-- name: keep_key
-- REPLACE: an expired key that was not swept yet makes room.
INSERT OR REPLACE INTO dedup (queue_id, transaction_id, partition, message_id, seq, expires_at)
VALUES (?, ?, ?, ?, ?, ?)

-- name: trace_of
SELECT coalesce(trace_id, id) FROM message WHERE position = ?1

-- name: trace_of_scheduled
-- Index scheduled_id.
SELECT trace_id FROM scheduled INDEXED BY scheduled_id WHERE id = ?1

-- name: schedule
INSERT INTO scheduled (queue_id, due_at, priority, id, partition, transaction_id, trace_id, content_type, headers, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: ids_between
-- A range of the log, by the table's own b-tree: an attempt with an unknown outcome may have stored messages there.
SELECT id FROM message WHERE position >= ?1 AND position < ?2

-- name: id_scheduled
-- The same in the schedule, by id, as the message may have been moved to another time. Index scheduled_id.
SELECT id FROM scheduled INDEXED BY scheduled_id WHERE id = ?2 AND queue_id = ?1
