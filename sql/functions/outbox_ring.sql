-- The bell: notifies dispatchers that wait that something was committed. False: none waits, and nothing was sent. The library calls it after
-- COMMIT, in a transaction of its own. Plain SQL can do the same, or call it in the transaction that enqueues: PostgreSQL then sends it at
-- COMMIT, and all transactions that ring commit one after the other. hint: the groups of buckets that have events, as 16 hex digits, who
-- rings, and the topics if they are few. Without it all shards are read. Where the transaction has written nothing before, the end of the log goes along: what was committed
-- before is in the log up to there, and a reader need not flush the commit of the ring itself (outbox_read).
CREATE FUNCTION :"schema".outbox_ring(hint text DEFAULT '') RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM :"schema".outbox_listeners l WHERE l.until > clock_timestamp()) THEN
    RETURN false;
  END IF;
  PERFORM pg_notify('lockstep_' || :"schema".lock_id('listen', 'Leases:all'), 'outbox ' || left(hint, 1000)
    || CASE WHEN hint <> '' AND pg_current_xact_id_if_assigned() IS NULL THEN ' ' || pg_current_wal_insert_lsn() ELSE '' END);
  RETURN true;
END
$$;
