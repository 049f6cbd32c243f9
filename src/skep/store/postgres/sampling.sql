-- Samples of queues and groups. Only counters that changed since their newest row get another row, so an idle store writes nothing.
-- Newest rows are looked up by comparing whole keys, which only the primary key can answer: never the index by age. For the
-- same reason pages of queues do not say `deleted_at IS NULL`, which is that of the index by name.

-- name: note_past
-- A page of queues by id ($1, $2), and whole tenants ($6 and on). $3 is the time of the sample. $4 is the last time, in an earlier minute,
-- at which changed counters still had their noted values. Rows from before $5 are written again. In order, as rows of a minute are
-- overwritten.
WITH page AS MATERIALIZED (
    SELECT q.id, q.tenant, q.holds_dead_letters, q.created_at, q.first_seq, q.gaps, q.scheduled_count,
           last_seq(q.id, q.floor_seq) AS last_seq
    FROM queue q WHERE q.id > $1 AND coalesce(q.deleted_at, 0) = 0 ORDER BY q.id LIMIT $2
), figures AS MATERIALIZED (
    SELECT q.tenant, q.id, q.holds_dead_letters, q.created_at, q.last_seq AS pushed, c.completed, c.retried, c.dead,
           log_depth(q.id, q.first_seq, q.last_seq, q.gaps) + q.scheduled_count AS depth
    FROM page q
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(c.completed), 0)::bigint AS completed, coalesce(sum(c.retried), 0)::bigint AS retried,
               coalesce(sum(c.dead), 0)::bigint AS dead
        FROM consumer_group g CROSS JOIN LATERAL (SELECT * FROM group_counter c WHERE c.group_id = g.id OFFSET 0) c
        WHERE g.queue_id = q.id) c
    UNION ALL
    SELECT t.tenant, 0, false, t.created_at, t.pushed, t.completed, t.retried, t.dead, t.depth
    FROM unnest($6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[])
        AS t (tenant, created_at, pushed, completed, retried, dead, depth)
), changed AS MATERIALIZED (
    SELECT f.*, p.at AS held_at, p.pushed AS held_pushed, p.completed AS held_completed, p.retried AS held_retried,
           p.dead AS held_dead, p.depth AS held_depth
    FROM figures f
    LEFT JOIN LATERAL (SELECT * FROM past p WHERE (p.tenant, p.queue_id, p.minute) <= (f.tenant, f.id, $3::bigint)
                       ORDER BY p.tenant DESC, p.queue_id DESC, p.minute DESC LIMIT 1) p
        ON p.tenant = f.tenant AND p.queue_id = f.id
    WHERE p.at IS NULL OR p.at <= $5
       OR (p.pushed, p.completed, p.retried, p.dead, p.depth) <> (f.pushed, f.completed, f.retried, f.dead, f.depth)
), noted AS (
    INSERT INTO past (tenant, queue_id, minute, at, pushed, completed, retried, dead, depth)
    SELECT n.tenant, n.id, n.at / 60000000, n.at, n.pushed, n.completed, n.retried, n.dead, n.depth FROM (
        SELECT c.tenant, c.id, $3::bigint AS at, c.pushed, c.completed, c.retried, c.dead, c.depth FROM changed c
        UNION ALL
        SELECT c.tenant, c.id, $4::bigint, c.held_pushed, c.held_completed, c.held_retried, c.held_dead, c.held_depth
        FROM changed c
        WHERE c.held_at < $4::bigint AND (c.held_pushed, c.held_completed, c.held_retried, c.held_dead, c.held_depth)
            <> (c.pushed, c.completed, c.retried, c.dead, c.depth)) n
    ORDER BY n.tenant, n.id, n.at
    ON CONFLICT (tenant, queue_id, minute) DO UPDATE SET at = excluded.at, pushed = excluded.pushed,
        completed = excluded.completed, retried = excluded.retried, dead = excluded.dead, depth = excluded.depth
), born AS (
    -- A new queue began with zeros in the minute before, which has no row of it yet. It is new if made since $13; $14 is now.
    INSERT INTO past (tenant, queue_id, minute, at, pushed, completed, retried, dead, depth)
    SELECT c.tenant, c.id, c.created_at / 60000000 - 1, least(c.created_at, $3::bigint - 10000000), 0, 0, 0, 0, 0 FROM changed c
    WHERE c.held_at IS NULL AND c.created_at > $13::bigint AND c.created_at <= $14::bigint
    ORDER BY c.tenant, c.id
    ON CONFLICT (tenant, queue_id, minute) DO NOTHING
)
SELECT f.tenant, count(*) AS queues, max(f.id) AS last_id,
       min(f.created_at) FILTER (WHERE NOT f.holds_dead_letters) AS created_at,
       sum(f.pushed) FILTER (WHERE NOT f.holds_dead_letters)::bigint AS pushed,
       sum(f.completed) FILTER (WHERE NOT f.holds_dead_letters)::bigint AS completed,
       sum(f.retried) FILTER (WHERE NOT f.holds_dead_letters)::bigint AS retried,
       sum(f.dead) FILTER (WHERE NOT f.holds_dead_letters)::bigint AS dead,
       sum(f.depth) FILTER (WHERE NOT f.holds_dead_letters)::bigint AS depth
