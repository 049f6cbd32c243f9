-- The order of locks. Whoever takes several takes them in this order, those of one kind in ascending order; docs/log.md has the reasons
-- and the exceptions, tests/unit/store/postgres/test_lock_order.py holds it.
--
--   1  rows of operations (or their table), receipts, entities
--   2  groups: advisory lock 1936418164 with the group's id, in the order of (queue, group name)
--   3  the group's row, then lease rows: by partition, sets by id
--   4  the configuration of a tenant: advisory lock 1936418161
--   5  logs: advisory lock 1936418160 with the queue's id, in the order of ids
--   6  counters of groups
--
-- The tables that are compacted are locked as consumer_group, partition_lease, set_lease, group_counter, by everyone: a transaction
-- reads the groups before it touches their leases or counters, and before it takes 2, 4 or 5. So a compaction waits only for those who
-- can finish, and those who come later wait for it with empty hands.
--
-- A group is shared by all who claim, make or settle its leases, and taken by who ends leases of others: seek, clear, delete, delete_message, purge,
-- replay, retention that ignores groups, a change of ordering, the sweep of a deleted queue. Row locks are not enough for those: a row
-- that a pop or a nack has inserted and not committed is seen by no snapshot and locked by nobody else. Sharing is in memory only and
-- makes nobody wait but those who take. PostgreSQL serves waiters in turn, so steady pops do not keep a seek waiting.

-- Keeps a compaction away until commit.
CREATE OR REPLACE FUNCTION read_groups() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE consumer_group IN ACCESS SHARE MODE;
END
$$;

-- The queue's lock, held until commit: whoever appends to a log holds it, so commit order is seq order.
CREATE OR REPLACE FUNCTION lock_log(p_queue integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE consumer_group IN ACCESS SHARE MODE;
    PERFORM pg_advisory_xact_lock(1936418160, p_queue);
END
$$;

-- Keeps a group's leases from being taken away until commit.
CREATE OR REPLACE FUNCTION share_group(p_group integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1936418164, p_group);
END
$$;

-- Has a group alone until commit, and its row; NULL when there is none. Who holds a later lock already does not wait (p_wait false),
-- and loses the race instead: the call is tried again.
CREATE OR REPLACE FUNCTION take_group(p_queue integer, p_name text, p_wait boolean) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_id integer;
BEGIN
    LOOP
        SELECT g.id INTO v_id FROM consumer_group g WHERE g.queue_id = p_queue AND g.name = p_name;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        PERFORM take_group_id(v_id, p_wait);
        -- It may have been deleted while we waited, and another may have its name.
        PERFORM 1 FROM consumer_group g WHERE g.id = v_id FOR UPDATE;
        IF FOUND THEN
            RETURN v_id;
        END IF;
    END LOOP;
END
$$;

-- The same of all groups of a queue. Groups are made under the log's lock: who takes that lock next calls this again with p_wait false.
CREATE OR REPLACE FUNCTION take_groups(p_queue integer, p_wait boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    g record;
BEGIN
    FOR g IN SELECT x.id FROM consumer_group x WHERE x.queue_id = p_queue ORDER BY x.queue_id, x.name LOOP
        PERFORM take_group_id(g.id, p_wait);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION take_group_id(p_group integer, p_wait boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_wait THEN
        PERFORM pg_advisory_xact_lock(1936418164, p_group);
    ELSIF NOT pg_try_advisory_xact_lock(1936418164, p_group) THEN
        RAISE EXCEPTION 'a group is in use, and may not be waited for here' USING ERRCODE = 'serialization_failure';
    END IF;
END
$$;

-- The group of a pop, shared with all who pop and settle, made on first sight; and its queue as it is under that lock. The state is
-- 'ok'; 'missing' or 'paused' (the queue); 'external' (the group does not pop).
CREATE OR REPLACE FUNCTION enter_group(
    p_tenant text, p_name text, p_group_name text, p_mode text, p_value bigint, p_now bigint,
    OUT q queue, OUT group_id integer, OUT state text)
LANGUAGE plpgsql AS $$
DECLARE
    c_active_every_us CONSTANT bigint := 60000000;
    v_queue integer;
    v_paused boolean;
    v_external boolean;
    v_unmarked boolean;
BEGIN
    LOOP
        SELECT k.id, k.paused, x.id, x.external, x.idle OR p_now - x.active_at >= c_active_every_us
        INTO v_queue, v_paused, group_id, v_external, v_unmarked
        FROM queue k LEFT JOIN LATERAL (
            SELECT x.id, x.external, x.active_at, x.idle FROM consumer_group x
            WHERE x.queue_id = k.id AND x.name = p_group_name LIMIT 1) x ON true
        WHERE k.tenant = p_tenant AND k.name = p_name AND k.deleted_at IS NULL;
        state := CASE WHEN v_queue IS NULL THEN 'missing' WHEN v_paused THEN 'paused' WHEN v_external THEN 'external' END;
        IF state IS NOT NULL THEN
            -- Who asks in vain uses the group all the same.
            IF v_paused AND v_unmarked AND NOT v_external THEN
                PERFORM mark_active(group_id, p_now);
            END IF;
            RETURN;
        END IF;
        IF group_id IS NULL THEN
            BEGIN
                group_id := ensure_group(v_queue, p_group_name, p_mode, p_value, p_now);
                -- The log's lock is ours by now, so a group that somebody else has just made, and somebody takes, is not waited for.
                IF NOT pg_try_advisory_xact_lock_shared(1936418164, group_id) THEN
                    RAISE EXCEPTION 'taken' USING ERRCODE = 'serialization_failure';
                END IF;
            EXCEPTION WHEN serialization_failure THEN
                NULL;  -- which gave the log's lock back
            END;
            CONTINUE;
        END IF;
        PERFORM pg_advisory_xact_lock_shared(1936418164, group_id);
        -- Both may have been deleted, or changed, while we waited.
        SELECT k.* INTO q FROM queue k WHERE k.id = (SELECT x.queue_id FROM consumer_group x WHERE x.id = group_id);
        IF FOUND AND q.deleted_at IS NULL THEN
            IF v_unmarked THEN
                PERFORM mark_active(group_id, p_now);
            END IF;
            state := 'ok';
            RETURN;
        END IF;
    END LOOP;
END
$$;
