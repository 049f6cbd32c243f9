-- Whether another server waits for messages of a queue. The server that asks wakes its own waiters by itself. If no other server
-- waits, its pushes need no notice: a notice is a transaction of its own, with a sync, and takes a lock that is global to the
-- database. A session that does not tell its server (skep.server) sees every watcher.
CREATE OR REPLACE FUNCTION is_watched(p_queue integer, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM watcher w
    WHERE w.queue_id = p_queue AND w.until > p_now
      AND w.server IS DISTINCT FROM nullif(current_setting('skep.server', true), '')::uuid LIMIT 1;
    RETURN FOUND;
END
$$;
