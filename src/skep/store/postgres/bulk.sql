-- name: read_log
-- A range of the log as one row: each column's values one after the other, with their lengths beside them where they differ (-1 is
-- null), in binary as Arrow wants it. Rides the primary key. $4 bounds the rows, $5 the bytes; one row is always taken.
WITH ranged AS MATERIALIZED (
    SELECT m.*, sum(octet_length(m.payload)) OVER (ORDER BY m.seq) - octet_length(m.payload) AS bytes_before
    FROM (SELECT m.* FROM message m
          WHERE m.queue_id = $1 AND m.seq >= $2 AND m.seq <= $3 ORDER BY m.queue_id, m.seq LIMIT $4) m
), taken AS (
    SELECT * FROM ranged WHERE bytes_before < $5 ORDER BY seq
)
SELECT string_agg(int8send(t.seq), ''::bytea) AS seqs,
       string_agg(int8send(t.created_at), ''::bytea) AS times,
       string_agg(uuid_send(t.id), ''::bytea) AS ids,
       string_agg(uuid_send(coalesce(t.trace_id, t.id)), ''::bytea) AS trace_ids,
       string_agg(int4send(octet_length(t.partition)), ''::bytea) AS partition_sizes,
       string_agg(convert_to(t.partition, 'UTF8'), ''::bytea) AS partitions,
       string_agg(int4send(coalesce(octet_length(t.transaction_id), -1)), ''::bytea) AS transaction_id_sizes,
       string_agg(convert_to(coalesce(t.transaction_id, ''), 'UTF8'), ''::bytea) AS transaction_ids,
       string_agg(int4send(coalesce(octet_length(t.content_type), -1)), ''::bytea) AS content_type_sizes,
       string_agg(convert_to(coalesce(t.content_type, ''), 'UTF8'), ''::bytea) AS content_types,
       string_agg(int4send(coalesce(octet_length(t.headers), -1)), ''::bytea) AS header_sizes,
       string_agg(coalesce(t.headers, ''::bytea), ''::bytea) AS headers,
       string_agg(int4send(octet_length(t.payload)), ''::bytea) AS payload_sizes,
       string_agg(t.payload, ''::bytea) AS payloads
FROM taken t
