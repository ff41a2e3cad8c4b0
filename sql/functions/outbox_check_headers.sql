-- Headers become those of a broker's message: an object whose values are text. Whatever else were let in, sinks could only refuse.
CREATE FUNCTION :"schema".outbox_check_headers(topic text, key text, headers json) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  wrong text;
BEGIN
  IF json_typeof(headers) = 'object' THEN
    SELECT format('%s is of type %s', to_json(h.key), json_typeof(h.value)) INTO wrong
      FROM json_each(headers) AS h WHERE json_typeof(h.value) <> 'string' LIMIT 1;
  ELSE
    wrong := 'they are of type ' || json_typeof(headers);
  END IF;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'the headers of an event of %/% are not an object of text: %', topic, key, left(wrong, 200)
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Pass an object whose values are text, such as {"content-language": "en"}, or an SQL NULL for none.';
  END IF;
END
$$;
