-- Who shares the shards of a dispatcher: how many there are (null: it was removed), how many processes run it, the place of one of them (null: it is
-- not among them), and which shards are held. After a split only processes count that know the new number.
-- One row, because each process asks every second or so: 200 of them that read all leases would keep a server busy.
CREATE FUNCTION :"schema".outbox_shares(my_dispatcher text, me text, OUT shards integer, OUT members integer, OUT place integer, OUT held integer[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  was_split boolean;
  member CONSTANT text := 'Outbox:' || my_dispatcher || ':member:';
  shard CONSTANT text := 'Outbox:' || my_dispatcher || ':shard:';
BEGIN
  SELECT d.shards, d.split_from IS NOT NULL INTO shards, was_split FROM :"schema".outbox_dispatchers d WHERE d.name = my_dispatcher;
  SELECT count(*) FILTER (WHERE starts_with(l.name, member)),
         CASE WHEN bool_or(l.name = me) THEN count(*) FILTER (WHERE starts_with(l.name, member) AND l.name COLLATE "C" < me) END,
         COALESCE(array_agg(substr(l.name, length(shard) + 1)::integer) FILTER (WHERE starts_with(l.name, shard)), '{}')
    INTO members, place, held
    FROM :"schema".leases l
   WHERE starts_with(l.name, 'Outbox:' || my_dispatcher || ':') AND l.token IS NOT NULL AND l.expires_at > clock_timestamp()
     AND (was_split IS NOT TRUE OR NOT starts_with(l.name, member) OR l.name = me OR l.metadata->>'shards' = shards::text);
END
$$;
