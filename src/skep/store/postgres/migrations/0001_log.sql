-- The log, its groups, leases and dead letters. docs/log.md says what each table means and what must stay true.
-- Times are microseconds since 1970 in UTC. Columns are ordered widest first, so that rows carry no padding. Names are in byte order
-- (COLLATE "C"): it is fast, and Python sorts the same way, which the order of locks rests on.

CREATE TABLE queue (
    id                          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant                      text COLLATE "C" NOT NULL,
    name                        text COLLATE "C" NOT NULL,
    namespace                   text,
    task                        text,
    priority                    integer NOT NULL,
    ordering                    text NOT NULL,
    lease_seconds               double precision NOT NULL,
    max_attempts                integer NOT NULL,
    initial_backoff_ms          bigint NOT NULL,
    max_backoff_ms              bigint NOT NULL,
    dead_letter_queue           text,
    max_depth                   bigint NOT NULL,
    max_age_seconds             double precision NOT NULL,
    retention_seconds           double precision NOT NULL,
    completed_retention_seconds double precision NOT NULL,
    retention_ignores_groups    boolean NOT NULL,
    delayed_processing_seconds  double precision NOT NULL,
    window_buffer_seconds       double precision NOT NULL,
    max_wait_seconds            double precision NOT NULL,
    dedup_window_seconds        double precision NOT NULL,
    paused                      boolean NOT NULL,
    holds_dead_letters          boolean NOT NULL DEFAULT false,
    floor_seq                   bigint NOT NULL DEFAULT 0,
    first_seq                   bigint NOT NULL DEFAULT 1,
    scheduled_count             bigint NOT NULL DEFAULT 0,
    created_at                  bigint NOT NULL,
    updated_at                  bigint NOT NULL,
    deleted_at                  bigint
);
CREATE UNIQUE INDEX queue_by_name ON queue (tenant, name) WHERE deleted_at IS NULL;
CREATE INDEX queue_by_dead_letter_queue ON queue (dead_letter_queue, tenant) WHERE deleted_at IS NULL AND dead_letter_queue IS NOT NULL;
CREATE INDEX queue_deleted ON queue (id) WHERE deleted_at IS NOT NULL;

CREATE TABLE message (
    seq            bigint NOT NULL,
    created_at     bigint NOT NULL,
    id             uuid NOT NULL,
    trace_id       uuid,
    queue_id       integer NOT NULL,
    audience       integer,
    priority       integer NOT NULL,
    partition      text COLLATE "C" NOT NULL,
    transaction_id text COLLATE "C",
    content_type   text,
    headers        bytea,
    payload        bytea NOT NULL,
    PRIMARY KEY (queue_id, seq)
);
CREATE INDEX message_by_partition ON message (partition, queue_id, seq);
CREATE INDEX message_by_transaction_id ON message (transaction_id, queue_id, seq) WHERE transaction_id IS NOT NULL;
CREATE INDEX message_by_trace ON message (trace_id) WHERE trace_id IS NOT NULL;

CREATE TABLE dedup (
    seq            bigint,
    expires_at     bigint NOT NULL,
    message_id     uuid NOT NULL,
    queue_id       integer NOT NULL,
    transaction_id text COLLATE "C" NOT NULL,
    partition      text COLLATE "C" NOT NULL,
    PRIMARY KEY (queue_id, transaction_id, partition)
);
CREATE INDEX dedup_by_expiry ON dedup (expires_at);

CREATE TABLE scheduled (
    arrival        bigint GENERATED ALWAYS AS IDENTITY,
    due_at         bigint NOT NULL,
    id             uuid NOT NULL,
    trace_id       uuid NOT NULL,
    queue_id       integer NOT NULL,
    priority       integer NOT NULL,
    partition      text COLLATE "C" NOT NULL,
    transaction_id text COLLATE "C",
    content_type   text,
    headers        bytea,
    payload        bytea NOT NULL,
    PRIMARY KEY (queue_id, due_at, arrival)
);

CREATE TABLE consumer_group (
    start_seq  bigint NOT NULL,
    scan_seq   bigint NOT NULL,
    created_at bigint NOT NULL,
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id   integer NOT NULL,
    name       text COLLATE "C" NOT NULL,
    UNIQUE (queue_id, name)
) WITH (fillfactor = 50);

-- One row per group and shard; a server uses one shard, so that servers do not queue up at one row.
CREATE TABLE group_counter (
    completed bigint NOT NULL DEFAULT 0,
    dead      bigint NOT NULL DEFAULT 0,
    expired   bigint NOT NULL DEFAULT 0,
    skipped   bigint NOT NULL DEFAULT 0,
    retried   bigint NOT NULL DEFAULT 0,
    group_id  integer NOT NULL,
    queue_id  integer NOT NULL,
    shard     smallint NOT NULL,
    PRIMARY KEY (group_id, shard)
) WITH (fillfactor = 50);