FROM figures f WHERE f.id > 0 GROUP BY f.tenant

-- name: sample
-- The same page: counters of the queues, and of their groups, as rates want them. Of what changed, rows go that are older than the
-- newest one of $6 and before; a bounded number, for an older Skep kept two days of them.
WITH page AS MATERIALIZED (
    SELECT q.id, last_seq(q.id, q.floor_seq) AS last_seq
    FROM queue q WHERE q.id > $1 AND coalesce(q.deleted_at, 0) = 0 ORDER BY q.id LIMIT $2
), figures AS MATERIALIZED (
    SELECT q.id AS queue_id, g.id AS group_id, q.last_seq, c.completed, c.dead, c.expired, c.retried
    FROM page q
    CROSS JOIN LATERAL (SELECT g.id FROM consumer_group g WHERE g.queue_id = q.id OFFSET 0) g
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(c.completed), 0)::bigint AS completed, coalesce(sum(c.dead), 0)::bigint AS dead,
               coalesce(sum(c.expired), 0)::bigint AS expired, coalesce(sum(c.retried), 0)::bigint AS retried
        FROM group_counter c WHERE c.group_id = g.id) c
    UNION ALL
    SELECT q.id, 0, q.last_seq, 0, 0, 0, 0 FROM page q
), changed AS MATERIALIZED (
    SELECT f.*, s.at AS held_at, s.last_seq AS held_seq, s.completed AS held_completed, s.dead AS held_dead,
           s.expired AS held_expired, s.retried AS held_retried
    FROM figures f
    LEFT JOIN LATERAL (SELECT * FROM sample s WHERE (s.queue_id, s.group_id, s.at) <= (f.queue_id, f.group_id, $3::bigint)
                       ORDER BY s.queue_id DESC, s.group_id DESC, s.at DESC LIMIT 1) s
        ON s.queue_id = f.queue_id AND s.group_id = f.group_id
    WHERE s.at IS NULL OR s.at <= $5
       OR (s.last_seq, s.completed, s.dead, s.expired, s.retried) <> (f.last_seq, f.completed, f.dead, f.expired, f.retried)
), noted AS (
    INSERT INTO sample (queue_id, group_id, at, last_seq, completed, dead, expired, retried)
    SELECT c.queue_id, c.group_id, $3::bigint, c.last_seq, c.completed, c.dead, c.expired, c.retried FROM changed c
    UNION ALL
    SELECT c.queue_id, c.group_id, $4::bigint, c.held_seq, c.held_completed, c.held_dead, c.held_expired, c.held_retried
    FROM changed c
    WHERE c.held_at < $4::bigint AND (c.held_seq, c.held_completed, c.held_dead, c.held_expired, c.held_retried)
        <> (c.last_seq, c.completed, c.dead, c.expired, c.retried)
    ORDER BY 1, 2, 3
    ON CONFLICT DO NOTHING
), old AS MATERIALIZED (
    SELECT o.ctid FROM changed c
    JOIN LATERAL (SELECT s.* FROM sample s WHERE (s.queue_id, s.group_id, s.at) <= (c.queue_id, c.group_id, $6::bigint)
                  ORDER BY s.queue_id DESC, s.group_id DESC, s.at DESC LIMIT 1) kept
        ON kept.queue_id = c.queue_id AND kept.group_id = c.group_id
    CROSS JOIN LATERAL (SELECT s.ctid FROM sample s WHERE (s.queue_id, s.group_id, s.at) >= (c.queue_id, c.group_id, 0)
                            AND (s.queue_id, s.group_id, s.at) < (c.queue_id, c.group_id, kept.at)
                        ORDER BY s.queue_id, s.group_id, s.at LIMIT 32 FOR UPDATE SKIP LOCKED) o
), gone AS (
    DELETE FROM sample s USING old o WHERE s.ctid = o.ctid
)
SELECT count(*) FROM changed
