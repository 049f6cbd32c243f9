-- Sealed payloads: which queues have them, and the keys, wrapped by a master key that is never here.

ALTER TABLE queue ADD COLUMN encryption_enabled boolean NOT NULL DEFAULT false;

CREATE TABLE data_key (
    id         uuid PRIMARY KEY,
    created_at bigint NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    master     text NOT NULL,
    wrapped    bytea NOT NULL
);
CREATE INDEX data_key_by_queue ON data_key (tenant, queue);
