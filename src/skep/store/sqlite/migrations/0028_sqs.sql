-- What the door for Amazon SQS keeps with a queue and no setting says: attributes, tags and permissions, as one JSON document.
ALTER TABLE queue ADD COLUMN sqs_note BLOB;

-- A transaction id counts in the whole queue, not in its partition alone.
ALTER TABLE queue ADD COLUMN dedup_across_partitions INTEGER NOT NULL DEFAULT 0;
