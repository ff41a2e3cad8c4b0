-- Which events belong to which generation: those with a larger id than after_id, up to the next. Everything is text.
CREATE FUNCTION :"schema".epoch_generations() RETURNS TABLE (generation text, after_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT e.generation::text, min(e.after_id)::text FROM :"schema".epochs e GROUP BY e.generation ORDER BY e.generation
$$;
