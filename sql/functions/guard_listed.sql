-- Whether the list of locks has this lock for this session, exclusively. The list that was read last is kept for the length of a message, so
-- that a statement that writes many rows does not read it for each: it delays all sessions that lock something. Where a write is to be
-- refused it is read again; where it is only counted, up to 16 times a message.
CREATE FUNCTION :"schema".guard_listed(my_id bigint, certain boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  message CONSTANT text := extract(epoch FROM statement_timestamp())::text;
  -- When the message came, how often the list was read since, and the ids with commas around.
  kept text[] := string_to_array(current_setting('lockstep.listed', true), ' ');
  looks integer := 0;
  ids text;
BEGIN
  IF kept[1] = message THEN
    looks := kept[2]::integer;
    IF strpos(kept[3], ',' || my_id || ',') > 0 THEN
      RETURN true;
    END IF;
    IF looks >= 16 AND NOT certain THEN
      RETURN false;
    END IF;
  END IF;
  SELECT concat(',', string_agg(((l.classid::bigint << 32) | l.objid::bigint)::text, ','), ',') INTO ids
    FROM pg_locks l
   WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid = pg_backend_pid();
  PERFORM set_config('lockstep.listed', concat_ws(' ', message, looks + 1, ids), true);
  RETURN strpos(ids, ',' || my_id || ',') > 0;
END
$$;
