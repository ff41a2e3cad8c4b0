-- Locks groups of buckets and streams, in the one order that every session keeps to: groups by number, then streams by their lock. A caller
-- that writes to very many streams takes their groups exclusively instead: a lock for each would use up the server's table of locks.
CREATE FUNCTION :"schema".outbox_lock_streams(streams uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  many boolean := cardinality(streams) > 100;
  next bigint;
BEGIN
  FOR next IN SELECT :"schema".outbox_group_lock(g.n::integer)
                FROM (SELECT DISTINCT :"schema".outbox_group(:"schema".outbox_bucket(s)) AS n FROM unnest(streams) AS s) AS g ORDER BY g.n LOOP
    IF many THEN
      PERFORM pg_advisory_xact_lock(next);
    ELSE
      PERFORM pg_advisory_xact_lock_shared(next);
    END IF;
  END LOOP;
  IF NOT many THEN
    FOR next IN SELECT DISTINCT :"schema".outbox_stream_lock(s) FROM unnest(streams) AS s ORDER BY 1 LOOP
      PERFORM pg_advisory_xact_lock(next);
    END LOOP;
  END IF;
END
$$;
