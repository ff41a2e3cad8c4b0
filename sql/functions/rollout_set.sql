-- Sets the rule of a prefix, new or not.
CREATE FUNCTION :"schema".rollout_set(my_prefix text, my_mode text, my_percent integer, my_reason text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  INSERT INTO :"schema".rollout (prefix, mode, percent, reason) VALUES (my_prefix, my_mode, my_percent, my_reason)
      ON CONFLICT (prefix) DO UPDATE
     SET mode = excluded.mode, percent = excluded.percent, reason = excluded.reason, changed_at = clock_timestamp()
$$;
