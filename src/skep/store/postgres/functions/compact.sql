-- Dead versions of the few state rows pile up while a long transaction elsewhere pins them, and every look-up walks over
-- them. Copying the live rows out, truncating and copying them back removes them at once, whoever still holds a snapshot.
-- TRUNCATE is not seen through snapshots: one that is older finds these tables empty. So whoever reads them does so with a
-- snapshot taken after their locks: statements and volatile functions do; a transaction with one snapshot locks them first.
CREATE OR REPLACE FUNCTION compact() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- In the order of everyone (functions/locks.sql): who has read its group can finish, and who comes later waits at the group.
    LOCK TABLE consumer_group, partition_lease, set_lease, group_counter IN ACCESS EXCLUSIVE MODE;
    CREATE TEMP TABLE live_lease ON COMMIT DROP AS SELECT * FROM partition_lease;
    CREATE TEMP TABLE live_set ON COMMIT DROP AS SELECT * FROM set_lease;
    CREATE TEMP TABLE live_group ON COMMIT DROP AS SELECT * FROM consumer_group;
    CREATE TEMP TABLE live_counter ON COMMIT DROP AS SELECT * FROM group_counter;
    TRUNCATE partition_lease, set_lease, consumer_group, group_counter;
    INSERT INTO partition_lease SELECT * FROM live_lease;
    INSERT INTO set_lease SELECT * FROM live_set;
    INSERT INTO consumer_group OVERRIDING SYSTEM VALUE SELECT * FROM live_group;
    INSERT INTO group_counter SELECT * FROM live_counter;
END
$$;

-- Whether compaction is worth its short stop: dead versions outnumber the live by far, and either a long transaction is seen
-- to pin them, or there are so many that one must be (a transaction of another role may be hidden from us).
-- While VACUUM is at one of the tables it is left to its work: waiting for it would make everybody wait.
CREATE OR REPLACE FUNCTION wants_compaction() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c_tables CONSTANT text[] := '{partition_lease,set_lease,consumer_group,group_counter}';
    v_dead bigint;
BEGIN
    SELECT max(s.n_dead_tup) INTO v_dead FROM pg_stat_user_tables s
    WHERE s.schemaname = 'skep' AND s.relname = ANY (c_tables) AND s.n_dead_tup > 5 * s.n_live_tup;
    IF v_dead IS NULL OR v_dead <= 500 THEN
        RETURN false;
    END IF;
    IF v_dead <= 20000 AND NOT EXISTS (
        SELECT 1 FROM pg_stat_activity a
        WHERE a.backend_xmin IS NOT NULL AND a.backend_type = 'client backend'
          AND a.xact_start < clock_timestamp() - interval '1 second') THEN
        RETURN false;
    END IF;
    RETURN NOT EXISTS (
        SELECT 1 FROM pg_locks l JOIN pg_class r ON r.oid = l.relation
        WHERE l.mode = 'ShareUpdateExclusiveLock' AND l.granted AND r.relnamespace = 'skep'::regnamespace
          AND r.relname = ANY (c_tables));
END
$$;
