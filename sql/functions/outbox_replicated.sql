-- Whether as many synchronous standbys have this place of the log on disk as commits wait for. Null where the schema's owner has no
-- right to know (pg_read_all_stats).
CREATE FUNCTION :"schema".outbox_replicated(place pg_lsn) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  -- As in ANY 2 (a, b, c) or FIRST 1 (a, b) or 2 (a, b); a list alone is FIRST 1.
  wanted integer := COALESCE(substring(current_setting('synchronous_standby_names') FROM '^[^"(]*?([0-9]+)\s*\(')::integer, 1);
BEGIN
  IF NOT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') THEN
    RETURN NULL;
  END IF;
  RETURN (SELECT count(*) >= wanted FROM pg_stat_replication r WHERE r.sync_state IN ('sync', 'quorum') AND r.flush_lsn >= place);
END
$$;
