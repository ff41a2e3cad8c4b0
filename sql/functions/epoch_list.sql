-- The last server epochs, the newest first. Everything is text.
CREATE FUNCTION :"schema".epoch_list(most integer)
RETURNS TABLE (history text, generation text, kind text, timeline text, address text, began_ms text, last_known_ms text, after_id text, grants_ms text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT e.history::text, e.generation::text, e.kind, e.timeline::text, e.address, (extract(epoch FROM e.began_at) * 1000)::bigint::text,
         (extract(epoch FROM e.last_known_at) * 1000)::bigint::text, e.after_id::text,
         CASE WHEN e.history = i.value AND p.grants_from > clock_timestamp()
              THEN ceil(extract(epoch FROM p.grants_from - clock_timestamp()) * 1000)::bigint::text END
    FROM :"schema".epochs e CROSS JOIN :"schema".epoch p LEFT JOIN :"schema".incarnation i ON true
   ORDER BY e.number DESC LIMIT most
$$;
