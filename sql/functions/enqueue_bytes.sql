-- enqueue() with a payload of bytes.
CREATE FUNCTION :"schema".enqueue_bytes(topic text, key text, payload bytea, headers json DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT :"schema".outbox_append(topic, key, NULL::json, payload, headers, NULL::bigint, NULL::uuid) $$;
