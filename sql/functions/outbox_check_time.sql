-- Raises an error for a time before which an event is not sent that never comes. Due times are passed as a number of milliseconds.
CREATE FUNCTION :"schema".outbox_check_time(topic text, key text, not_before timestamptz) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
  IF NOT isfinite(not_before) THEN
    RAISE EXCEPTION 'the event of %/% has the time %', topic, key, not_before
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Use a time, or NULL for an event that is sent at once.';
  END IF;
END
$$;
