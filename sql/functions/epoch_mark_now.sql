-- Notes, before the first event on a timeline gets its id, which id that will be: ensure_incarnation() begins the generation with it, then
-- or later. outbox_append() reads the mark instead of asking. The sequence of ids is part of it, because a restored dump has another one
-- under the same timeline.
-- An event does not begin the server epoch itself: its transaction can be long and have other locks, and all other calls would wait for its end. So
-- what is noted is in sequences, which a rollback does not undo, and the lock is released at once, by the end of a subtransaction.
CREATE FUNCTION :"schema".epoch_mark_now() RETURNS void
LANGUAGE plpgsql VOLATILE SET jit = off
AS $$
DECLARE
  mark CONSTANT bigint := (('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint << 32)
                          + :'schema.outbox_ids'::regclass::oid::bigint;
BEGIN
  IF pg_sequence_last_value(:'schema.epoch_mark'::regclass) = mark THEN
    RETURN;
  END IF;
  BEGIN
    PERFORM pg_advisory_xact_lock(:"schema".lock_id('incarnation', 'Mark:global'));
    IF pg_sequence_last_value(:'schema.epoch_mark'::regclass) IS DISTINCT FROM mark THEN
      PERFORM setval(:'schema.epoch_first_id'::regclass, :"schema".outbox_position() + 1);
      PERFORM setval(:'schema.epoch_mark'::regclass, mark);
    END IF;
    RAISE EXCEPTION 'noted' USING ERRCODE = 'LS001';
  EXCEPTION WHEN SQLSTATE 'LS001' THEN
    NULL;
  END;
END
$$;
