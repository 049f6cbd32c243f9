-- How many seqs have no message any more: of a queue from first_seq on, of a group beyond its scan_seq. A gap is counted for every
-- group when its message goes, so depth and lag are right before anybody walks over it.
ALTER TABLE queue ADD COLUMN gaps bigint NOT NULL DEFAULT 0;
ALTER TABLE consumer_group ADD COLUMN gaps bigint NOT NULL DEFAULT 0;

-- What was purged, replayed or taken by retention before nobody has counted yet.
UPDATE queue q
SET gaps = greatest(0, greatest(q.floor_seq, (SELECT m.seq FROM message m WHERE m.queue_id = q.id
                                              ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1))
    - q.first_seq + 1 - (SELECT count(*) FROM message m WHERE m.queue_id = q.id AND m.seq >= q.first_seq))
WHERE q.holds_dead_letters AND q.deleted_at IS NULL;

UPDATE consumer_group g
SET gaps = greatest(0, greatest(q.floor_seq, (SELECT m.seq FROM message m WHERE m.queue_id = q.id
                                              ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1))
    - g.scan_seq - (SELECT count(*) FROM message m WHERE m.queue_id = q.id AND m.seq > g.scan_seq))
FROM queue q
WHERE q.id = g.queue_id AND (q.holds_dead_letters OR q.retention_ignores_groups) AND q.deleted_at IS NULL;

INSERT INTO group_counter AS c (queue_id, group_id, shard, expired)
SELECT g.queue_id, g.id, 0, g.gaps FROM consumer_group g WHERE g.gaps > 0
ON CONFLICT (group_id, shard) DO UPDATE SET expired = c.expired + excluded.expired;
