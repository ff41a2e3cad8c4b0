-- compatible-from: 1
-- Leases: exclusive for longer than a transaction. One row for each name and slot; a name with one permit has slot 0 alone.
-- The row stays when the lease is given back (token is null then), so that taking it again is an update in place.
CREATE TABLE :"schema".leases (
  name text NOT NULL,
  slot integer NOT NULL,
  permits integer NOT NULL CHECK (permits > slot),
  -- Changes with every holder, never with a heartbeat. It is part of a unique index, so that changing it waits for whoever has
  -- the row FOR KEY SHARE: the transactions of the holder.
  fence bigint NOT NULL,
  token uuid,
  holder text NOT NULL,
  metadata jsonb,
  acquired_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  -- Whether its end goes into the history.
  remembered boolean NOT NULL DEFAULT true,
  PRIMARY KEY (name, slot),
  UNIQUE (name, fence)
) WITH (fillfactor = 80);

-- The lower 40 bits of fences; above them is the generation (0002_incarnation.sql has the layout). They only grow, over releases,
-- clean-up, crashes and promotions.
CREATE SEQUENCE :"schema".fences MAXVALUE 1099511627775;

-- Who waits, in the order of coming. A row that is not kept alive is passed over.
CREATE TABLE :"schema".lease_waiters (
  place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL,
  token uuid NOT NULL UNIQUE,
  holder text NOT NULL,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL
);
CREATE INDEX lease_waiters_name ON :"schema".lease_waiters (name, place);

-- How leases ended. Bounded: old rows are taken away in the background.
CREATE TABLE :"schema".lease_history (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL,
  slot integer NOT NULL,
  fence bigint NOT NULL,
  holder text NOT NULL,
  metadata jsonb,
  acquired_at timestamptz NOT NULL,
  ended_at timestamptz NOT NULL,
  ending text NOT NULL CHECK (ending IN ('released', 'expired', 'forced')),
  ended_by text,
  reason text
);
CREATE INDEX lease_history_name ON :"schema".lease_history (name, id);

-- Generation and sequence. An overflow of either is an error, never a smaller fence.
CREATE FUNCTION :"schema".next_fence() RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
  SELECT (:"schema".ensure_incarnation()).epoch * 1099511627776
       + nextval(format('%I.fences', :'schema')::regclass)
$$;

