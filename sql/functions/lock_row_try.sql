-- Locks the row of a key if it is there and free. Null otherwise.
CREATE FUNCTION :"schema".lock_row_try(my_id bigint, shared boolean) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  IF shared THEN
    RETURN (SELECT r.id FROM :"schema".lock_rows r WHERE r.id = my_id FOR SHARE SKIP LOCKED);
  END IF;
  RETURN (SELECT r.id FROM :"schema".lock_rows r WHERE r.id = my_id FOR UPDATE SKIP LOCKED);
END
$$;
