-- Whether keys are asked for: once somebody made a key it stays so, also when the last one has expired and was forgotten, until
-- somebody says otherwise. One row at most; none means that nobody ever had a key.
CREATE TABLE access_state (
    only_one   INTEGER PRIMARY KEY CHECK (only_one = 1),
    closed     INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT;

-- The audit log remembers longer than keys do.
INSERT INTO access_state (only_one, closed, changed_at)
SELECT 1, 1, 0 WHERE EXISTS (SELECT 1 FROM access_key)
    OR EXISTS (SELECT 1 FROM audit WHERE action IN ('skep key create', 'POST /api/v1/keys') AND outcome = 'done');
