-- How large an event is at least, without unpacking it: exact where nothing was compressed.
CREATE FUNCTION :"schema".outbox_stored_bytes(payload json, bytes bytea, headers json) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
  SELECT COALESCE(octet_length(bytes), pg_column_size(payload) - 4, 0)::bigint + COALESCE(pg_column_size(headers) - 4, 0)
$$;
