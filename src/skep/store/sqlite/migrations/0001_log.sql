-- The log and the state of its groups, as docs/log.md describes them. Times are microseconds, ids 16 bytes.

-- AUTOINCREMENT: an id is never used twice, also after a deleted queue's row is swept away.
CREATE TABLE queue (
    id                          INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant                      TEXT    NOT NULL,
    name                        TEXT    NOT NULL,
    namespace                   TEXT,
    task                        TEXT,
    priority                    INTEGER NOT NULL,
    ordering                    TEXT    NOT NULL,
    lease_seconds               REAL    NOT NULL,
    max_attempts                INTEGER NOT NULL,
    initial_backoff_ms          INTEGER NOT NULL,
    max_backoff_ms              INTEGER NOT NULL,
    dead_letter_queue           TEXT,
    max_depth                   INTEGER NOT NULL,
    max_age_seconds             REAL    NOT NULL,
    retention_seconds           REAL    NOT NULL,
    completed_retention_seconds REAL    NOT NULL,
    retention_ignores_groups    INTEGER NOT NULL,
    delayed_processing_seconds  REAL    NOT NULL,
    window_buffer_seconds       REAL    NOT NULL,
    max_wait_seconds            REAL    NOT NULL,
    dedup_window_seconds        REAL    NOT NULL,
    paused                      INTEGER NOT NULL,
    holds_dead_letters          INTEGER NOT NULL,
    floor_seq                   INTEGER NOT NULL DEFAULT 0,
    first_seq                   INTEGER NOT NULL DEFAULT 1,
    scheduled_count             INTEGER NOT NULL DEFAULT 0, -- so that no push counts the schedule
    created_at                  INTEGER NOT NULL,
    updated_at                  INTEGER NOT NULL,
    deleted_at                  INTEGER
) STRICT;
CREATE UNIQUE INDEX queue_name ON queue (tenant, name) WHERE deleted_at IS NULL;
CREATE INDEX queue_buries_in ON queue (tenant, dead_letter_queue) WHERE dead_letter_queue IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX queue_deleted ON queue (deleted_at) WHERE deleted_at IS NOT NULL;

-- position = queue id << 40 | seq, so the table's own b-tree is the (queue, seq) key and appends go to its right edge.
-- What is looked at without the payload comes first: SQLite then never reads a large payload's overflow pages for it.
CREATE TABLE message (
    position       INTEGER PRIMARY KEY,
    queue_id       INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    priority       INTEGER NOT NULL,
    audience       INTEGER,
    id             BLOB    NOT NULL,
    partition      TEXT    NOT NULL,
    transaction_id TEXT,
    trace_id       BLOB,
    content_type   TEXT,
    headers        BLOB,
    payload        BLOB    NOT NULL
) STRICT;
-- Every index ends with the rowid, here the position: inside a partition it is in the order of seq.
CREATE INDEX message_partition ON message (queue_id, partition);
CREATE INDEX message_transaction_id ON message (queue_id, transaction_id) WHERE transaction_id IS NOT NULL;
CREATE INDEX message_trace ON message (trace_id) WHERE trace_id IS NOT NULL;

CREATE TABLE dedup (
    queue_id       INTEGER NOT NULL,
    transaction_id TEXT    NOT NULL,
    partition      TEXT    NOT NULL,
    message_id     BLOB    NOT NULL,
    seq            INTEGER,
    expires_at     INTEGER NOT NULL,
    PRIMARY KEY (queue_id, transaction_id, partition)
) STRICT, WITHOUT ROWID;
CREATE INDEX dedup_expiry ON dedup (expires_at);

CREATE TABLE scheduled (
    arrival        INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id       INTEGER NOT NULL,
    due_at         INTEGER NOT NULL,
    priority       INTEGER NOT NULL,
    id             BLOB    NOT NULL,
    partition      TEXT    NOT NULL,
    transaction_id TEXT,
    trace_id       BLOB    NOT NULL,
    content_type   TEXT,
    headers        BLOB,
    payload        BLOB    NOT NULL
) STRICT;
CREATE INDEX scheduled_due ON scheduled (queue_id, due_at);

-- AUTOINCREMENT: a message's audience names a group by id, which must never come to mean another group.
CREATE TABLE consumer_group (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id   INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    start_seq  INTEGER NOT NULL,
    scan_seq   INTEGER NOT NULL,
    completed  INTEGER NOT NULL DEFAULT 0,
    dead       INTEGER NOT NULL DEFAULT 0,
    expired    INTEGER NOT NULL DEFAULT 0,
    skipped    INTEGER NOT NULL DEFAULT 0,
    retried    INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    UNIQUE (queue_id, name)
) STRICT;

