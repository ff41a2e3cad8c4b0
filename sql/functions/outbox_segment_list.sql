-- The segments with their sizes, for roles that cannot read the tables.
CREATE FUNCTION :"schema".outbox_segment_list()
RETURNS TABLE (number bigint, opened_at timestamptz, left_at timestamptz, bytes bigint, is_current boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  RETURN QUERY
  SELECT s.number, s.opened_at, s.left_at, pg_total_relation_size(format('%I.%I', :'schema', 'outbox_events_' || s.slot)::regclass),
         s.slot = (SELECT o.last_value FROM :"schema".outbox_slot o)
    FROM :"schema".outbox_segments s ORDER BY s.number;
END
$$;
