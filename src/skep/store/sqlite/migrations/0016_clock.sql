-- When the clock was last looked at, and when it was last seen to have been put back, until what it had stamped is put right.
CREATE TABLE clock (
    single      INTEGER PRIMARY KEY CHECK (single = 1),
    latest_at   INTEGER NOT NULL,
    put_back_at INTEGER
) STRICT;
-- Samples tell what the clock showed so far.
INSERT INTO clock (single, latest_at) SELECT 1, coalesce(max(at), 0) FROM sample;
