-- Calls that were accepted while the store was too busy (design 5). An operation is live until `processed_at` is set. Its order is that
-- of `position`, within (lane, tenant, queue, partition); names and not ids, since a push may be for a queue that is yet to be made.
-- `ready_at` is when it may be claimed: 0 for a fresh one, the claim's deadline while it is processed, the backoff's end after a failure.
CREATE TABLE operation (
    position          INTEGER PRIMARY KEY AUTOINCREMENT,
    id                BLOB    NOT NULL,
    kind              TEXT    NOT NULL,
    lane              TEXT    NOT NULL,
    tenant            TEXT    NOT NULL,
    queue             TEXT    NOT NULL,
    partition         TEXT    NOT NULL,
    priority          INTEGER NOT NULL,
    status            TEXT    NOT NULL DEFAULT 'pending',
    size_bytes        INTEGER NOT NULL,
    messages          INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    started_at        INTEGER,
    processed_at      INTEGER,
    ready_at          INTEGER NOT NULL DEFAULT 0,
    worker            TEXT,
    timeout_seconds   REAL    NOT NULL,
    tries             INTEGER NOT NULL DEFAULT 0,
    max_retries       INTEGER NOT NULL,
    error             TEXT,
    code              TEXT,
    dead_letter_queue TEXT,
    token             BLOB,
    result            BLOB,
    payload           BLOB
) STRICT;
CREATE UNIQUE INDEX operation_id ON operation (id);
CREATE INDEX operation_partition ON operation (tenant, queue, lane, partition, position) WHERE processed_at IS NULL;
CREATE INDEX operation_turn ON operation (priority, position) WHERE processed_at IS NULL;
CREATE INDEX operation_ready ON operation (ready_at) WHERE processed_at IS NULL AND ready_at > 0;
CREATE INDEX operation_status ON operation (status, position);
