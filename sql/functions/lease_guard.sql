-- The first statement of a holder's transaction. False means that the lease is lost, or that the snapshot is older than the lease.
-- Outside READ COMMITTED the row is read as it was when the snapshot was taken, before the last heartbeats: there its end says nothing.
-- The lock does, at every level: it is refused (40001) where the row has another holder since, and no session gets the lease while it is
-- held. Where the server epoch has not begun, the end is by another server's clock and says nothing either: this server has granted the lease to no caller
-- since, or the epoch would have begun. (The guard does not begin it: others would wait for the end of the holder's transaction.) The bounds end a session whose holder has stopped, where the caller's own are not stricter.
CREATE FUNCTION :"schema".lease_guard(held text, my_token uuid, my_fence bigint, bound_ms double precision) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  bound CONSTANT text := ceil(bound_ms)::bigint::text;
  my_permits integer;
BEGIN
  SELECT l.permits INTO my_permits FROM :"schema".leases l
    WHERE l.name = held AND l.token = my_token AND l.fence = my_fence
      AND (l.expires_at > clock_timestamp() OR current_setting('transaction_isolation') <> 'read committed'
           OR NOT EXISTS (SELECT FROM :"schema".incarnation))
      FOR KEY SHARE OF l;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF NOT (extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000 BETWEEN 1 AND bound_ms) THEN
    PERFORM set_config('idle_in_transaction_session_timeout', bound, true);
  END IF;
  IF current_setting('server_version_num')::integer >= 170000 THEN
    IF NOT (extract(epoch FROM current_setting('transaction_timeout')::interval) * 1000 BETWEEN 1 AND bound_ms) THEN
      -- The server sets its clock only if it is not running: where a longer one runs, it is stopped first.
      PERFORM set_config('transaction_timeout', '0', true);
      PERFORM set_config('transaction_timeout', bound, true);
    END IF;
  END IF;
  -- For the triggers of guards, as the locks of the transaction. One of several permits excludes no other holder.
  IF my_permits = 1 THEN
    PERFORM set_config('lockstep.held', concat_ws(',', nullif(current_setting('lockstep.held', true), ''), encode(int8send(:"schema".lock_id('lease', held)), 'hex')), true);
  END IF;
  RETURN true;
END
$$;
