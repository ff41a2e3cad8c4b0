-- Records who wrote without the lock: one a minute for each application and role, 20 a minute at most. It is rolled back with the write.
-- Writers only insert. At READ COMMITTED they also delete what is older than a week, and skip what another one deletes: at other levels that
-- could fail. A SERIALIZABLE transaction does not even read the samples, because of the conflicts that this would make; it goes by the
-- number of the write, 32 samples for each doubling.
CREATE FUNCTION :"schema".guard_sample(my_guard integer, my_operation text, my_key text, my_number bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  isolation CONSTANT text := current_setting('transaction_isolation');
  program CONSTANT text := left(current_setting('application_name'), 64);
  statement text;
  enough boolean;
BEGIN
  IF isolation = 'serializable' THEN
    enough := my_number % (1::bigint << greatest(0, floor(log(2, my_number))::integer - 5)) <> 0;
  ELSE
    SELECT count(*) >= 20 OR coalesce(bool_or(s.application = program AND s.role = session_user), false) INTO enough
      FROM :"schema".guard_samples s WHERE s.guard = my_guard AND s.at > clock_timestamp() - interval '1 minute';
  END IF;
  IF enough THEN
    RETURN;
  END IF;
  -- Literals can be personal data. What follows a dollar quote is left out.
  statement := left(current_query(), 2000);
  statement := regexp_replace(statement, '\$[A-Za-z_]*\$.*', '?');
  statement := regexp_replace(statement, $r$'([^']|'')*('|$)$r$, '?', 'g');
  statement := regexp_replace(statement, '(?<![\w$"])\d+(\.\d+)?', '?', 'g');
  statement := left(btrim(regexp_replace(statement, '\s+', ' ', 'g')), 200);
  INSERT INTO :"schema".guard_samples (guard, operation, key, application, role, query)
  VALUES (my_guard, my_operation, my_key, program, session_user, statement);
  IF isolation = 'read committed' THEN
    DELETE FROM :"schema".guard_samples s WHERE s.ctid = ANY (ARRAY(
      SELECT o.ctid FROM :"schema".guard_samples o WHERE o.guard = my_guard AND o.at < clock_timestamp() - interval '7 days'
       ORDER BY o.at LIMIT 100 FOR UPDATE SKIP LOCKED));
  END IF;
END
$$;
