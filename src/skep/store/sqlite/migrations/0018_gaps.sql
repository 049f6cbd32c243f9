-- How many seqs have no message any more: of a queue from first_seq on, of a group beyond its scan_seq. A gap is counted for every
-- group when its message goes, so depth and lag are right before anybody walks over it.
ALTER TABLE queue ADD COLUMN gaps INTEGER NOT NULL DEFAULT 0;
ALTER TABLE consumer_group ADD COLUMN gaps INTEGER NOT NULL DEFAULT 0;

-- What was purged, replayed or taken by retention before nobody has counted yet. A position's low 40 bits are the seq.
UPDATE queue AS q
SET gaps = max(0, max(q.floor_seq, coalesce((
        SELECT m.position & 1099511627775 FROM message AS m
        WHERE m.position BETWEEN q.id << 40 AND (q.id << 40) + 1099511627775 ORDER BY m.position DESC LIMIT 1), 0))
    - q.first_seq + 1
    - (SELECT count(*) FROM message AS m WHERE m.position BETWEEN (q.id << 40) + q.first_seq AND (q.id << 40) + 1099511627775))
WHERE q.holds_dead_letters AND q.deleted_at IS NULL;

UPDATE consumer_group AS g
SET gaps = (
    SELECT max(0, max(q.floor_seq, coalesce((
            SELECT m.position & 1099511627775 FROM message AS m
            WHERE m.position BETWEEN q.id << 40 AND (q.id << 40) + 1099511627775 ORDER BY m.position DESC LIMIT 1), 0))
        - g.scan_seq
        - (SELECT count(*) FROM message AS m WHERE m.position BETWEEN (q.id << 40) + g.scan_seq + 1 AND (q.id << 40) + 1099511627775))
    FROM queue AS q WHERE q.id = g.queue_id)
WHERE g.queue_id IN (SELECT q.id FROM queue AS q WHERE (q.holds_dead_letters OR q.retention_ignores_groups) AND q.deleted_at IS NULL);

UPDATE consumer_group SET expired = expired + gaps WHERE gaps > 0;
