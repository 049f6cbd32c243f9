-- Writes receipts, and returns those that are ours now. The keys are given in ascending order (everyone locks them so), none of
-- them twice. An expired receipt makes room. A live one stays, and is locked all the same, so that it cannot be swept while it is
-- read.
CREATE OR REPLACE FUNCTION take_receipts(
    p_keys text[], p_scopes text[], p_tenants text[], p_expires_at bigint[], p_answers bytea[], p_now bigint)
RETURNS TABLE (key text, scope text, tenant text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    INSERT INTO receipt AS r (key, scope, tenant, expires_at, answer)
    SELECT n.key, n.scope, n.tenant, n.expires_at, n.answer
    FROM unnest(p_keys, p_scopes, p_tenants, p_expires_at, p_answers) AS n (key, scope, tenant, expires_at, answer)
    ON CONFLICT (key, scope, tenant) DO UPDATE SET expires_at = excluded.expires_at, answer = excluded.answer
        WHERE r.expires_at <= p_now
    RETURNING r.key, r.scope, r.tenant;
END
$$;

-- push_plain for batches that each have a receipt, in one round trip. Returns nothing when it can tell before any write that the
-- push must go the long way. When a receipt lives, or push_plain goes the long way, it undoes itself by raising SK001, and the
-- caller goes the long way, too.
CREATE OR REPLACE FUNCTION push_plain_once(
    p_tenant text, p_name text, p_now bigint, p_ids uuid[], p_partitions text[], p_priorities integer[],
    p_content_types text[], p_headers bytea[], p_payloads bytea[],
    p_keys text[], p_scopes text[], p_tenants text[], p_expires_at bigint[], p_answers bytea[])
RETURNS TABLE (queue_id integer, last_seq bigint, depth bigint, watched boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_plain boolean;
    v_taken bigint;
    v_pushed record;
BEGIN
    SELECT k.max_depth = 0 AND k.ordering <> 'fifo' INTO v_plain
    FROM queue k WHERE k.tenant = p_tenant AND k.name = p_name AND k.deleted_at IS NULL;
    IF v_plain IS NOT TRUE THEN
        RETURN;
    END IF;
    SELECT count(*) INTO v_taken FROM take_receipts(p_keys, p_scopes, p_tenants, p_expires_at, p_answers, p_now);
    IF v_taken < cardinality(p_keys) THEN
        RAISE EXCEPTION USING ERRCODE = 'SK001', MESSAGE = 'a receipt exists';
    END IF;
    v_pushed := push_plain(p_tenant, p_name, p_now, p_ids, p_partitions, p_priorities, p_content_types, p_headers, p_payloads);
    IF v_pushed.queue_id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'SK001', MESSAGE = 'the queue changed';
    END IF;
    queue_id := v_pushed.queue_id;
    last_seq := v_pushed.last_seq;
    depth := v_pushed.depth;
    watched := v_pushed.watched;
    RETURN NEXT;
END
$$;

-- Locks entities, whose keys are given in ascending order. One that is to be made (p_fresh) and does not exist gets a row of
-- version 0, which its transaction fills or deletes; whoever makes the same one meanwhile waits for that. Inserts come before
-- locks: an insert never locks an existing row, so no two calls wait for each other.
CREATE OR REPLACE FUNCTION lock_entities(p_tenants text[], p_types text[], p_ids text[], p_fresh boolean[], p_now bigint)
RETURNS TABLE (ord bigint, number bigint, version bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF true = ANY (p_fresh) THEN
        INSERT INTO entity (tenant, type, id, version, created_at, updated_at, state)
        SELECT k.tenant, k.type, k.id, 0, p_now, p_now, ''
        FROM unnest(p_tenants, p_types, p_ids, p_fresh) AS k (tenant, type, id, fresh) WHERE k.fresh
        ON CONFLICT (tenant, type, id) DO NOTHING;
    END IF;
    RETURN QUERY
    SELECT k.ord, e.number, e.version
    FROM unnest(p_tenants, p_types, p_ids) WITH ORDINALITY AS k (tenant, type, id, ord)
    CROSS JOIN LATERAL (SELECT e.number, e.version FROM entity e
                        WHERE e.tenant = k.tenant AND e.type = k.type AND e.id = k.id LIMIT 1 FOR UPDATE) e;
END
$$;
