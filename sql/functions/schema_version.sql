-- How far the schema is, for roles that cannot read the table. Also what a role that does not own the schema asks before it migrates: it
-- runs with the rights of its owner, never with the caller's.
CREATE FUNCTION :"schema".schema_version(OUT version integer, OUT compatible_from integer)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT max(m.version), max(m.compatible_from) FROM :"schema".migrations m
$$;
