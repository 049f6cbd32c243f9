-- name: first_seq_at
SELECT start_position($1, 'time', $2) + 1

-- name: beyond
-- The first seq from $2 to $3 up to which payloads have more than $4 bytes together, and whether its own payload alone has. The length of
-- a payload that is stored apart is known without reading it; the walk ends at that seq.
SELECT b.seq, b.through = b.own AS is_first
FROM (SELECT m.seq, octet_length(m.payload) AS own,
             sum(octet_length(m.payload)) OVER (ORDER BY m.queue_id, m.seq ROWS UNBOUNDED PRECEDING) AS through
      FROM message m WHERE m.queue_id = $1 AND m.seq >= $2 AND m.seq <= $3) b
WHERE b.through > $4
LIMIT 1
