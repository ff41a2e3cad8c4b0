-- A stream's name: the first 16 bytes of the SHA-256 whose first 8 are its lock.
CREATE FUNCTION :"schema".outbox_stream(topic text, key text) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT encode(substr(sha256(
    convert_to(:'schema', 'UTF8') || decode('006f7574626f7800', 'hex') || convert_to(topic, 'UTF8') || decode('00', 'hex') || convert_to(key, 'UTF8')
  ), 1, 16), 'hex')::uuid
$$;
