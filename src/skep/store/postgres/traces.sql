-- Following traces and transactions across the queues of a tenant: a statement each, however many queues there are.

-- name: traced
-- By the index on trace ids. The inner bound keeps a trace of very many messages from being sorted whole. Payloads are read up to $5
-- bytes together.
SELECT x.queue_name, x.seq, x.partition, x.id, x.transaction_id, x.trace_id, x.headers, x.content_type, x.priority, x.created_at,
       x.payload_bytes,
       CASE WHEN sum(x.payload_bytes) OVER (ORDER BY x.created_at, x.queue_name, x.seq) <= $5::bigint THEN x.payload
            ELSE ''::bytea END AS payload
FROM (
    SELECT q.name AS queue_name, m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority,
           m.created_at, length(m.payload) AS payload_bytes, m.payload
    FROM message m
    CROSS JOIN LATERAL (
        SELECT q.name FROM queue q WHERE q.id = m.queue_id AND q.tenant = $1 AND q.deleted_at IS NULL LIMIT 1) q
    WHERE m.trace_id = $2 LIMIT $4) x
ORDER BY x.created_at, x.queue_name, x.seq LIMIT $3

-- name: implied
-- The trace id was not given, so it is the id of the only message: look where its millisecond lies in the logs. The first and last
-- message of a log rule out most logs before a search.
SELECT q.name AS queue_name, m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority,
       m.created_at, length(m.payload) AS payload_bytes, m.payload
FROM queue q
CROSS JOIN LATERAL (SELECT m.seq, m.created_at FROM message m WHERE m.queue_id = q.id
                    ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1) l
CROSS JOIN LATERAL (SELECT m.seq, m.created_at FROM message m WHERE m.queue_id = q.id AND l.created_at >= $3
                    ORDER BY m.queue_id, m.seq LIMIT 1) f
CROSS JOIN LATERAL (SELECT seq_at(q.id, f.seq, l.seq, $3) AS seq WHERE f.created_at < $4) s
CROSS JOIN LATERAL (
    SELECT m.* FROM message m
    WHERE m.queue_id = q.id AND m.seq >= s.seq AND m.seq < seq_at(q.id, s.seq, l.seq, $4) AND m.id = $2 AND m.trace_id IS NULL
    ORDER BY m.queue_id, m.seq LIMIT 1) m
WHERE q.tenant = $1 AND q.deleted_at IS NULL AND l.created_at >= $3
LIMIT 1

-- name: with_transaction_id
-- By the index on transaction ids.
SELECT q.name AS queue_name, m.seq, m.partition, m.id, m.transaction_id, m.trace_id, m.headers, m.content_type, m.priority,
       m.created_at, length(m.payload) AS payload_bytes, ''::bytea AS payload
FROM message m
CROSS JOIN LATERAL (
    SELECT q.name FROM queue q WHERE q.id = m.queue_id AND q.tenant = $1 AND q.deleted_at IS NULL LIMIT 1) q
WHERE m.transaction_id = $2
ORDER BY m.transaction_id DESC, m.queue_id DESC, m.seq DESC LIMIT $3
