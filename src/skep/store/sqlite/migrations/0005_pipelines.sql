-- Runs of pipelines, as they told of themselves last.
CREATE TABLE pipeline_run (
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    document   BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX pipeline_run_key ON pipeline_run (tenant, id);
CREATE INDEX pipeline_run_age ON pipeline_run (tenant, started_at, id);
