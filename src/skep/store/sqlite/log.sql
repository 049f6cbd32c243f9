-- Ranges of the log as columns. SQLite puts the values of a column one after the other, so that no Python object is made per
-- message and the interpreter is free meanwhile. A statement is `SELECT`, some of the columns, and one of the ranges.

-- name: range
-- The table's own b-tree and no other, for the values are put together in its order.
FROM message NOT INDEXED WHERE position BETWEEN ?1 AND ?2

-- name: range_of_partitions
-- Index message_partition, for each partition of the JSON array ?3, at most ?4 messages in all: its entries end with the position.
-- The positions are sorted before the table is looked at.
FROM message NOT INDEXED WHERE position IN (
    SELECT m.position FROM json_each(?3) AS wanted CROSS JOIN message AS m INDEXED BY message_partition
    WHERE m.queue_id = ?1 >> 40 AND m.partition = wanted.value AND m.position BETWEEN ?1 AND ?2
    ORDER BY m.position LIMIT ?4)

-- name: range_of_partition
-- The same of one partition ?3, in the order of the log. Where the last of so many messages stands is known from the index alone, so no
-- more is looked at, however long the range is.
FROM message INDEXED BY message_partition WHERE queue_id = ?1 >> 40 AND partition = ?3 AND position BETWEEN ?1 AND (
    SELECT max(m.position) FROM (
        SELECT n.position FROM message AS n INDEXED BY message_partition
        WHERE n.queue_id = ?1 >> 40 AND n.partition = ?3 AND n.position BETWEEN ?1 AND ?2
        ORDER BY n.position LIMIT ?4) AS m)

-- name: shape
-- The number of messages, and which columns need not be read, as all values are equal or null. SQLite knows a payload's length unread.
SELECT count(*), min(position & 1099511627775), max(position & 1099511627775), min(created_at), max(created_at),
       coalesce(sum(octet_length(payload)), 0), count(trace_id), count(transaction_id), count(content_type), count(headers)

-- name: fitting
-- The position of the message whose payload reaches ?5 bytes, or the last.
SELECT coalesce(min(CASE WHEN through >= ?5 THEN position END), max(position))
FROM (SELECT position, sum(octet_length(payload)) OVER (ORDER BY position ROWS UNBOUNDED PRECEDING) AS through

-- name: seq
group_concat(position & 1099511627775)

-- name: created_at
group_concat(created_at)

-- name: message_id
CAST(group_concat(id, '') AS BLOB)

-- name: trace_id
CAST(group_concat(coalesce(trace_id, id), '') AS BLOB)

-- name: partition
group_concat(octet_length(partition)), CAST(group_concat(partition, '') AS BLOB)

-- name: payload
group_concat(octet_length(payload)), CAST(group_concat(payload, '') AS BLOB)

-- name: short_payload
-- Only payloads up to a length, ?5. The shape tells the reader whether these are all of them.
group_concat(octet_length(payload)), CAST(group_concat(payload, '') FILTER (WHERE octet_length(payload) <= ?5) AS BLOB)

-- name: transaction_id
-- A null adds nothing to the values.
group_concat(coalesce(octet_length(transaction_id), -1)), CAST(group_concat(transaction_id, '') AS BLOB)

-- name: content_type
group_concat(coalesce(octet_length(content_type), -1)), CAST(group_concat(content_type, '') AS BLOB)

-- name: headers
group_concat(coalesce(octet_length(headers), -1)), CAST(group_concat(headers, '') AS BLOB)
