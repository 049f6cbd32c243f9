-- When the clock was last looked at, and when it was last seen to have been put back, until what it had stamped is put right.
CREATE TABLE clock (
    latest_at   bigint NOT NULL,
    put_back_at bigint,
    single      boolean PRIMARY KEY DEFAULT true CHECK (single)
);
-- Samples tell what the clock showed so far.
INSERT INTO clock (latest_at) SELECT coalesce(max(at), 0) FROM sample;
