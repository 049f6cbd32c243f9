-- Sealed payloads: which queues have them, and the keys, wrapped by a master key that is never here.

ALTER TABLE queue ADD COLUMN encryption_enabled INTEGER NOT NULL DEFAULT 0;

CREATE TABLE data_key (
    id         BLOB    PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    queue      TEXT    NOT NULL,
    master     TEXT    NOT NULL,
    wrapped    BLOB    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX data_key_queue ON data_key (tenant, queue);
