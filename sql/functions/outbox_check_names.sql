-- Raises the error for an event without a topic or a key, or with one that is too long.
CREATE FUNCTION :"schema".outbox_check_names(topic text, key text) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
  IF COALESCE(octet_length(topic), 0) NOT BETWEEN 1 AND 1000 OR COALESCE(octet_length(key), 0) NOT BETWEEN 1 AND 1000 THEN
    RAISE EXCEPTION 'an event needs a topic and a key of 1 to 1000 bytes' USING ERRCODE = 'invalid_parameter_value';
  END IF;
END
$$;
