-- name: settle_and_pop
-- functions/settle_and_pop.sql
SELECT * FROM settle_and_pop($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
