-- The newest leases of one queue, for its wait and handler times, however busy the others are. Expressions, not the columns: statements that
-- go by id must not have two indexes to choose from, and who wants this order must not be given the primary key's. Who wants this
-- index says queue_id::bigint and id + 0.
CREATE INDEX lease_history_by_queue ON lease_history ((queue_id::bigint), (id + 0));
