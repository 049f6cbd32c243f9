-- How many dead letters lie in a queue, by where they come from, without counting them: a row for each statement that buries or
-- takes away, added up by a chore. Rows are only ever added by those who bury, so that none of them waits for another.
CREATE TABLE dead_letter_change (
    change       bigint NOT NULL,
    queue_id     integer NOT NULL,
    source_queue text NOT NULL
);
CREATE INDEX dead_letter_change_by_queue ON dead_letter_change (queue_id, source_queue);

INSERT INTO dead_letter_change (change, queue_id, source_queue)
SELECT count(*), d.queue_id, d.source_queue FROM dead_letter d GROUP BY d.queue_id, d.source_queue;

CREATE FUNCTION note_dead_letters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dead_letter_change (change, queue_id, source_queue)
    SELECT CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END, c.queue_id, c.source_queue
    FROM changed c GROUP BY c.queue_id, c.source_queue;
    RETURN NULL;
END
$$;
CREATE TRIGGER dead_letters_come AFTER INSERT ON dead_letter REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION note_dead_letters();
CREATE TRIGGER dead_letters_go AFTER DELETE ON dead_letter REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION note_dead_letters();
