-- How many dead letters lie in a queue, by where they come from, without counting them. A position's high bits are its queue's id.
CREATE TABLE dead_letter_count (
    queue_id        INTEGER NOT NULL,
    source_queue_id INTEGER NOT NULL,
    letters         INTEGER NOT NULL,
    PRIMARY KEY (queue_id, source_queue_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX dead_letter_count_source ON dead_letter_count (source_queue_id);

INSERT INTO dead_letter_count (queue_id, source_queue_id, letters)
SELECT position >> 40, source_queue_id, count(*) FROM dead_letter GROUP BY position >> 40, source_queue_id;

CREATE TRIGGER dead_letter_comes AFTER INSERT ON dead_letter BEGIN
    INSERT INTO dead_letter_count (queue_id, source_queue_id, letters) VALUES (NEW.position >> 40, NEW.source_queue_id, 1)
    ON CONFLICT (queue_id, source_queue_id) DO UPDATE SET letters = letters + 1;
END;
CREATE TRIGGER dead_letter_goes AFTER DELETE ON dead_letter BEGIN
    UPDATE dead_letter_count SET letters = letters - 1
    WHERE queue_id = OLD.position >> 40 AND source_queue_id = OLD.source_queue_id;
    DELETE FROM dead_letter_count
    WHERE queue_id = OLD.position >> 40 AND source_queue_id = OLD.source_queue_id AND letters = 0;
END;
