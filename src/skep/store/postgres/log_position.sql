-- name: first_seqs_at
-- Each queue by the unique index on (tenant, name), as in all statements here; seq_at (functions/groups.sql) finds the time in its log.
SELECT q.name, start_position(q.id, 'time', $3) + 1 AS seq
FROM unnest($2::text[]) AS wanted(name)
CROSS JOIN LATERAL (SELECT * FROM queue q WHERE q.tenant = $1 AND q.name = wanted.name AND q.deleted_at IS NULL LIMIT 1) q

-- name: last_seqs_within
-- b is the first seq of a range up to which payloads have more than $4 bytes together, and whether its own payload alone has. The length of
-- a payload that is stored apart is known without reading it; the walk along the primary key ends at that seq.
SELECT q.name,
       CASE WHEN r.low > r.high THEN x.last_seq WHEN b.seq IS NULL THEN r.high WHEN b.is_first THEN b.seq ELSE b.seq - 1 END AS seq
FROM unnest($2::text[], $3::bigint[]) AS wanted(name, first)
CROSS JOIN LATERAL (SELECT * FROM queue q WHERE q.tenant = $1 AND q.name = wanted.name AND q.deleted_at IS NULL LIMIT 1) q
CROSS JOIN LATERAL (SELECT last_seq(q.id, q.floor_seq) AS last_seq) x
CROSS JOIN LATERAL (SELECT greatest(wanted.first, q.first_seq) AS low,
                           least(x.last_seq, greatest(wanted.first, q.first_seq) + $5::bigint - 1) AS high) r
LEFT JOIN LATERAL (
    SELECT k.seq, k.through = k.own AS is_first
    FROM (SELECT m.seq, octet_length(m.payload) AS own,
                 sum(octet_length(m.payload)) OVER (ORDER BY m.queue_id, m.seq ROWS UNBOUNDED PRECEDING) AS through
          FROM message m WHERE m.queue_id = q.id AND m.seq >= r.low AND m.seq <= r.high) k
    WHERE k.through > $4::bigint
    LIMIT 1) b ON true
