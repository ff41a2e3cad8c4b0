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
LANGUAGE plpgsql VOLATILE
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
LANGUAGE plpgsql VOLATILE
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

-- Tells the first in line that there may be something for it.
CREATE FUNCTION :"schema".lease_wake(freed text) RETURNS void
LANGUAGE sql VOLATILE
AS $$
  SELECT pg_notify('lockstep_' || :"schema".lock_id('listen', 'Leases:all'), w.token::text)
    FROM :"schema".lease_waiters w
   WHERE w.name = freed AND w.expires_at > clock_timestamp()
   ORDER BY w.place LIMIT 1
$$;

-- Gives a lease back. False where it was not held any more. That a crash could undo it only means that it expires instead.
CREATE FUNCTION :"schema".lease_release(held text, my_token uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE
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
LANGUAGE plpgsql VOLATILE
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
LANGUAGE plpgsql VOLATILE
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
