-- What is kept beside the log: receipts, entities and their events, applied specs, endpoints. docs/log.md describes them.

-- Led by the key, which tells most apart.
CREATE TABLE receipt (
    expires_at bigint NOT NULL,
    key        text COLLATE "C" NOT NULL,
    scope      text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    answer     bytea NOT NULL,
    PRIMARY KEY (key, scope, tenant)
);
CREATE INDEX receipt_by_expiry ON receipt (expires_at);

-- Events name their entity by its number, which is short and never used twice.
CREATE TABLE entity (
    number     bigint GENERATED ALWAYS AS IDENTITY,
    version    bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    type       text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    state      bytea NOT NULL,
    PRIMARY KEY (tenant, type, id)
) WITH (fillfactor = 70);

CREATE TABLE entity_event (
    entity bigint NOT NULL,
    number bigint NOT NULL,
    at     bigint NOT NULL,
    cause  uuid,
    name   text NOT NULL,
    data   bytea NOT NULL,
    PRIMARY KEY (entity, number)
);

CREATE TABLE app (
    revision   bigint NOT NULL,
    applied_at bigint NOT NULL,
    name       text COLLATE "C" NOT NULL PRIMARY KEY,
    document   bytea NOT NULL
);

-- One row, which counts every change of any app, a deletion too. Its lock is that of all apps.
CREATE TABLE app_revision (
    single   boolean PRIMARY KEY DEFAULT true CHECK (single),
    revision bigint NOT NULL
);
INSERT INTO app_revision (revision) VALUES (0);

CREATE TABLE endpoint (
    open_until bigint,
    stopped_at bigint,
    updated_at bigint NOT NULL,
    failures   integer NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    url        text COLLATE "C" NOT NULL,
    reason     text,
    PRIMARY KEY (tenant, url)
);
