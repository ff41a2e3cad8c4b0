-- Who shares the shards of a dispatcher: how many processes run it, the place of one of them (null: it is not among them), and which shards are held.
-- One row, because each process asks every second or so: 200 of them that read all leases would keep a server busy.
CREATE FUNCTION :"schema".outbox_shares(my_dispatcher text, me text, OUT members integer, OUT place integer, OUT held integer[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  member CONSTANT text := 'Outbox:' || my_dispatcher || ':member:';
  shard CONSTANT text := 'Outbox:' || my_dispatcher || ':shard:';
BEGIN
  SELECT count(*) FILTER (WHERE starts_with(l.name, member)),
         CASE WHEN bool_or(l.name = me) THEN count(*) FILTER (WHERE starts_with(l.name, member) AND l.name COLLATE "C" < me) END,
         COALESCE(array_agg(substr(l.name, length(shard) + 1)::integer) FILTER (WHERE starts_with(l.name, shard)), '{}')
    INTO members, place, held
    FROM :"schema".leases l
   WHERE starts_with(l.name, 'Outbox:' || my_dispatcher || ':') AND l.token IS NOT NULL AND l.expires_at > clock_timestamp();
END
$$;
