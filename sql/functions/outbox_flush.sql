-- Flushes everything visible to disk, and to the standby that commits wait for: a flush of one transaction includes all before
-- it. Returns the server epoch: what was read in another epoch can be gone. The caller's COMMIT is not enough:
-- one that is cancelled while it waits for the standby is answered as any other, with a warning beside it. So the caller must hear
-- warnings, which no setting of its session may hide, or ask outbox_replicated() about the place that it gets, null where no
-- standby is waited for.
CREATE FUNCTION :"schema".outbox_flush(OUT life text, OUT place pg_lsn)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  PERFORM set_config('client_min_messages', 'warning', true);
  place := pg_logical_emit_message(true, 'lockstep', '');
  IF current_setting('synchronous_standby_names') = '' THEN
    place := NULL;
  END IF;
  life := (SELECT h.life FROM :"schema".outbox_here(NULL::text) AS h);
END
$$;
