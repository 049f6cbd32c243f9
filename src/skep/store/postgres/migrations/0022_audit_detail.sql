-- What an entry of the audit log tells: verb, target, count, before, after and error, as JSON. None in entries of before.
ALTER TABLE audit ADD COLUMN detail TEXT;
