-- Deleting one message that is not settled. By hand and seldom: never in the path of a push, pop or settlement.

-- name: message
SELECT id, partition, transaction_id, audience FROM message WHERE position = ?1

-- name: forget_failures
-- Its failed attempts are deleted with it. Index failed_attempt_message.
DELETE FROM failed_attempt WHERE queue_id = ?1 AND seq = ?2
