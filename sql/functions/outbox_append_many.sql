-- Superseded by outbox_append_many_at() since 0.1.0.
CREATE FUNCTION :"schema".outbox_append_many(
  topics text[], keys text[], payloads text[], bytes bytea[], headers text[], locked boolean DEFAULT false, known bigint[] DEFAULT NULL
) RETURNS integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT :"schema".outbox_append_many_at(topics, keys, payloads, bytes, headers, NULL::timestamptz[], locked, known) $$;
