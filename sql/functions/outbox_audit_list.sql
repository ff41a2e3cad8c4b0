-- What operators did with the outbox, the newest first, before one of them. my_name: a part of who said to have done it. It reads entries until
-- it has found enough.
CREATE FUNCTION :"schema".outbox_audit_list(before_id bigint, my_verb text, my_topic text, my_key text, my_name text, most integer)
RETURNS SETOF :"schema".outbox_audit
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT a.* FROM :"schema".outbox_audit a
   WHERE (before_id IS NULL OR a.id < before_id) AND (my_verb IS NULL OR a.verb = my_verb)
     AND (my_topic IS NULL OR a.topic = my_topic) AND (my_key IS NULL OR a.key = my_key)
     AND (my_name IS NULL OR strpos(lower(COALESCE(a.by_name, '') || ' ' || a.by_role), lower(my_name)) > 0)
   ORDER BY a.id DESC LIMIT most;
END
$$;
