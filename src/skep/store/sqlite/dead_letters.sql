-- Dead letters: finding, replaying and purging them.

-- part: wanted
-- The filter of dead letters. A parameter that is null does not narrow it. Ids are a JSON list of hex, and seqs one of numbers: a list
-- cannot be a parameter.
(:ids IS NULL OR m.id IN (SELECT unhex(value) FROM json_each(:ids)))
  AND (:seqs IS NULL OR d.position IN (SELECT :base | value FROM json_each(:seqs)))
  AND (:source_queue IS NULL OR d.source_queue = :source_queue)
  AND (:partition IS NULL OR d.partition = :partition)
  AND (:group IS NULL OR d.group_name = :group)
  AND (:reason IS NULL OR d.reason = :reason)
  AND (:error_contains IS NULL OR instr(coalesce(d.error, ''), :error_contains) > 0)
  AND (:since IS NULL OR d.failed_at >= :since)
  AND (:until IS NULL OR d.failed_at < :until)

-- name: find_dead
-- Both tables by position, in the order of the dead-letter queue. At most :looked letters are looked at.
SELECT d.position, m.id, d.partition, d.source_queue, d.source_seq, d.group_name, d.reason, d.error, d.attempts,
       m.transaction_id, coalesce(m.trace_id, m.id), m.headers, m.content_type, m.payload, d.created_at, d.failed_at,
       m.priority, m.audience, m.partition
FROM (SELECT * FROM dead_letter WHERE position BETWEEN :first AND :last ORDER BY position LIMIT :looked) AS d
CROSS JOIN message AS m ON m.position = d.position
WHERE {wanted}
ORDER BY d.position
LIMIT :limit

-- name: nth_dead
-- The end of a bounded look: the table's own b-tree, without the messages.
SELECT position FROM dead_letter WHERE position BETWEEN ?1 AND ?2 ORDER BY position LIMIT 1 OFFSET ?3

-- name: count_dead
-- The same, counted: the dry run of replay and purge, never part of a hot path.
SELECT count(*)
FROM dead_letter AS d
JOIN message AS m ON m.position = d.position
WHERE d.position BETWEEN :first AND :last AND {wanted}

-- name: delete_message
DELETE FROM message WHERE position = ?1

-- name: delete_dead_letter
DELETE FROM dead_letter WHERE position = ?1

-- name: add_replay
INSERT INTO replay_history (at, dead_queue_id, dead_seq, dead_id, queue_id, seq, id, group_name, reason, error, attempts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: replays
-- Index on (dead_queue_id, dead_seq), backwards. A deleted queue has no name to filter by.
SELECT r.dead_seq, r.dead_id, q.name, r.seq, r.id, r.group_name, r.reason, r.error, r.attempts, r.at
FROM replay_history AS r
LEFT JOIN queue AS q ON q.id = r.queue_id AND q.deleted_at IS NULL
WHERE r.dead_queue_id = ?1 AND r.dead_seq < ?2 AND (?3 IS NULL OR q.name = ?3)
ORDER BY r.dead_queue_id DESC, r.dead_seq DESC
LIMIT ?4
