-- Removes the dead versions of the few state rows. While a long transaction elsewhere pins them, they pile up, and every look-up
-- walks over them. Copying the live rows out, truncating and copying them back removes them at once, even while a snapshot is
-- held.
-- TRUNCATE ignores snapshots: to an older snapshot these tables look empty. So everyone reads them with a snapshot taken after
-- the table locks. Statements and volatile functions do so by themselves; a transaction with one snapshot locks the tables first.
CREATE OR REPLACE FUNCTION compact() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- The common order (functions/locks.sql): a transaction that has read its group can finish, and later ones wait at the group.
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

-- Whether compaction is worth its short stop. Dead versions must outnumber the live ones by far. And a long transaction must be
-- seen to pin them, or there are so many that one must exist (transactions of other roles may be hidden from us).
-- No compaction while VACUUM works on one of the tables: it would wait for VACUUM, and everybody else would wait for it.
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
