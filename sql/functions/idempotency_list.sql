-- Answers to requests that are kept, in the order of scope and key, behind one of them; of one scope, or those whose key begins so. How large
-- they are, and neither headers nor body.
CREATE FUNCTION :"schema".idempotency_list(my_scope text, my_prefix text, after_scope text, after_key text, most integer)
RETURNS TABLE (scope text, key text, status integer, body_bytes bigint, created_at timestamptz, expires_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT s.scope, s.key, s.status, octet_length(s.body)::bigint, s.created_at, s.expires_at FROM :"schema".idempotency s
   WHERE (my_scope IS NULL OR s.scope = my_scope) AND (my_prefix IS NULL OR starts_with(s.key, my_prefix))
     AND (after_scope IS NULL OR (s.scope, s.key) > (after_scope, after_key))
   ORDER BY s.scope, s.key LIMIT most;
END
$$;
