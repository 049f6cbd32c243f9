-- Sessions of people who logged in to the dashboard. The id is a digest of what the browser shows.
CREATE TABLE session (
    id         TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    document   BLOB    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX session_owner ON session (owner, used_at);
CREATE INDEX session_expiry ON session (expires_at);
