-- Dead versions of the few state rows pile up while a long transaction elsewhere pins them, and every look-up walks over
-- them. Copying the live rows out, truncating and copying them back removes them at once, whoever still holds a snapshot.
-- TRUNCATE is not seen through snapshots: one that is older finds these tables empty. So whoever reads them does so with a
-- snapshot taken after their locks: statements and volatile functions do; a transaction with one snapshot locks them first.
CREATE OR REPLACE FUNCTION compact() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE partition_lease, set_lease, consumer_group, group_counter IN ACCESS EXCLUSIVE MODE;
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

-- Whether compaction is worth it: dead versions outnumber the live by far.
CREATE OR REPLACE FUNCTION wants_compaction() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT coalesce(bool_or(s.n_dead_tup > 500 AND s.n_dead_tup > 5 * s.n_live_tup), false)
            FROM pg_stat_user_tables s
            WHERE s.schemaname = 'skep' AND s.relname IN ('partition_lease', 'set_lease', 'consumer_group', 'group_counter'));
END
$$;
