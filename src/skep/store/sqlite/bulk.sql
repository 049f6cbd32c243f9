-- The log in bulk.

-- name: append_packed
-- All rows of a batch out of one blob, without a Python call per row. ?1 is the position before the first, ?2 the queue, ?3 the
-- time, ?4 the blob, ?5 for each row where it begins and how long its parts are (bulk.py packs that), ?6 the one partition of a fifo
-- queue, ?7 whether ids must be written as trace ids, ?8 the headers.
INSERT INTO message (position, queue_id, created_at, priority, id, partition, trace_id, headers, payload)
SELECT ?1 + c.rowid, ?2, ?3, 0,
       substr(?4, (c.value >> 35) + 1, 16),
       coalesce(?6, CAST(substr(?4, (c.value >> 35) + 17, (c.value >> 24) & 2047) AS TEXT)),
       iif(?7, substr(?4, (c.value >> 35) + 1, 16), NULL),
       ?8,
       substr(?4, (c.value >> 35) + 17 + ((c.value >> 24) & 2047), c.value & 16777215)
FROM carray(?5) AS c
