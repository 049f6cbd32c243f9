-- Runs of pipelines, as they told of themselves last.
CREATE TABLE pipeline_run (
    started_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    document   bytea NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 70);
CREATE INDEX pipeline_run_by_age ON pipeline_run (tenant, started_at, id);
