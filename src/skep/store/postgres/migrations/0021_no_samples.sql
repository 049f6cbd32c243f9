-- ANALYZE keeps samples of columns in a table of its own, where keys and payloads would stay when their rows are destroyed. No statement
-- looks for rows by these columns. To "change" a column's type drops the samples that it has.
ALTER TABLE data_key ALTER COLUMN wrapped TYPE bytea;
ALTER TABLE data_key ALTER COLUMN wrapped SET STATISTICS 0;
ALTER TABLE message ALTER COLUMN payload SET STATISTICS 0, ALTER COLUMN headers SET STATISTICS 0;
ALTER TABLE scheduled ALTER COLUMN payload SET STATISTICS 0, ALTER COLUMN headers SET STATISTICS 0;
ALTER TABLE operation ALTER COLUMN payload SET STATISTICS 0;
ALTER TABLE staged_chunk ALTER COLUMN data SET STATISTICS 0;
