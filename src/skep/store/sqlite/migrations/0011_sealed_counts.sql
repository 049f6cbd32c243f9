-- How many messages each data key has sealed, over all servers and restarts: nonces are random, so a key is changed in time.
-- In a table of its own: the rows of data_key are never rewritten but to destroy what was in them.
CREATE TABLE data_key_use (
    id     BLOB    PRIMARY KEY,
    sealed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Nobody counted what the keys that are there have sealed, so each counts as used up: the next message gets its queue a new one.
INSERT INTO data_key_use (id, sealed) SELECT id, 1 << 30 FROM data_key;
