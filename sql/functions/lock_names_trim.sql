-- Forgets the names beyond the newest `keep`, `most` of them at a time. Rows that another session is writing are left alone: waiting for
-- them in another order than theirs could be a deadlock.
CREATE FUNCTION :"schema".lock_names_trim(keep integer, most integer) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  DELETE FROM :"schema".lock_names WHERE id IN (
    SELECT n.id FROM :"schema".lock_names n
     WHERE n.seen_at < (SELECT s.seen_at FROM :"schema".lock_names s ORDER BY s.seen_at DESC OFFSET greatest(keep, 1) - 1 LIMIT 1)
     ORDER BY n.seen_at LIMIT most FOR UPDATE SKIP LOCKED)
$$;
