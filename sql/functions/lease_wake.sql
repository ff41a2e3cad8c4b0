-- Notifies the first waiter that a lease can be free. By its position: every role can listen, and the token is the waiter's secret.
CREATE FUNCTION :"schema".lease_wake(freed text) RETURNS void
LANGUAGE sql VOLATILE SET jit = off
AS $$
  SELECT pg_notify('lockstep_' || :"schema".lock_id('listen', 'Leases:all'), w.place::text)
    FROM :"schema".lease_waiters w
   WHERE w.name = freed AND w.expires_at > clock_timestamp()
   ORDER BY w.place LIMIT 1
$$;
