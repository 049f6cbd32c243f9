-- What was settled under which token, and answered, for those who did not get the answer and settle again. Looked for among the newest
-- rows only, and only when a settlement is refused, so there is no index. Without a token nobody was answered. `seqs` are those of acks
-- that leave gaps between them; without them all from first_seq to last_seq are meant, unless there is an answer, which names them.
ALTER TABLE lease_history ADD COLUMN token uuid;
ALTER TABLE lease_history ADD COLUMN seqs bigint[];
ALTER TABLE lease_history ADD COLUMN answer bytea;
