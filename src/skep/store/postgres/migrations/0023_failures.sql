-- Why attempts failed: a row for each that did, none for those that did not. It is found by its message, and ages out with the lease history.
CREATE TABLE failed_attempt (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seq        bigint NOT NULL,
    leased_at  bigint NOT NULL,
    failed_at  bigint NOT NULL,
    queue_id   integer NOT NULL,
    attempt    integer NOT NULL,
    group_name text COLLATE "C" NOT NULL,
    outcome    text NOT NULL,
    error      text,
    consumer   text
);
CREATE INDEX failed_attempt_by_message ON failed_attempt (queue_id, seq, id);
-- No statement looks for rows by it, and ANALYZE would keep samples of it (0021).
ALTER TABLE failed_attempt ALTER COLUMN error SET STATISTICS 0;

-- Who holds a lease, as the pop said it (`skep.consumers`). It says nothing once there is no token.
ALTER TABLE partition_lease ADD COLUMN consumer text;
ALTER TABLE set_lease ADD COLUMN consumer text;
