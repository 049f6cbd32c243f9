-- The servers that watch queues for pushes.

-- name: watch
-- In ascending order, so that two servers do not deadlock.
INSERT INTO watcher (queue_id, server, until)
SELECT q.id, $1, $4 FROM unnest($2::text[], $3::text[]) AS k (tenant, name)
CROSS JOIN LATERAL (SELECT q.id FROM queue q
                    WHERE q.tenant = k.tenant AND q.name = k.name AND q.deleted_at IS NULL LIMIT 1) q
ORDER BY q.id
ON CONFLICT (queue_id, server) DO UPDATE SET until = excluded.until

-- name: watched
SELECT k.id FROM unnest($1::integer[]) AS k (id) WHERE is_watched(k.id, $2)

-- name: wait_for_pushes
-- A push that looked for watchers before there was one does not announce itself. It holds the log's lock until it commits, so a watcher
-- that has waited for that lock sees its messages.
SELECT lock_log(k.id) FROM (
    SELECT q.id FROM unnest($1::text[], $2::text[]) AS k (tenant, name)
    CROSS JOIN LATERAL (SELECT q.id FROM queue q
                        WHERE q.tenant = k.tenant AND q.name = k.name AND q.deleted_at IS NULL LIMIT 1) q
    ORDER BY q.id) k
