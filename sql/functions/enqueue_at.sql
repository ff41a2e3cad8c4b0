-- enqueue() of an event that is not sent before a time, nor are the later events of its stream:
-- SELECT lockstep.enqueue_at('mails', 'ann', '{"id": 7}', now() + interval '3 days').
CREATE FUNCTION :"schema".enqueue_at(topic text, key text, payload json, not_before timestamptz, headers json DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT :"schema".outbox_append_at(topic, key, payload, NULL::bytea, headers, not_before, NULL::bigint, NULL::uuid) $$;
