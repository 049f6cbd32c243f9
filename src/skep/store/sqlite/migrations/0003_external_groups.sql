-- Groups whose progress is told by a reader of the raw log: they have no leases, and nobody pops for them.
ALTER TABLE consumer_group ADD COLUMN external INTEGER NOT NULL DEFAULT 0;
