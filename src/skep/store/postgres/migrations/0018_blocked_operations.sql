-- Since when an operation fails with its `code`: what it waits for, and for how long, is seen, and goes by that and not by its tries.
ALTER TABLE operation ADD COLUMN blocked_at bigint;
