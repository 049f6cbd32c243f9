-- While statistics say that a table has next to no rows, the planner takes every index that has one of the columns asked for to be
-- alike. Key look-ups must not find their columns in the indexes by readiness, at whose end they would walk all of it: these
-- hold expressions there. Statements that go by readiness name the expressions.
DROP INDEX partition_lease_by_ready;
CREATE INDEX partition_lease_by_ready ON partition_lease ((group_id::bigint), ready_at, (partition || ''));
DROP INDEX set_lease_by_ready;
CREATE INDEX set_lease_by_ready ON set_lease (queue_id, group_id, priority DESC, ready_at, (id + 0));
