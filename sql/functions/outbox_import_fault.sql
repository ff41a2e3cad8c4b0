-- Why the outbox would refuse an event; null where it would not.
CREATE FUNCTION :"schema".outbox_import_fault(topic text, key text, payload text, bytes bytea, headers text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  PERFORM :"schema".outbox_check_names(topic, key);
  IF headers IS NOT NULL AND NOT :"schema".outbox_plain_headers(headers) THEN
    PERFORM :"schema".outbox_check_headers(topic, key, headers::json);
  END IF;
  PERFORM :"schema".outbox_refuse_payload(topic, key, octet_length(payload), octet_length(bytes), octet_length(headers));
  PERFORM payload::json;
  RETURN NULL;
EXCEPTION WHEN data_exception OR null_value_not_allowed OR invalid_parameter_value OR program_limit_exceeded THEN
  RETURN SQLERRM;
END
$$;
