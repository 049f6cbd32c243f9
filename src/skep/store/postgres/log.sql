-- Ranges of the log as columns. PostgreSQL puts the values of a column one after the other, so that there is one row for many
-- messages and no Python object for each. A statement is `SELECT`, some of the columns, and one of the ranges.

-- name: bounds
-- By the unique index on the names of queues that are not deleted, then by the primary key, backwards.
SELECT q.id, q.first_seq, last_seq(q.id, q.floor_seq) AS last_seq FROM queue q
WHERE q.tenant = $1 AND q.name = $2 AND q.deleted_at IS NULL

-- name: range
-- The primary key, in whose order the values are put together.
FROM (SELECT m.* FROM message m WHERE m.queue_id = $1 AND m.seq >= $2 AND m.seq <= $3 ORDER BY m.queue_id, m.seq) t

-- name: in_slices
-- A range in slices of so many seqs, each joined and sent before the next is begun: what is joined stays in memory that is
-- reused. A range joined whole costs PostgreSQL three times as much, most of it for fresh pages of memory.
SELECT p.* FROM generate_series($2::bigint, $3::bigint, $4::bigint) AS s (first) CROSS JOIN LATERAL (

-- name: slice
-- By the primary key, in whose order the values are put together.
FROM (SELECT m.* FROM message m
      WHERE m.queue_id = $1 AND m.seq >= s.first AND m.seq <= least(s.first + $4 - 1, $3) ORDER BY m.queue_id, m.seq) t) p

-- name: in_slices_of_queue
-- The same of a queue that is named, whose id comes first. Subqueries are run once.
SELECT (SELECT q.id FROM queue q WHERE q.tenant = $1 AND q.name = $2 AND q.deleted_at IS NULL), p.*
FROM generate_series($3::bigint, $4::bigint, $5::bigint) AS s (first) CROSS JOIN LATERAL (

-- name: slice_of_queue
FROM (SELECT m.* FROM message m
      WHERE m.queue_id = (SELECT q.id FROM queue q WHERE q.tenant = $1 AND q.name = $2 AND q.deleted_at IS NULL)
        AND m.seq >= greatest(s.first, (SELECT q.first_seq FROM queue q WHERE q.tenant = $1 AND q.name = $2 AND q.deleted_at IS NULL))
        AND m.seq <= least(s.first + $5 - 1, $4) ORDER BY m.queue_id, m.seq) t) p

-- name: range_of_partitions
-- The index on partitions, for each of them. Its order and the inner limit keep the planner from the primary key, which leads through all
-- messages, and from sorting them.
FROM (SELECT x.* FROM unnest($4::text[]) AS w (partition) CROSS JOIN LATERAL (
          SELECT m.* FROM message m
          WHERE (m.partition, m.queue_id, m.seq) BETWEEN (w.partition, $1, $2::bigint) AND (w.partition, $1, $3::bigint)
          ORDER BY m.partition, m.queue_id, m.seq LIMIT $5) x
      ORDER BY x.seq LIMIT $5) t

-- name: range_of_partition
-- The same of one partition, whose messages come in the order of the log, so that none is read in vain however long the range is.
FROM (SELECT m.* FROM message m
      WHERE (m.partition, m.queue_id, m.seq) BETWEEN ($4::text, $1, $2::bigint) AND ($4::text, $1, $3::bigint)
      ORDER BY m.partition, m.queue_id, m.seq LIMIT $5) t

-- name: shape
-- The shape of a range: its size, and which columns are the same for all messages and need not be read. The length of a payload that is
-- stored apart is known without reading it.
SELECT count(*) AS messages, min(t.seq) AS first, max(t.seq) AS last, min(t.created_at) AS first_at, max(t.created_at) AS last_at,
       coalesce(sum(octet_length(t.payload)), 0)::bigint AS payload_bytes, count(t.trace_id) AS traced,
       count(t.transaction_id) AS transaction_ids, count(t.content_type) AS content_types, count(t.headers) AS headers

-- name: fitting
-- The seq of the message whose payload reaches so many bytes.
SELECT b.seq FROM (SELECT t.seq, sum(octet_length(t.payload)) OVER (ORDER BY t.seq ROWS UNBOUNDED PRECEDING) AS through

-- name: seq
string_agg(int8send(t.seq), ''::bytea)

-- name: created_at
string_agg(int8send(t.created_at), ''::bytea)

-- name: message_id
string_agg(uuid_send(t.id), ''::bytea)

-- name: trace_id
string_agg(uuid_send(coalesce(t.trace_id, t.id)), ''::bytea)

-- name: partition
string_agg(int4send(octet_length(t.partition)), ''::bytea), textsend(string_agg(t.partition, ''))

-- name: payload
string_agg(int4send(octet_length(t.payload)), ''::bytea), string_agg(t.payload, ''::bytea)

-- name: short_payload
-- Only payloads up to a length. The shape tells the reader whether these are all of them.
string_agg(int4send(octet_length(t.payload)), ''::bytea), string_agg(t.payload, ''::bytea) FILTER (WHERE octet_length(t.payload) <= $6)

-- name: transaction_id
-- A null adds nothing to the values.
string_agg(int4send(coalesce(octet_length(t.transaction_id), -1)), ''::bytea), textsend(string_agg(t.transaction_id, ''))

-- name: content_type
string_agg(int4send(coalesce(octet_length(t.content_type), -1)), ''::bytea), textsend(string_agg(t.content_type, ''))

-- name: headers
string_agg(int4send(coalesce(octet_length(t.headers), -1)), ''::bytea), string_agg(t.headers, ''::bytea)