-- Takes a lease if it is free, and says who has it if not. Everything is decided by a plain read first: a refusal takes no lock and
-- writes nothing. READ COMMITTED, so that each statement sees what was committed before it. my_place is that of a waiter; whoever
-- does not stand in line goes behind everybody who does.
CREATE FUNCTION :"schema".lease_take(
  wanted text, my_token uuid, ttl_ms integer, wanted_permits integer, my_holder text, my_metadata jsonb, my_place bigint,
  my_remembered boolean,
  OUT verdict text, OUT granted_slot integer, OUT granted_fence bigint, OUT other_holder text, OUT other_since timestamptz,
  OUT other_left_ms double precision, OUT other_permits integer
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  ttl interval := make_interval(secs => ttl_ms / 1000.0);
  mine :"schema".leases;
  busy integer;
  ahead integer;
  several boolean := wanted_permits > 1;
BEGIN
  FOR look IN 1 .. 3 LOOP
    SELECT count(*), max(l.permits) FILTER (WHERE l.permits <> wanted_permits) INTO busy, other_permits
      FROM :"schema".leases l WHERE l.name = wanted AND l.token IS NOT NULL AND l.expires_at > clock_timestamp();
    IF busy > 0 THEN
      -- An earlier try of ours whose answer was lost.
      IF EXISTS (SELECT FROM :"schema".leases l WHERE l.name = wanted AND l.token = my_token) THEN
        PERFORM set_config('synchronous_commit', 'on', true);
        -- Its time begins anew: the holder counts from this question.
        UPDATE :"schema".leases l SET expires_at = clock_timestamp() + ttl
         WHERE l.name = wanted AND l.token = my_token AND l.expires_at > clock_timestamp()
         RETURNING l.slot, l.fence INTO granted_slot, granted_fence;
        EXIT WHEN FOUND;
      END IF;
      IF other_permits IS NOT NULL THEN
        verdict := 'permits';
        RETURN;
      END IF;
    END IF;
    SELECT count(*) INTO ahead FROM (
      SELECT FROM :"schema".lease_waiters w
       WHERE w.name = wanted AND w.expires_at > clock_timestamp() AND w.place < COALESCE(my_place, 9223372036854775807)
       LIMIT wanted_permits) AS waiting;
    EXIT WHEN busy + ahead >= wanted_permits;

    -- Where there are several rows, what is being taken just now is not seen: one at a time, and looked at anew.
    IF look = 1 THEN
      several := several OR EXISTS (SELECT FROM :"schema".leases l WHERE l.name = wanted AND l.permits <> wanted_permits);
      IF several THEN
        PERFORM pg_advisory_xact_lock(:"schema".lock_id('lease', wanted));
        CONTINUE;
      END IF;
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);
    -- Locked means held: by whoever takes it just now, or by an open transaction of the last holder.
    SELECT * INTO mine FROM :"schema".leases l
     WHERE l.name = wanted AND l.slot < wanted_permits AND (l.token IS NULL OR l.expires_at <= clock_timestamp())
     ORDER BY l.slot LIMIT 1
       FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      IF mine.token IS NOT NULL AND mine.remembered THEN
        INSERT INTO :"schema".lease_history (name, slot, fence, holder, metadata, acquired_at, ended_at, ending)
        VALUES (mine.name, mine.slot, mine.fence, mine.holder, mine.metadata, mine.acquired_at, mine.expires_at, 'expired');
      END IF;
      UPDATE :"schema".leases l
         SET token = my_token, fence = :"schema".next_fence(), permits = wanted_permits, holder = my_holder,
             metadata = my_metadata, acquired_at = clock_timestamp(), expires_at = clock_timestamp() + ttl,
             remembered = my_remembered
       WHERE l.name = mine.name AND l.slot = mine.slot
       RETURNING l.slot, l.fence INTO granted_slot, granted_fence;
    ELSE
      INSERT INTO :"schema".leases (name, slot, permits, fence, token, holder, metadata, acquired_at, expires_at, remembered)
      SELECT wanted, s, wanted_permits, :"schema".next_fence(), my_token, my_holder, my_metadata, clock_timestamp(),
             clock_timestamp() + ttl, my_remembered
        FROM generate_series(0, wanted_permits - 1) AS s
       WHERE NOT EXISTS (SELECT FROM :"schema".leases l WHERE l.name = wanted AND l.slot = s)
       ORDER BY s LIMIT 1
          ON CONFLICT DO NOTHING
       RETURNING slot, fence INTO granted_slot, granted_fence;
    END IF;
    EXIT WHEN granted_fence IS NOT NULL;
  END LOOP;

  IF granted_fence IS NOT NULL THEN
    IF my_place IS NOT NULL THEN
      DELETE FROM :"schema".lease_waiters w WHERE w.token = my_token;
      -- There may be something for the next one as well.
      IF several THEN
        PERFORM :"schema".lease_wake(wanted);
      END IF;
    END IF;
    verdict := 'granted';
    RETURN;
  END IF;
  verdict := 'held';
  SELECT l.holder, l.acquired_at, greatest(0, extract(epoch FROM l.expires_at - clock_timestamp()) * 1000)
    INTO other_holder, other_since, other_left_ms
    FROM :"schema".leases l WHERE l.name = wanted AND l.token IS NOT NULL
   ORDER BY l.expires_at LIMIT 1;
END
$$;

