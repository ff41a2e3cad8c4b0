-- The number of a key, as the library computes it: the first 8 bytes of SHA-256 over schema, domain and key in UTF-8, with a
-- zero byte between them (no text of PostgreSQL holds one, so no two triples give the same bytes). For plain SQL that must take
-- part in Lockstep's locks: SELECT pg_advisory_xact_lock(lockstep.lock_id('lock', 'Transfer:42')).
CREATE FUNCTION :"schema".lock_id(domain text, key text) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT ('x' || encode(substr(sha256(
    convert_to(:'schema', 'UTF8') || decode('00', 'hex') || convert_to(domain, 'UTF8') || decode('00', 'hex') || convert_to(key, 'UTF8')
  ), 1, 8), 'hex'))::bit(64)::bigint
$$;
