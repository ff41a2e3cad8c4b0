-- A write whose transaction does not state that it holds the key. Plain SQL that took the lock by its id is found in the list of locks,
-- which is slow: 0.5 ms, and more with every lock that any session holds. Sequences count, because they make no writer wait for another and
-- count what is rolled back, too. A null key: TRUNCATE, which concerns all of them.
CREATE FUNCTION :"schema".guard_missed(my_guard integer, operation text, missed text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  rule record;
  my_id bigint;
  enforced boolean;
  number bigint;
BEGIN
  SELECT g.relation, g.held, g.mode, g.percent INTO rule FROM :"schema".guards g WHERE g.id = my_guard;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  my_id := :"schema".lock_id(rule.held, missed);
  enforced := rule.mode = 'enforce'
    OR (rule.mode = 'percent' AND CASE WHEN missed IS NULL THEN rule.percent > 0 ELSE :"schema".guard_part(my_id) < rule.percent * 100 END);
  IF rule.held = 'lock' AND missed IS NOT NULL AND :"schema".guard_listed(my_id, enforced) THEN
    PERFORM nextval(format('%I.%I', :'schema', 'guard_' || my_guard || '_listed')::regclass);
    RETURN;
  END IF;
  IF enforced THEN
    PERFORM nextval(format('%I.%I', :'schema', 'guard_' || my_guard || '_refused')::regclass);
    IF missed IS NULL THEN
      RAISE EXCEPTION 'TRUNCATE of %, which has a guard', rule.relation
        USING ERRCODE = 'LS002', TABLE = rule.relation,
              HINT = 'No lock covers every key. Delete the rows under their locks, or set the guard to observe first.';
    END IF;
    RAISE EXCEPTION '% of % without the % %', operation, rule.relation, rule.held, missed
      USING ERRCODE = 'LS002', TABLE = rule.relation, DETAIL = missed,
            HINT = CASE WHEN rule.held = 'lease' THEN format('Write in lease.transaction() of a lease on %L.', missed)
                   ELSE format('Write in lockstep.transaction({ lock: %L }), or in plain SQL lock first: SELECT pg_advisory_xact_lock(%I.lock_id(''lock'', %L)). A shared lock does not permit to write.',
                               missed, :'schema', missed) END;
  END IF;
  number := nextval(format('%I.%I', :'schema', 'guard_' || my_guard || '_unlocked')::regclass);
  PERFORM :"schema".guard_sample(my_guard, operation, missed, number);
END
$$;
