-- Generation and sequence. An overflow of either is an error, never a smaller fence.
CREATE FUNCTION :"schema".next_fence() RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
  SELECT (:"schema".ensure_incarnation()).epoch * 1099511627776
       + nextval(format('%I.fences', :'schema')::regclass)
$$;
