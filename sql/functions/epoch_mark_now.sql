-- Makes sure that the server epoch has begun before an event is numbered in it, and marks that: outbox_append() reads the mark instead of
-- asking. Only a transaction that did not begin the epoch itself writes the mark: a rollback does not undo setval(). The sequence of ids
-- is part of it, because a restored dump has another one under the same timeline.
CREATE FUNCTION :"schema".epoch_mark_now() RETURNS void
LANGUAGE plpgsql VOLATILE SET jit = off
AS $$
DECLARE
  mark CONSTANT bigint := (('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint << 32)
                          + :'schema.outbox_ids'::regclass::oid::bigint;
  here :"schema".incarnation;
BEGIN
  IF pg_sequence_last_value(:'schema.epoch_mark'::regclass) = mark THEN
    RETURN;
  END IF;
  here := :"schema".ensure_incarnation();
  IF here.began_at < transaction_timestamp() THEN
    PERFORM setval(:'schema.epoch_mark'::regclass, mark);
  END IF;
END
$$;
