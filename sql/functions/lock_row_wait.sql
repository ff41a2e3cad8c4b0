-- Makes the row of a key or locks the one that is there, waits for the session that holds it, and writes nothing to it.
CREATE FUNCTION :"schema".lock_row_wait(my_id bigint, shared boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  IF shared THEN
    INSERT INTO :"schema".lock_rows (id) VALUES (my_id) ON CONFLICT (id) DO NOTHING;
    PERFORM FROM :"schema".lock_rows r WHERE r.id = my_id FOR SHARE;
  ELSE
    INSERT INTO :"schema".lock_rows (id) VALUES (my_id) ON CONFLICT (id) DO UPDATE SET id = excluded.id WHERE false;
  END IF;
END
$$;
