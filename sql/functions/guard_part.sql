-- Where a key is between 0 and 9,999, as the rollout divides keys: its id, unsigned, modulo 10,000. 2^64 is 1,616 modulo 10,000.
CREATE FUNCTION :"schema".guard_part(my_id bigint) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT ((my_id % 10000 + CASE WHEN my_id < 0 THEN 11616 ELSE 0 END) % 10000)::integer $$;
