-- The timeline of the database: it changes when a standby takes over, or a backup is restored to a point in time. Empty where the
-- database does not tell it: on a standby, and where a service forbids the question.
CREATE OR REPLACE FUNCTION timeline() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
EXCEPTION WHEN OTHERS THEN
    RETURN '';
END
$$;
