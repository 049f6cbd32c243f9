-- Which history of the database this is: it changes when a standby takes over, or a backup is put back up to some point. Empty where
-- the database does not tell: on a standby, and where a service allows nobody to ask.
CREATE OR REPLACE FUNCTION timeline() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
EXCEPTION WHEN OTHERS THEN
    RETURN '';
END
$$;
