-- What is left of messages that were forgotten for good: their seqs. Readers of the log elsewhere (a lake) learn from it what they have to
-- forget, too. Positions of a log rise in commit order; its ranges never overlap.
CREATE TABLE forgotten (
    queue_id     INTEGER NOT NULL,
    position     INTEGER NOT NULL,
    first_seq    INTEGER NOT NULL,
    last_seq     INTEGER NOT NULL,
    forgotten_at INTEGER NOT NULL,
    PRIMARY KEY (queue_id, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX forgotten_seq ON forgotten (queue_id, first_seq);

-- What a replay made of a letter goes with the message that the letter was of, and a replay goes with what it made.
CREATE INDEX replay_history_dead_id ON replay_history (dead_id);
CREATE INDEX replay_history_message ON replay_history (queue_id, seq);
