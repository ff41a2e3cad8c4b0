-- How large an event is at least, without unpacking it. Exact where nothing was compressed and the row has the value: up to 126 bytes with a
-- header of one byte, longer ones with four. A value out of line has no header here, so it is four bytes larger.
CREATE FUNCTION :"schema".outbox_stored_bytes(payload json, bytes bytea, headers json) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
  SELECT COALESCE(octet_length(bytes), pg_column_size(payload) - CASE WHEN pg_column_size(payload) < 128 THEN 1 ELSE 4 END, 0)::bigint
         + COALESCE(pg_column_size(headers) - CASE WHEN pg_column_size(headers) < 128 THEN 1 ELSE 4 END, 0)
$$;
