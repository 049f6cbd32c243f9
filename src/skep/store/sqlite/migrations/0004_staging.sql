-- Chunks of messages that are in no log yet: `data` is an Arrow stream that only the server reads, `queues` a JSON array of names.
-- A table with a rowid: the data is large, and what is looked at without it comes first.
CREATE TABLE staged_chunk (
    tenant     TEXT    NOT NULL,
    query      TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    partition  INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    messages   INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    queues     TEXT    NOT NULL,
    data       BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX staged_chunk_key ON staged_chunk (tenant, query, epoch, partition, attempt, number);
CREATE INDEX staged_chunk_expiry ON staged_chunk (expires_at);
