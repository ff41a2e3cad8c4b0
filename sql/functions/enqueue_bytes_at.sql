-- enqueue_at() with a payload of bytes.
CREATE FUNCTION :"schema".enqueue_bytes_at(topic text, key text, payload bytea, not_before timestamptz, headers json DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT :"schema".outbox_append_at(topic, key, NULL::json, payload, headers, not_before, NULL::bigint, NULL::uuid) $$;
