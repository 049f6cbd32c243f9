-- How many messages each data key has sealed, over all servers and restarts: nonces are random, so a key is changed in time.
-- In a table of its own: every version of a row of data_key that an update leaves behind would hold a key.
CREATE TABLE data_key_use (
    id     uuid   PRIMARY KEY,
    sealed bigint NOT NULL
);

-- Nobody counted what the keys that are there have sealed, so each counts as used up: the next message gets its queue a new one.
INSERT INTO data_key_use (id, sealed) SELECT k.id, 1 << 30 FROM data_key k;
