-- The names of these locks, as far as they are known.
CREATE FUNCTION :"schema".lock_names_of(ids bigint[]) RETURNS TABLE (id bigint, key text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  RETURN QUERY SELECT n.id, n.key FROM :"schema".lock_names n WHERE n.id = ANY(ids);
END
$$;
