-- Why attempts failed: a row for each that did, none for those that did not. It is found by its message, and ages out with the lease history.
CREATE TABLE failed_attempt (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id   INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    group_name TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    leased_at  INTEGER NOT NULL,
    failed_at  INTEGER NOT NULL,
    outcome    TEXT    NOT NULL,
    error      TEXT,
    consumer   TEXT
) STRICT;
CREATE INDEX failed_attempt_message ON failed_attempt (queue_id, seq);

-- Who holds a lease, as the pop said it (`skep.consumers`). It says nothing once there is no token.
ALTER TABLE partition_lease ADD COLUMN consumer TEXT;
ALTER TABLE set_lease ADD COLUMN consumer TEXT;