CREATE TABLE partition_lease (
    delivered_seq bigint NOT NULL,
    pending       bigint NOT NULL,
    leased_at     bigint,
    ready_at      bigint NOT NULL,
    oldest_at     bigint NOT NULL,
    newest_at     bigint NOT NULL,
    token         uuid,
    queue_id      integer NOT NULL,
    group_id      integer NOT NULL,
    leased        integer NOT NULL DEFAULT 0,
    attempts      integer NOT NULL DEFAULT 0,
    partition     text COLLATE "C" NOT NULL,
    open          bigint[] NOT NULL DEFAULT '{}',
    last_error    text,
    PRIMARY KEY (partition, group_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
-- An expression, not the column: the planner, which may have to choose while the table is still empty, must never take this index
-- for look-ups by key. Statements that go by ready_at say group_id::bigint. A group's id implies its queue.
CREATE INDEX partition_lease_by_ready ON partition_lease ((group_id::bigint), ready_at, partition);

-- A row of it that a pop has locked. The tid leads straight back to it: nobody can move it while it is locked.
CREATE TYPE claimable AS (
    tid           tid,
    partition     text,
    delivered_seq bigint,
    pending       bigint,
    open          bigint[],
    leased        integer,
    attempts      integer,
    token         uuid,
    leased_at     bigint,
    ready_at      bigint
);

CREATE TABLE set_lease (
    id         bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    leased_at  bigint,
    ready_at   bigint NOT NULL,
    oldest_at  bigint NOT NULL,
    token      uuid,
    queue_id   integer NOT NULL,
    group_id   integer NOT NULL,
    priority   integer NOT NULL,
    attempts   integer NOT NULL DEFAULT 0,
    partition  text COLLATE "C" NOT NULL,
    seqs       bigint[] NOT NULL,
    last_error text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
CREATE INDEX set_lease_by_ready ON set_lease (queue_id, group_id, priority DESC, ready_at, id);
CREATE INDEX set_lease_by_token ON set_lease (token) WHERE token IS NOT NULL;

CREATE TABLE dead_letter (
    seq          bigint NOT NULL,
    source_seq   bigint NOT NULL,
    created_at   bigint NOT NULL,
    failed_at    bigint NOT NULL,
    id           uuid NOT NULL,
    queue_id     integer NOT NULL,
    attempts     integer NOT NULL,
    partition    text COLLATE "C" NOT NULL,
    source_queue text NOT NULL,
    group_name   text NOT NULL,
    reason       text NOT NULL,
    error        text,
    PRIMARY KEY (queue_id, seq)
);
CREATE INDEX dead_letter_by_id ON dead_letter (queue_id, id);
CREATE INDEX dead_letter_by_source ON dead_letter (queue_id, source_queue, source_seq);

CREATE TABLE replay_history (
    replayed_at bigint NOT NULL,
    dead_seq    bigint NOT NULL,
    seq         bigint NOT NULL,
    id          uuid NOT NULL,
    dead_id     uuid NOT NULL,
    dead_queue  integer NOT NULL,
    queue_id    integer NOT NULL,
    attempts    integer NOT NULL,
    group_name  text NOT NULL,
    reason      text NOT NULL,
    error       text,
    PRIMARY KEY (dead_queue, dead_seq)
);
CREATE INDEX replay_history_by_age ON replay_history (replayed_at);

CREATE TABLE lease_history (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    first_seq  bigint NOT NULL,
    last_seq   bigint NOT NULL,
    leased_at  bigint NOT NULL,
    settled_at bigint NOT NULL,
    queue_id   integer NOT NULL,
    group_id   integer NOT NULL,
    messages   integer NOT NULL,
    completed  integer NOT NULL,
    attempt    integer NOT NULL,
    outcome    text NOT NULL,
    partition  text COLLATE "C" NOT NULL
);

CREATE TABLE retention_history (
    at          bigint NOT NULL,
    deleted     bigint NOT NULL,
    first_seq   bigint NOT NULL,
    settled_seq bigint NOT NULL,
    queue_id    integer NOT NULL,
    PRIMARY KEY (queue_id, at)
);

CREATE TABLE sample (
    at        bigint NOT NULL,
    last_seq  bigint NOT NULL,
    completed bigint NOT NULL,
    dead      bigint NOT NULL,
    expired   bigint NOT NULL,
    retried   bigint NOT NULL,
    queue_id  integer NOT NULL,
    group_id  integer NOT NULL,
    PRIMARY KEY (queue_id, group_id, at)
);
CREATE INDEX sample_by_age ON sample (at);

-- Who waits for messages of a queue, so that pushes elsewhere are announced only when someone listens.
CREATE TABLE watcher (
    until    bigint NOT NULL,
    queue_id integer NOT NULL,
    server   uuid NOT NULL,
    PRIMARY KEY (queue_id, server)
);
