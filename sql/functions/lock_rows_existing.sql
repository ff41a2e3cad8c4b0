-- How many of these keys have a row.
CREATE FUNCTION :"schema".lock_rows_existing(ids bigint[]) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT count(*) FROM :"schema".lock_rows r WHERE r.id = ANY(ids) $$;
