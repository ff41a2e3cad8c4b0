-- Sets the mode of a guard. One row where there is one. It takes effect with the next statement of every session.
CREATE FUNCTION :"schema".guard_set(my_guard integer, my_mode text, my_percent integer, my_reason text) RETURNS SETOF integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  UPDATE :"schema".guards g SET mode = my_mode, percent = my_percent, reason = my_reason, changed_at = clock_timestamp()
   WHERE g.id = my_guard RETURNING g.id
$$;