-- Keeps leases alive, many at once. A row that somebody has locked is not waited for: the others must not expire meanwhile.
-- By fence as well as by token: a question that was long on its way may have taken a lost lease again under its old token.
CREATE FUNCTION :"schema".lease_renew(names text[], tokens uuid[], fences bigint[], ttls_ms integer[])
RETURNS TABLE (renewed_token uuid, outcome text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  -- A renewal that a crash could undo would leave a holder that trusts what the row does not say.
  PERFORM set_config('synchronous_commit', 'on', true);
  RETURN QUERY
  WITH given AS (
    SELECT * FROM unnest(names, tokens, fences, ttls_ms) AS g(name, token, fence, ttl_ms)
  ), mine AS (
    SELECT l.name, l.slot, given.ttl_ms
      FROM given JOIN :"schema".leases l ON l.name = given.name AND l.token = given.token AND l.fence = given.fence
     WHERE l.expires_at > clock_timestamp()
       FOR NO KEY UPDATE OF l SKIP LOCKED
  ), renewed AS (
    UPDATE :"schema".leases l SET expires_at = clock_timestamp() + make_interval(secs => mine.ttl_ms / 1000.0)
      FROM mine WHERE l.name = mine.name AND l.slot = mine.slot
    RETURNING l.token
  )
  SELECT given.token,
         CASE WHEN renewed.token IS NOT NULL THEN 'renewed'
              WHEN EXISTS (SELECT FROM :"schema".leases l
                            WHERE l.name = given.name AND l.token = given.token AND l.fence = given.fence
                              AND l.expires_at > clock_timestamp()) THEN 'unknown'
              ELSE 'lost' END
    FROM given LEFT JOIN renewed ON renewed.token = given.token;
END
$$;

-- Tells the first in line that there may be something for it. By its place: every role can listen, and the token is the waiter's secret.
CREATE FUNCTION :"schema".lease_wake(freed text) RETURNS void
LANGUAGE sql VOLATILE
AS $$
  SELECT pg_notify('lockstep_' || :"schema".lock_id('listen', 'Leases:all'), w.place::text)
    FROM :"schema".lease_waiters w
   WHERE w.name = freed AND w.expires_at > clock_timestamp()
   ORDER BY w.place LIMIT 1
$$;

-- Gives a lease back. False where it was not held any more. That a crash could undo it only means that it expires instead.
CREATE FUNCTION :"schema".lease_release(held text, my_token uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  mine :"schema".leases;
BEGIN
  SELECT * INTO mine FROM :"schema".leases l WHERE l.name = held AND l.token = my_token FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE :"schema".leases l SET token = NULL, expires_at = clock_timestamp() WHERE l.name = mine.name AND l.slot = mine.slot;
  IF mine.remembered THEN
    INSERT INTO :"schema".lease_history (name, slot, fence, holder, metadata, acquired_at, ended_at, ending)
    VALUES (mine.name, mine.slot, mine.fence, mine.holder, mine.metadata, mine.acquired_at,
            least(mine.expires_at, clock_timestamp()),
            CASE WHEN mine.expires_at > clock_timestamp() THEN 'released' ELSE 'expired' END);
  END IF;
  PERFORM :"schema".lease_wake(held);
  RETURN mine.expires_at > clock_timestamp();
END
$$;

-- Takes a lease away from whoever holds it, all slots of it. Changing the fence waits for the holder's open transactions.
CREATE FUNCTION :"schema".lease_force_release(held text, forced_by text, forced_reason text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  mine :"schema".leases;
  released integer := 0;
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  FOR mine IN SELECT * FROM :"schema".leases l WHERE l.name = held AND l.token IS NOT NULL ORDER BY l.slot FOR UPDATE LOOP
    UPDATE :"schema".leases l SET token = NULL, fence = :"schema".next_fence(), expires_at = clock_timestamp()
     WHERE l.name = mine.name AND l.slot = mine.slot;
    INSERT INTO :"schema".lease_history
      (name, slot, fence, holder, metadata, acquired_at, ended_at, ending, ended_by, reason)
    VALUES (mine.name, mine.slot, mine.fence, mine.holder, mine.metadata, mine.acquired_at, clock_timestamp(),
            'forced', forced_by, forced_reason);
    released := released + 1;
  END LOOP;
  PERFORM :"schema".lease_wake(held);
  RETURN released;
END
$$;

-- Keeps waiters in line and says for which of them it is worth trying, and how long until the next holder's end.
CREATE FUNCTION :"schema".lease_look(tokens uuid[], permits integer[], keep_ms integer)
RETURNS TABLE (waiting_token uuid, ready boolean, left_ms double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  UPDATE :"schema".lease_waiters w SET expires_at = clock_timestamp() + make_interval(secs => keep_ms / 1000.0)
   WHERE w.token = ANY(tokens);
  RETURN QUERY
  SELECT w.token,
         (SELECT count(*) FROM :"schema".leases l
           WHERE l.name = w.name AND l.token IS NOT NULL AND l.expires_at > clock_timestamp())
       + (SELECT count(*) FROM (SELECT FROM :"schema".lease_waiters a
                                 WHERE a.name = w.name AND a.place < w.place AND a.expires_at > clock_timestamp()
                                 LIMIT given.permits) AS waiting) < given.permits,
         (SELECT (extract(epoch FROM min(l.expires_at) - clock_timestamp()) * 1000)::double precision
            FROM :"schema".leases l
           WHERE l.name = w.name AND l.token IS NOT NULL AND l.expires_at > clock_timestamp())
    FROM unnest(tokens, permits) AS given(token, permits) JOIN :"schema".lease_waiters w ON w.token = given.token;
END
$$;

-- Puts waiters in line, in their order.
CREATE FUNCTION :"schema".lease_wait(names text[], tokens uuid[], holders text[], keep_ms integer)
RETURNS TABLE (waiting_token uuid, waiting_place bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  INSERT INTO :"schema".lease_waiters AS w (name, token, holder, expires_at)
  SELECT g.name, g.token, g.holder, clock_timestamp() + make_interval(secs => keep_ms / 1000.0)
    FROM unnest(names, tokens, holders) WITH ORDINALITY AS g(name, token, holder, number)
   ORDER BY g.number
      ON CONFLICT (token) DO UPDATE SET expires_at = excluded.expires_at
  RETURNING w.token, w.place
$$;

-- Takes waiters out of the line, and wakes the one that is first now.
CREATE FUNCTION :"schema".lease_leave(tokens uuid[]) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  WITH gone AS (DELETE FROM :"schema".lease_waiters w WHERE w.token = ANY(tokens) RETURNING w.name)
  SELECT :"schema".lease_wake(names.name) FROM (SELECT DISTINCT gone.name FROM gone) AS names
$$;

-- The first statement of a holder's transaction. False means that the lease is lost, or that the snapshot is older than the lease.
-- Outside READ COMMITTED the row is read as it was when the snapshot was taken, before the last heartbeats: there its end says nothing.
-- The lock does, at every level: it is refused (40001) where the row has another holder since, and no session gets the lease while it is
-- held. The bounds end a session whose holder has stopped, where the caller's own are not stricter.
CREATE FUNCTION :"schema".lease_guard(held text, my_token uuid, my_fence bigint, bound_ms double precision) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  bound CONSTANT text := ceil(bound_ms)::bigint::text;
BEGIN
  PERFORM FROM :"schema".leases l
    WHERE l.name = held AND l.token = my_token AND l.fence = my_fence
      AND (l.expires_at > clock_timestamp() OR current_setting('transaction_isolation') <> 'read committed')
      FOR KEY SHARE;
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
  RETURN true;
END
$$;

-- Who holds what now: one name, or all that begin so. Without the token, which is the holder's secret.
CREATE FUNCTION :"schema".lease_holders(wanted text, exactly boolean, most integer)
RETURNS TABLE (name text, slot integer, permits integer, fence bigint, holder text, metadata jsonb, acquired_at timestamptz, expires_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  -- Two statements: for one name the index is used.
  IF exactly THEN
    RETURN QUERY SELECT l.name, l.slot, l.permits, l.fence, l.holder, l.metadata, l.acquired_at, l.expires_at FROM :"schema".leases l
     WHERE l.name = wanted AND l.token IS NOT NULL AND l.expires_at > clock_timestamp() ORDER BY l.slot LIMIT most;
  ELSE
    RETURN QUERY SELECT l.name, l.slot, l.permits, l.fence, l.holder, l.metadata, l.acquired_at, l.expires_at FROM :"schema".leases l
     WHERE starts_with(l.name, wanted) AND l.token IS NOT NULL AND l.expires_at > clock_timestamp() ORDER BY l.name, l.slot LIMIT most;
  END IF;
END
$$;

CREATE FUNCTION :"schema".lease_queue(wanted text, exactly boolean, most integer)
RETURNS TABLE (name text, holder text, since timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  IF exactly THEN
    RETURN QUERY SELECT w.name, w.holder, w.since FROM :"schema".lease_waiters w
     WHERE w.name = wanted AND w.expires_at > clock_timestamp() ORDER BY w.place LIMIT most;
  ELSE
    RETURN QUERY SELECT w.name, w.holder, w.since FROM :"schema".lease_waiters w
     WHERE starts_with(w.name, wanted) AND w.expires_at > clock_timestamp() ORDER BY w.name, w.place LIMIT most;
  END IF;
END
$$;

CREATE FUNCTION :"schema".lease_endings(wanted text, most integer) RETURNS SETOF :"schema".lease_history
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT * FROM :"schema".lease_history h WHERE h.name = wanted ORDER BY h.id DESC LIMIT most $$;

-- How many names are held, how many sessions wait, how many names are one or the other.
CREATE FUNCTION :"schema".lease_counts(OUT held bigint, OUT waiting bigint, OUT names bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  WITH held AS MATERIALIZED (
    SELECT DISTINCT l.name FROM :"schema".leases l WHERE l.token IS NOT NULL AND l.expires_at > clock_timestamp()
  ), waiting AS MATERIALIZED (
    SELECT w.name FROM :"schema".lease_waiters w WHERE w.expires_at > clock_timestamp()
  )
  SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM waiting),
         (SELECT count(*) FROM (SELECT h.name FROM held h UNION SELECT w.name FROM waiting w) AS each)
$$;

-- Takes away old history, rows of leases that were not taken for long, and waiters that are gone; a bounded number at a time. One session
-- at a time, under a lock: a caller that finds a row locked which no session holds waits for it to be gone. What is younger than a minute
-- is kept whatever the caller says.
CREATE FUNCTION :"schema".lease_clean_up(keep_history bigint, idle_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  before timestamptz := clock_timestamp() - make_interval(secs => greatest(idle_ms, 60000) / 1000.0);
BEGIN
  DELETE FROM :"schema".lease_history
   WHERE id IN (SELECT h.id FROM :"schema".lease_history h
                 WHERE h.id <= (SELECT max(m.id) FROM :"schema".lease_history m) - greatest(keep_history, 1000) ORDER BY h.id LIMIT 1000);
  DELETE FROM :"schema".lease_waiters w WHERE w.expires_at < before;
  PERFORM pg_advisory_xact_lock(:"schema".lock_id('leases', 'CleanUp:all'));
  DELETE FROM :"schema".leases
   WHERE (name, slot) IN (SELECT l.name, l.slot FROM :"schema".leases l WHERE l.expires_at < before LIMIT 1000 FOR UPDATE SKIP LOCKED);
END
$$;
