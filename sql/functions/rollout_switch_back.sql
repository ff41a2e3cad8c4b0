-- Puts the keys of a prefix back to observe, if its rule is still the one that the caller saw: seen is its changed_at in seconds, null where the
-- prefix had no rule. Of several processes whose triggers are pulled, one switches, and a rule that an operator has set meanwhile stays.
CREATE FUNCTION :"schema".rollout_switch_back(my_prefix text, seen text, my_reason text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  IF seen IS NULL THEN
    INSERT INTO :"schema".rollout (prefix, mode, reason) VALUES (my_prefix, 'observe', my_reason) ON CONFLICT (prefix) DO NOTHING;
  ELSE
    UPDATE :"schema".rollout r
       SET mode = 'observe', percent = NULL, reason = my_reason, changed_at = clock_timestamp()
     WHERE r.prefix = my_prefix AND extract(epoch FROM r.changed_at)::text = seen;
  END IF;
  RETURN FOUND;
END
$$;
