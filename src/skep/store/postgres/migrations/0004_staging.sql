-- Chunks of messages that are in no log yet: `data` is an Arrow stream that only the server reads.
CREATE TABLE staged_chunk (
    epoch      bigint NOT NULL,
    partition  bigint NOT NULL,
    attempt    bigint NOT NULL,
    number     bigint NOT NULL,
    messages   bigint NOT NULL,
    expires_at bigint NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    query      text COLLATE "C" NOT NULL,
    queues     text[] NOT NULL,
    data       bytea NOT NULL,
    PRIMARY KEY (query, epoch, partition, attempt, number, tenant)
);
CREATE INDEX staged_chunk_by_expiry ON staged_chunk (expires_at);
-- It is compressed already.
ALTER TABLE staged_chunk ALTER COLUMN data SET STORAGE EXTERNAL;
