-- When an operation failed last.
ALTER TABLE operation ADD COLUMN error_at INTEGER;
