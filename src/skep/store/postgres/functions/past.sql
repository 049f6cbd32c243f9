-- The id of the first lease that ended at or after an instant; one past the last id when none did, NULL when no lease has ended
-- at all. Leases are noted about in the order in which they end, so a binary search finds it.
CREATE OR REPLACE FUNCTION first_lease_ended(p_at bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_low bigint;
    v_high bigint;
    v_middle bigint;
    h record;
BEGIN
    SELECT x.id INTO v_low FROM lease_history x WHERE x.id > 0 ORDER BY x.id LIMIT 1;
    SELECT x.id + 1 INTO v_high FROM lease_history x WHERE x.id > 0 ORDER BY x.id DESC LIMIT 1;
    WHILE v_low < v_high LOOP
        v_middle := (v_low + v_high) / 2;
        SELECT x.id, x.settled_at INTO h FROM lease_history x WHERE x.id >= v_middle ORDER BY x.id LIMIT 1;
        IF NOT FOUND OR h.settled_at >= p_at THEN
            v_high := v_middle;
        ELSE
            v_low := h.id + 1;
        END IF;
    END LOOP;
    RETURN v_low;
END
$$;
