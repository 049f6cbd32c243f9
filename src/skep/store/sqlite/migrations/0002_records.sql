-- What is kept beside the log: receipts, entities and their events, applied specs, endpoints. docs/log.md describes them.

-- Rows lie in the order in which they came and are found by a short name (`receipts.name_of`), so that keys in no order, as
-- hashes are, touch few pages: a receipt costs half of what it does as a row under a long key.
CREATE TABLE receipt (
    name       BLOB    NOT NULL,
    tenant     TEXT    NOT NULL,
    scope      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    answer     BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX receipt_name ON receipt (name);
CREATE INDEX receipt_expiry ON receipt (expires_at);

-- Events name their entity by its number, which is short and never used twice. States may be large, hence a rowid table.
CREATE TABLE entity (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant     TEXT    NOT NULL,
    type       TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    state      BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX entity_key ON entity (tenant, type, id);

CREATE TABLE entity_event (
    entity INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    cause  BLOB,
    name   TEXT    NOT NULL,
    data   BLOB    NOT NULL,
    PRIMARY KEY (entity, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE app (
    name       TEXT    NOT NULL PRIMARY KEY,
    revision   INTEGER NOT NULL,
    applied_at INTEGER NOT NULL,
    document   BLOB    NOT NULL
) STRICT;

-- One row, which counts every change of any app, a deletion too.
CREATE TABLE app_revision (
    single   INTEGER NOT NULL PRIMARY KEY CHECK (single = 1),
    revision INTEGER NOT NULL
) STRICT;
INSERT INTO app_revision VALUES (1, 0);

CREATE TABLE endpoint (
    tenant     TEXT    NOT NULL,
    url        TEXT    NOT NULL,
    failures   INTEGER NOT NULL,
    open_until INTEGER,
    stopped_at INTEGER,
    updated_at INTEGER NOT NULL,
    reason     TEXT,
    PRIMARY KEY (tenant, url)
) STRICT, WITHOUT ROWID;
