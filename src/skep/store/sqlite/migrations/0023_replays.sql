-- A replay is shown with what the letter had died of. Of earlier replays nobody knows. They are listed by their dead-letter queue.
ALTER TABLE replay_history ADD COLUMN reason TEXT;
ALTER TABLE replay_history ADD COLUMN error TEXT;
ALTER TABLE replay_history ADD COLUMN attempts INTEGER;
CREATE INDEX replay_history_letter ON replay_history (dead_queue_id, dead_seq);
