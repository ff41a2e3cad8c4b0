-- As it was, in a language whose plans are kept from one call to the next.
CREATE FUNCTION :"schema".outbox_shard_lock(my_dispatcher text, my_shard smallint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
BEGIN
  -- As lock_id() has it.
  RETURN ('x' || encode(substr(sha256(
    convert_to(:'schema', 'UTF8') || decode('006f7574626f782d736861726400', 'hex') || convert_to(my_dispatcher || ':' || my_shard, 'UTF8')
  ), 1, 8), 'hex'))::bit(64)::bigint;
END
$$;
