-- Sessions of people who logged in to the dashboard. The id is a digest of what the browser shows.
CREATE TABLE session (
    created_at bigint NOT NULL,
    used_at    bigint NOT NULL,
    expires_at bigint NOT NULL,
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    owner      text COLLATE "C" NOT NULL,
    document   bytea NOT NULL
);
CREATE INDEX session_by_owner ON session (owner, used_at);
CREATE INDEX session_by_expiry ON session (expires_at);
