-- What is left of messages that were forgotten for good: their seqs. Readers of the log elsewhere (a lake) learn from it what they have to
-- forget, too. Positions of a log rise in commit order; its ranges never overlap.
CREATE TABLE forgotten (
    position     bigint NOT NULL,
    first_seq    bigint NOT NULL,
    last_seq     bigint NOT NULL,
    forgotten_at bigint NOT NULL,
    queue_id     integer NOT NULL,
    PRIMARY KEY (queue_id, position)
);
-- An expression, not the column: statements that go by position must not have two indexes to choose from.
CREATE INDEX forgotten_by_seq ON forgotten ((queue_id::bigint), first_seq);

-- A message's dead letters are found in whichever queues they lie, and in the order of their source. Expressions, for look-ups by the
-- primary key.
DROP INDEX dead_letter_by_source;
CREATE INDEX dead_letter_by_source ON dead_letter (source_queue, source_seq, (queue_id::bigint), (seq + 0));

-- What a replay made of a letter goes with the message that the letter was of, and a replay goes with what it made. Expressions: the
-- primary key and the index by age are for all others.
CREATE INDEX replay_history_by_letter ON replay_history (dead_id);
CREATE INDEX replay_history_by_message ON replay_history ((queue_id::bigint), seq);
