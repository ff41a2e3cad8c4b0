-- The last numbers of streams, in their order; 0 for one that is new. Their locks must be held. Each look is a statement of its own:
-- of what is not found because a slot was emptied just now, the last number is in outbox_quiet by the time of the last look.
CREATE FUNCTION :"schema".outbox_last(streams uuid[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  current_slot smallint := (SELECT last_value FROM :"schema".outbox_slot);
  lasts bigint[];
BEGIN
  lasts := ARRAY(
    SELECT (SELECT e.seq FROM :"schema".outbox_events e WHERE e.slot = current_slot AND e.stream = g.stream ORDER BY e.seq DESC LIMIT 1)
      FROM unnest(streams) WITH ORDINALITY AS g(stream, n) ORDER BY g.n);
  IF array_position(lasts, NULL) IS NOT NULL THEN
    lasts := ARRAY(
      SELECT COALESCE(g.last, (SELECT e.seq FROM :"schema".outbox_events e WHERE e.stream = g.stream ORDER BY e.seq DESC LIMIT 1))
        FROM unnest(streams, lasts) WITH ORDINALITY AS g(stream, last, n) ORDER BY g.n);
    IF array_position(lasts, NULL) IS NOT NULL THEN
      lasts := ARRAY(
        SELECT COALESCE(g.last, (SELECT q.seq FROM :"schema".outbox_quiet q WHERE q.stream = g.stream), 0)
          FROM unnest(streams, lasts) WITH ORDINALITY AS g(stream, last, n) ORDER BY g.n);
    END IF;
  END IF;
  RETURN lasts;
END
$$;
