-- What was settled under which token, and answered, for those who did not get the answer and settle again. Looked for among the newest
-- rows only, and only when a settlement is refused, so there is no index. Without a token nobody was answered.
ALTER TABLE lease_history ADD COLUMN token BLOB;
ALTER TABLE lease_history ADD COLUMN answer BLOB;
