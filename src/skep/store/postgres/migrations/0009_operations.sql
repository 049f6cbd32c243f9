-- Calls that were accepted while the store was too busy (design 5). An operation is live until `processed_at` is set. Its order is that
-- of `position`, within (lane, tenant, queue, partition); names and not ids, since a push may be for a queue that is yet to be made.
-- `ready_at` is when it may be claimed: 0 for a fresh one, the claim's deadline while it is processed, the backoff's end after a failure.
CREATE TABLE operation (
    position          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at        bigint NOT NULL,
    started_at        bigint,
    processed_at      bigint,
    ready_at          bigint NOT NULL DEFAULT 0,
    size_bytes        bigint NOT NULL,
    timeout_seconds   double precision NOT NULL,
    id                uuid NOT NULL UNIQUE,
    token             uuid,
    messages          integer NOT NULL,
    tries             integer NOT NULL DEFAULT 0,
    max_retries       integer NOT NULL,
    priority          integer NOT NULL,
    kind              text NOT NULL,
    lane              text NOT NULL,
    status            text NOT NULL DEFAULT 'pending',
    tenant            text COLLATE "C" NOT NULL,
    queue             text COLLATE "C" NOT NULL,
    partition         text COLLATE "C" NOT NULL,
    worker            text,
    code              text,
    error             text,
    dead_letter_queue text,
    result            bytea,
    payload           bytea
);
CREATE INDEX operation_by_partition ON operation (tenant, queue, lane, partition, position) WHERE processed_at IS NULL;
CREATE INDEX operation_by_turn ON operation (priority, position) WHERE processed_at IS NULL;
CREATE INDEX operation_by_failure ON operation (status, position) WHERE status IN ('failed', 'cancelled');
CREATE INDEX operation_completed ON operation (processed_at) WHERE status = 'completed';
-- A claim changes nothing that is indexed, and finds room beside the row: then it costs no index anything. Payloads are not compressed,
-- which would take longer than all the rest, for something that is gone again in a moment.
ALTER TABLE operation SET (fillfactor = 60);
ALTER TABLE operation ALTER COLUMN payload SET STORAGE EXTERNAL, ALTER COLUMN result SET STORAGE EXTERNAL;
-- Live rows come and go all the time.
ALTER TABLE operation SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
