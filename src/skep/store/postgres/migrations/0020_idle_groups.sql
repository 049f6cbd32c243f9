-- When somebody last used a group, to the minute, and whether that is so long ago that it holds back nothing any more.
ALTER TABLE queue ADD COLUMN group_idle_seconds double precision NOT NULL DEFAULT 0;
ALTER TABLE consumer_group ADD COLUMN active_at bigint NOT NULL DEFAULT 0;
ALTER TABLE consumer_group ADD COLUMN idle boolean NOT NULL DEFAULT false;
-- Nobody wrote it down before, so all count as used just now: none may be taken for idle too early.
UPDATE consumer_group SET active_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
