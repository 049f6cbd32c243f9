-- Keys: who may do what. Only a digest of a key's secret is here.
CREATE TABLE access_key (
    id         TEXT    NOT NULL PRIMARY KEY,
    digest     BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    document   BLOB    NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    forget_at  INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX access_key_forget ON access_key (forget_at) WHERE forget_at IS NOT NULL;

-- What admins did.
CREATE TABLE audit (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    tenant     TEXT    NOT NULL,
    actor      TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    queues     TEXT    NOT NULL,
    outcome    TEXT
) STRICT;
CREATE INDEX audit_tenant ON audit (tenant, position);
CREATE INDEX audit_expiry ON audit (expires_at);
