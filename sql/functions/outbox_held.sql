-- How many streams of each shard are held until a time that has not come, and the first of these times. Everything is text.
CREATE FUNCTION :"schema".outbox_held() RETURNS TABLE (dispatcher text, shard text, streams text, next_ms text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT p.dispatcher, p.shard::text, count(*)::text, (extract(epoch FROM min(p.held_until)) * 1000)::text
    FROM :"schema".outbox_parked p WHERE p.state = 'parked' AND p.held_until > clock_timestamp() GROUP BY p.dispatcher, p.shard
$$;
