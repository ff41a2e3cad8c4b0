-- How long delivered events stay: the largest retain_ms of all registered dispatchers. Null: forever, because a dispatcher asks for that, or
-- because none is registered.
CREATE FUNCTION :"schema".outbox_retention() RETURNS interval
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  RETURN (SELECT CASE WHEN count(*) = count(d.retain_ms) THEN make_interval(secs => max(d.retain_ms) / 1000.0) END
            FROM :"schema".outbox_dispatchers d);
END
$$;
