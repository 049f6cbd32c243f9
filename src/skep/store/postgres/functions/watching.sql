-- Whether another server waits for messages of a queue. The server that asks wakes its own waiters by itself: where it is the only one,
-- its pushes need no notice, which would be a transaction with a sync of its own and take a lock that is global to the database.
-- A session that does not say whose it is is told of everyone.
CREATE OR REPLACE FUNCTION is_watched(p_queue integer, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM watcher w
    WHERE w.queue_id = p_queue AND w.until > p_now
      AND w.server IS DISTINCT FROM nullif(current_setting('skep.server', true), '')::uuid LIMIT 1;
    RETURN FOUND;
END
$$;
