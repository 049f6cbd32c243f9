-- The order of locks. A transaction that takes several takes them in this order, and those of one kind in ascending order.
-- docs/log.md has the reasons and the exceptions; tests/unit/store/postgres/test_lock_order.py holds it.
--
--   1  rows of operations, or their table
--   2  receipts, then entities
--   3  groups: advisory lock 1936418164 with the group's id, in the order of (queue, group name)
--   4  the group's row, then lease rows: by partition, sets by id
--   5  the configuration of a tenant: advisory lock 1936418161
--   6  logs: advisory lock 1936418160 with the queue's id, in the order of ids
--   7  counters of groups
--
-- Everyone locks the compacted tables in the order consumer_group, partition_lease, set_lease, group_counter. A transaction reads
-- the groups before it touches their leases or counters, and before it takes 3, 5 or 6. So a compaction waits only for
-- transactions that can finish, and later ones wait for it with empty hands.
--
-- A transaction that claims, makes or settles leases of a group shares its lock; acks that make no row need not (docs/adr/0024).
-- A transaction that ends leases of others takes the lock alone: seek, clear, delete, delete_message, forget, purge, replay, retention
-- that ignores groups, a change of ordering, the sweep of a deleted queue. Row locks are not enough for these: a row that a pop
-- or a nack has inserted and not committed is in no snapshot, and nobody else can lock it. A shared lock is in memory only, and
-- makes only those wait who take the group. PostgreSQL serves waiters in turn, so steady pops do not keep a seek waiting.

-- Keeps compaction away until commit.
CREATE OR REPLACE FUNCTION read_groups() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE consumer_group IN ACCESS SHARE MODE;
END
$$;

-- Locks the log of a queue until commit. Whoever appends to a log holds this lock, so commit order is seq order.
CREATE OR REPLACE FUNCTION lock_log(p_queue integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE consumer_group IN ACCESS SHARE MODE;
    PERFORM pg_advisory_xact_lock(1936418160, p_queue);
END
$$;

-- Shares a group until commit: nobody can take its leases away.
CREATE OR REPLACE FUNCTION share_group(p_group integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1936418164, p_group);
END
$$;

-- Takes a group alone until commit, and locks its row; NULL when there is no such group. A caller that already holds a later lock
-- does not wait (p_wait false): if the group is in use it loses the race, and its call is tried again.
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
        -- It may have been deleted while we waited, and another group may have its name now.
        PERFORM 1 FROM consumer_group g WHERE g.id = v_id FOR UPDATE;
        IF FOUND THEN
            RETURN v_id;
        END IF;
    END LOOP;
END
$$;

-- Takes all groups of a queue, without their rows. Groups are made under the log's lock: a caller that locks the log next calls
-- this again, with p_wait false.
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

-- The group of a pop, shared until commit and made on first use; and its queue as it is under that lock. The state is 'ok';
-- 'missing' or 'paused' (the queue); or 'external' (the group does not pop).
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
            -- A pop from a paused queue uses the group all the same.
            IF v_paused AND v_unmarked AND NOT v_external THEN
                PERFORM mark_active(group_id, p_now);
            END IF;
            RETURN;
        END IF;
        IF group_id IS NULL THEN
            BEGIN
                group_id := ensure_group(v_queue, p_group_name, p_mode, p_value, p_now);
                -- We hold the log's lock by now. So we do not wait for a group that somebody else has just made and a third one
                -- takes.
                IF NOT pg_try_advisory_xact_lock_shared(1936418164, group_id) THEN
                    RAISE EXCEPTION 'taken' USING ERRCODE = 'serialization_failure';
                END IF;
            EXCEPTION WHEN serialization_failure THEN
                NULL;  -- this has released the log's lock
            END;
            CONTINUE;
        END IF;
        PERFORM pg_advisory_xact_lock_shared(1936418164, group_id);
        -- Both may have been deleted or changed while we waited.
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
