-- Retention may have to wait for the archive: up to which seq a group that is one has reported its lake to be complete.
ALTER TABLE queue ADD COLUMN retention_requires_archive INTEGER NOT NULL DEFAULT 0;
ALTER TABLE consumer_group ADD COLUMN archived_seq INTEGER;
