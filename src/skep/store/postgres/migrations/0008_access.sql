-- Keys: who may do what. Only a digest of a key's secret is here.
CREATE TABLE access_key (
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    forget_at  bigint,
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    digest     bytea NOT NULL,
    document   bytea NOT NULL
);
CREATE INDEX access_key_forget ON access_key (forget_at) WHERE forget_at IS NOT NULL;

-- What admins did.
CREATE TABLE audit (
    position   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         bigint NOT NULL,
    expires_at bigint NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    actor      text NOT NULL,
    action     text NOT NULL,
    queues     text NOT NULL,
    outcome    text
);
CREATE INDEX audit_by_tenant ON audit (tenant, position);
CREATE INDEX audit_by_expiry ON audit (expires_at);
