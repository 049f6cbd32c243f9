-- Histories: figures by the minute, finished leases, failed attempts, trace events, dead letters. Every read is bounded.

-- name: figures
-- Index past_key. The first row is the newest before the minute: its figures were still valid then.
SELECT at, pushed, completed, retried, dead, depth FROM past
WHERE tenant = ?1 AND queue_id = ?2 AND minute >= coalesce(
    (SELECT minute FROM past WHERE tenant = ?1 AND queue_id = ?2 AND minute < ?3 ORDER BY minute DESC LIMIT 1), ?3)
ORDER BY minute
LIMIT ?4

-- name: lease_ended_at
-- Index lease_history_queue: the first row of the queue from a position on.
SELECT position, settled_at FROM lease_history WHERE queue_id = ?1 AND position >= ?2 ORDER BY position LIMIT 1

-- name: last_lease_ended
SELECT position FROM lease_history WHERE queue_id = ?1 ORDER BY position DESC LIMIT 1

-- name: lease_history
-- Index lease_history_queue, whose entries end with the position.
SELECT group_name, partition, first_seq, last_seq, messages, completed, attempt, leased_at, settled_at, outcome, position
FROM lease_history
WHERE queue_id = ?1 AND position > ?2 AND settled_at >= ?4
ORDER BY position
LIMIT ?3

-- name: leases_from
-- At most ?3 rows of the queue from a position on; of these, the leases of the message.
SELECT group_name, partition, first_seq, last_seq, messages, completed, attempt, leased_at, settled_at, outcome, answer, position
FROM (SELECT * FROM lease_history WHERE queue_id = ?1 AND position >= ?2 ORDER BY position LIMIT ?3)
WHERE partition = ?4 AND first_seq <= ?5 AND last_seq >= ?5

-- name: leases_until
SELECT group_name, partition, first_seq, last_seq, messages, completed, attempt, leased_at, settled_at, outcome, answer, position
FROM (SELECT * FROM lease_history WHERE queue_id = ?1 ORDER BY position DESC LIMIT ?2)
WHERE partition = ?3 AND first_seq <= ?4 AND last_seq >= ?4

-- name: failures
-- Index failed_attempt_message, whose entries end with the position.
SELECT group_name, attempt, leased_at, failed_at, outcome, error, consumer FROM failed_attempt
WHERE queue_id = ?1 AND seq = ?2
ORDER BY position DESC
LIMIT ?3

-- name: lease_times
-- Index lease_history_queue, backwards; each first message by its position. Only a lease that its consumer settled has a token.
SELECT h.group_name, h.settled_at, CASE WHEN h.attempt = 1 THEN h.leased_at - m.created_at END,
       CASE WHEN h.token IS NOT NULL AND h.outcome <> 'released' THEN h.settled_at - h.leased_at END
FROM (SELECT * FROM lease_history WHERE queue_id = ?1 ORDER BY position DESC LIMIT ?2) AS h
LEFT JOIN message AS m ON m.position = ?3 | h.first_seq
WHERE h.settled_at >= ?4

-- name: note_event
INSERT INTO trace_event (at, tenant, trace_id, message_id, queue, name, data) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: events_of_trace
-- Index trace_event_trace, whose entries end with the position.
SELECT trace_id, name, data, at, message_id, queue, position FROM trace_event
WHERE tenant = ?1 AND trace_id = ?2
ORDER BY position
LIMIT ?3

-- name: events_of_name
-- Index trace_event_name, backwards.
SELECT trace_id, name, data, at, message_id, queue, position FROM trace_event
WHERE tenant = ?1 AND name = ?2 AND position < ?3
ORDER BY position DESC
LIMIT ?4

-- name: next_name
-- Index trace_event_name: one step from name to name, however many events each has.
SELECT name, at FROM trace_event INDEXED BY trace_event_name
WHERE tenant = ?1 AND name = (
    SELECT name FROM trace_event INDEXED BY trace_event_name WHERE tenant = ?1 AND name > ?2 ORDER BY name LIMIT 1)
ORDER BY position DESC
LIMIT 1

-- name: deaths
-- The table's own b-tree, backwards.
SELECT position, source_queue, group_name, reason, error, attempts, failed_at FROM dead_letter
WHERE position BETWEEN ?1 AND ?2
ORDER BY position DESC
LIMIT ?3
