-- Scheduled messages are looked up by id, transaction id and trace, each in the order of their time. A message that was given no
-- trace id is its own trace, and found by its id.
CREATE INDEX scheduled_id ON scheduled (id);
CREATE INDEX scheduled_transaction_id ON scheduled (transaction_id, due_at) WHERE transaction_id IS NOT NULL;
CREATE INDEX scheduled_trace ON scheduled (trace_id, due_at) WHERE trace_id <> id;
