-- Answers of settlements, in the newest rows of the lease history.

-- name: remembered
-- functions/outcomes.sql
SELECT r.token, r.partition, r.first_seq, r.last_seq, r.completed, r.seqs, r.answer FROM remembered($1, $2, $3, $4, $5, $6) r