-- A group belongs to one queue, so the group alone leads the key. `head_seq` is the first unsettled seq, `expires_at` is
-- null unless the queue has max_wait or max_age.
CREATE TABLE partition_lease (
    group_id        INTEGER NOT NULL,
    partition       TEXT    NOT NULL,
    delivered_seq   INTEGER NOT NULL,
    head_seq        INTEGER NOT NULL,
    pending         INTEGER NOT NULL,
    open            BLOB,
    leased          INTEGER NOT NULL DEFAULT 0,
    attempts        INTEGER NOT NULL DEFAULT 0,
    token           BLOB,
    leased_at       INTEGER NOT NULL DEFAULT 0,
    ready_at        INTEGER NOT NULL,
    oldest_at       INTEGER NOT NULL,
    newest_at       INTEGER NOT NULL,
    expires_at      INTEGER,
    last_error      TEXT,
    PRIMARY KEY (group_id, partition)
) STRICT, WITHOUT ROWID;
-- Free and leased rows have an index each: a row is in exactly one of them, so this costs no more than one index over
-- both, and run-out leases are found without walking over the backlog.
CREATE INDEX partition_lease_free ON partition_lease (group_id, ready_at, partition) WHERE token IS NULL;
CREATE INDEX partition_lease_leased ON partition_lease (group_id, ready_at, partition) WHERE token IS NOT NULL;
CREATE INDEX partition_lease_expiry ON partition_lease (group_id, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE set_lease (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    group_id        INTEGER NOT NULL,
    partition       TEXT    NOT NULL,
    priority        INTEGER NOT NULL,
    head_seq        INTEGER NOT NULL,
    seqs            BLOB    NOT NULL,
    attempts        INTEGER NOT NULL,
    token           BLOB,
    leased_at       INTEGER NOT NULL DEFAULT 0,
    ready_at        INTEGER NOT NULL,
    oldest_at       INTEGER NOT NULL,
    expires_at      INTEGER,
    last_error      TEXT
) STRICT;
CREATE INDEX set_lease_ready ON set_lease (group_id, priority, ready_at);
CREATE INDEX set_lease_partition ON set_lease (group_id, partition);
CREATE INDEX set_lease_leased ON set_lease (group_id, ready_at) WHERE token IS NOT NULL;
CREATE INDEX set_lease_token ON set_lease (group_id, token) WHERE token IS NOT NULL;
CREATE INDEX set_lease_expiry ON set_lease (group_id, expires_at) WHERE expires_at IS NOT NULL;

-- The same position as the message in the dead-letter queue. The source is kept by name, for it may be made anew.
CREATE TABLE dead_letter (
    position        INTEGER PRIMARY KEY,
    source_queue_id INTEGER NOT NULL,
    source_seq      INTEGER NOT NULL,
    source_queue    TEXT    NOT NULL,
    partition       TEXT    NOT NULL, -- there; here it may be the one of a fifo queue
    group_name      TEXT    NOT NULL,
    reason          TEXT    NOT NULL,
    attempts        INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    failed_at       INTEGER NOT NULL,
    error           TEXT
) STRICT;
CREATE INDEX dead_letter_source ON dead_letter (source_queue_id, source_seq);

CREATE TABLE replay_history (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    dead_queue_id INTEGER NOT NULL,
    dead_seq   INTEGER NOT NULL,
    dead_id    BLOB    NOT NULL,
    queue_id   INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    id         BLOB    NOT NULL,
    group_name TEXT    NOT NULL
) STRICT;

CREATE TABLE retention_history (
    position    INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id    INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    deleted     INTEGER NOT NULL,
    first_seq   INTEGER NOT NULL,
    settled_seq INTEGER NOT NULL
) STRICT;
CREATE INDEX retention_history_queue ON retention_history (queue_id, at);

CREATE TABLE lease_history (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id   INTEGER NOT NULL,
    group_name TEXT    NOT NULL,
    partition  TEXT    NOT NULL,
    first_seq  INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL,
    messages   INTEGER NOT NULL,
    completed  INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    leased_at  INTEGER NOT NULL,
    settled_at INTEGER NOT NULL,
    outcome    TEXT    NOT NULL
) STRICT;
CREATE INDEX lease_history_queue ON lease_history (queue_id);

-- group_id 0 is the queue itself.
CREATE TABLE sample (
    position  INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id  INTEGER NOT NULL,
    group_id  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    pushed    INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    retried   INTEGER NOT NULL,
    dead      INTEGER NOT NULL
) STRICT;
CREATE INDEX sample_group ON sample (queue_id, group_id, at);
