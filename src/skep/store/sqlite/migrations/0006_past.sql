-- Figures by the minute, for charts. Queue 0 is the whole tenant. Rows come in the order of time, so the oldest are at the left edge.
CREATE TABLE past (
    position  INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant    TEXT    NOT NULL,
    queue_id  INTEGER NOT NULL,
    minute    INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    pushed    INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    retried   INTEGER NOT NULL,
    dead      INTEGER NOT NULL,
    depth     INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX past_key ON past (tenant, queue_id, minute);

-- What workers tell of the traces that they work on.
CREATE TABLE trace_event (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    tenant     TEXT    NOT NULL,
    trace_id   BLOB    NOT NULL,
    message_id BLOB,
    queue      TEXT,
    name       TEXT    NOT NULL,
    data       BLOB    NOT NULL
) STRICT;
CREATE INDEX trace_event_trace ON trace_event (tenant, trace_id);
CREATE INDEX trace_event_name ON trace_event (tenant, name);
