-- Forgetting messages for good. By hand and seldom: never in the path of a push, pop or settlement.

-- name: messages
-- The first messages of a range: the table's own b-tree.
SELECT position, id, partition, transaction_id, trace_id, audience FROM message
WHERE position BETWEEN ?1 AND ?2
ORDER BY position
LIMIT ?3

-- name: letters
-- The first dead letters of a range of their source. Index dead_letter_source.
SELECT source_seq, position FROM dead_letter INDEXED BY dead_letter_source
WHERE source_queue_id = ?1 AND source_seq BETWEEN ?2 AND ?3
ORDER BY source_seq
LIMIT ?4

-- name: replays_of_letters
-- Index replay_history_letter.
SELECT dead_queue_id, dead_seq, queue_id, seq FROM replay_history INDEXED BY replay_history_letter
WHERE dead_queue_id = ?1 AND dead_seq BETWEEN ?2 AND ?3

-- name: replays_of_id
-- A dead letter has the id of its message. Index replay_history_dead_id.
SELECT dead_queue_id, dead_seq, queue_id, seq FROM replay_history INDEXED BY replay_history_dead_id WHERE dead_id = ?1

-- name: queue_of_id
SELECT tenant, name FROM queue WHERE id = ?1 AND deleted_at IS NULL

-- name: is_letter
SELECT 1 FROM dead_letter WHERE position = ?1

-- name: forget_key
-- Primary key of dedup. Only the key of this message: the key may have expired and been used again.
DELETE FROM dedup WHERE queue_id = ?1 AND transaction_id = ?2 AND partition IN (?3, '') AND message_id = ?4

-- name: forget_events
-- Index trace_event_trace.
DELETE FROM trace_event WHERE tenant = ?1 AND trace_id = ?2 AND message_id = ?3

-- name: forget_failures
-- Index failed_attempt_message.
DELETE FROM failed_attempt WHERE queue_id = ?1 AND seq BETWEEN ?2 AND ?3

-- name: forget_replays_of_letters
-- Index replay_history_letter.
DELETE FROM replay_history WHERE dead_queue_id = ?1 AND dead_seq BETWEEN ?2 AND ?3

-- name: forget_replays_to
-- Index replay_history_message.
DELETE FROM replay_history WHERE queue_id = ?1 AND seq BETWEEN ?2 AND ?3

-- name: tombstone_before
-- Index forgotten_seq, backwards: ranges do not overlap, so only the last one before a seq can hold it.
SELECT first_seq, last_seq FROM forgotten WHERE queue_id = ?1 AND first_seq < ?2 ORDER BY first_seq DESC LIMIT 1

-- name: tombstones_within
-- Index forgotten_seq.
SELECT first_seq, last_seq FROM forgotten WHERE queue_id = ?1 AND first_seq BETWEEN ?2 AND ?3

-- name: last_tombstone
-- Primary key, backwards.
SELECT position FROM forgotten WHERE queue_id = ?1 ORDER BY position DESC LIMIT 1

-- name: add_tombstone
INSERT INTO forgotten (queue_id, position, first_seq, last_seq, forgotten_at) VALUES (?, ?, ?, ?, ?)

-- name: tombstones
-- Primary key.
SELECT position, first_seq, last_seq, forgotten_at FROM forgotten WHERE queue_id = ?1 AND position > ?2 ORDER BY position LIMIT ?3

-- name: letters_of_source
-- A bounded look at the letters of a source, in the order of index dead_letter_source; payloads are not read.
SELECT d.source_seq, d.position, d.partition, m.transaction_id, coalesce(m.trace_id, m.id)
FROM (SELECT source_seq, position, partition FROM dead_letter INDEXED BY dead_letter_source
      WHERE source_queue_id = ?1 AND (source_seq, position) > (?2, ?3)
      ORDER BY source_seq, position LIMIT ?4) AS d
CROSS JOIN message AS m ON m.position = d.position
ORDER BY d.source_seq, d.position
