-- Figures by the minute, for charts. Queue 0 is the whole tenant. A row is written a few times in its minute, hence the room.
CREATE TABLE past (
    minute    bigint NOT NULL,
    at        bigint NOT NULL,
    pushed    bigint NOT NULL,
    completed bigint NOT NULL,
    retried   bigint NOT NULL,
    dead      bigint NOT NULL,
    depth     bigint NOT NULL,
    queue_id  integer NOT NULL,
    tenant    text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, queue_id, minute)
) WITH (fillfactor = 70);
CREATE INDEX past_by_age ON past (minute);

-- What workers tell of the traces that they work on.
CREATE TABLE trace_event (
    position   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         bigint NOT NULL,
    trace_id   uuid NOT NULL,
    message_id uuid,
    tenant     text COLLATE "C" NOT NULL,
    queue      text COLLATE "C",
    name       text COLLATE "C" NOT NULL,
    data       bytea NOT NULL
);
CREATE INDEX trace_event_by_trace ON trace_event (trace_id, tenant, position);
CREATE INDEX trace_event_by_name ON trace_event (tenant, name, position);
