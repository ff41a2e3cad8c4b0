-- For any language, a trigger, psql: SELECT lockstep.enqueue('trades', 'portfolio 7', '{"id": 101}').
CREATE FUNCTION :"schema".enqueue(topic text, key text, payload json, headers json DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT :"schema".outbox_append(topic, key, payload, NULL::bytea, headers, NULL::bigint, NULL::uuid) $$;
