-- Takes a lease if it is free, and says who has it if not. Everything is decided by a plain read first: a refusal takes no lock and
-- writes nothing. READ COMMITTED, so that each statement sees what was committed before it. my_place is that of a waiter; a
-- caller without a place goes behind all waiters.
-- A row that is locked is busy, also where its time is over: its last holder has a transaction open, which may still commit. Slots of one
-- number of permits see to that by themselves, each is one row; rows of another number must be looked at.
-- After a promotion, the old primary can have granted a lease that no row shows: then it is not granted before
-- lease_grants_from(), verdict failover. Verdict ttl: it is longer than the schema allows, which other_left_ms says.
CREATE FUNCTION :"schema".lease_take(
  wanted text, my_token uuid, ttl_ms integer, wanted_permits integer, my_holder text, my_metadata jsonb, my_place bigint,
  my_remembered boolean,
  OUT verdict text, OUT granted_slot integer, OUT granted_fence bigint, OUT other_holder text, OUT other_since timestamptz,
  OUT other_left_ms double precision, OUT other_permits integer
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  ttl interval := make_interval(secs => ttl_ms / 1000.0);
  mine :"schema".leases;
  busy integer;
  ahead integer;
  others integer;
  lockable integer;
  several boolean := wanted_permits > 1;
  alone boolean := false;
  grants_from timestamptz := :"schema".lease_grants_from(wanted, ttl_ms);
  waits boolean := false;
BEGIN
  IF grants_from IS NULL THEN
    verdict := 'ttl';
    SELECT COALESCE(e.granted_ttl_ms, e.max_ttl_ms) INTO other_left_ms FROM :"schema".epoch e;
    RETURN;
  END IF;
  FOR look IN 1 .. 4 LOOP
    SELECT count(*) FILTER (WHERE l.token IS NOT NULL AND l.expires_at > clock_timestamp()),
           max(l.permits) FILTER (WHERE l.token IS NOT NULL AND l.expires_at > clock_timestamp() AND l.permits <> wanted_permits),
           count(*) FILTER (WHERE l.permits <> wanted_permits)
      INTO busy, other_permits, others
      FROM :"schema".leases l WHERE l.name = wanted;
    IF busy > 0 THEN
      -- An earlier try of ours whose answer was lost. Not while others wait after a failover: the old primary can have granted the lease to
      -- another caller after that try had ended, and this server does not have that.
      IF clock_timestamp() >= grants_from AND EXISTS (SELECT FROM :"schema".leases l WHERE l.name = wanted AND l.token = my_token) THEN
        PERFORM set_config('synchronous_commit', 'on', true);
        -- Its time begins again: the holder counts from this question.
        UPDATE :"schema".leases l SET expires_at = clock_timestamp() + ttl, ttl_ms = lease_take.ttl_ms
         WHERE l.name = wanted AND l.token = my_token AND l.expires_at > clock_timestamp()
         RETURNING l.slot, l.fence INTO granted_slot, granted_fence;
        EXIT WHEN FOUND;
      END IF;
      IF other_permits IS NOT NULL THEN
        verdict := 'permits';
        RETURN;
      END IF;
    END IF;
    waits := clock_timestamp() < grants_from;
    EXIT WHEN waits;
    SELECT count(*) INTO ahead FROM (
      SELECT FROM :"schema".lease_waiters w
       WHERE w.name = wanted AND w.expires_at > clock_timestamp() AND w.place < COALESCE(my_place, 9223372036854775807)
       LIMIT wanted_permits) AS waiting;
    EXIT WHEN busy + ahead >= wanted_permits;

    -- Where there are several rows, what is being taken just now is not seen: one at a time, and looked at again.
    several := several OR others > 0;
    IF several AND NOT alone THEN
      PERFORM pg_advisory_xact_lock(:"schema".lock_id('lease', wanted));
      alone := true;
      CONTINUE;
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);
    IF others > 0 THEN
      -- All of them are free or over by now. One that is locked is busy: this caller does not know its slot, or must not share it.
      SELECT count(*) INTO lockable FROM (
        SELECT FROM :"schema".leases l
         WHERE l.name = wanted AND l.permits <> wanted_permits AND (l.token IS NULL OR l.expires_at <= clock_timestamp())
           FOR UPDATE SKIP LOCKED) AS locked;
      IF lockable < others THEN
        -- Unless it was only being cleaned away.
        PERFORM pg_advisory_xact_lock_shared(:"schema".lock_id('leases', 'CleanUp:all'));
        CONTINUE;
      END IF;
      -- No holder has the old number of permits any more. Rows that it left would have to be checked by every later caller.
      INSERT INTO :"schema".lease_history (name, slot, fence, holder, metadata, acquired_at, ended_at, ending)
      SELECT l.name, l.slot, l.fence, l.holder, l.metadata, l.acquired_at, l.expires_at, 'expired'
        FROM :"schema".leases l
       WHERE l.name = wanted AND l.slot >= wanted_permits AND l.token IS NOT NULL AND l.remembered;
      DELETE FROM :"schema".leases l WHERE l.name = wanted AND l.slot >= wanted_permits;
      UPDATE :"schema".leases l SET permits = wanted_permits WHERE l.name = wanted AND l.permits <> wanted_permits;
    END IF;
    -- Locked means held: by a session that takes it just now, or by an open transaction of the last holder.
    SELECT * INTO mine FROM :"schema".leases l
     WHERE l.name = wanted AND l.slot < wanted_permits AND (l.token IS NULL OR l.expires_at <= clock_timestamp())
     ORDER BY l.slot LIMIT 1
       FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      -- Taken and released with another number since it was counted: there may be more rows of that.
      CONTINUE WHEN mine.permits <> wanted_permits;
      IF mine.token IS NOT NULL AND mine.remembered THEN
        INSERT INTO :"schema".lease_history (name, slot, fence, holder, metadata, acquired_at, ended_at, ending)
        VALUES (mine.name, mine.slot, mine.fence, mine.holder, mine.metadata, mine.acquired_at, mine.expires_at, 'expired');
      END IF;
      UPDATE :"schema".leases l
         SET token = my_token, fence = :"schema".next_fence(), permits = wanted_permits, holder = my_holder,
             metadata = my_metadata, acquired_at = clock_timestamp(), expires_at = clock_timestamp() + ttl,
             remembered = my_remembered, ttl_ms = lease_take.ttl_ms
       WHERE l.name = mine.name AND l.slot = mine.slot
       RETURNING l.slot, l.fence INTO granted_slot, granted_fence;
    ELSE
      INSERT INTO :"schema".leases (name, slot, permits, fence, token, holder, metadata, acquired_at, expires_at, remembered, ttl_ms)
      SELECT wanted, s, wanted_permits, :"schema".next_fence(), my_token, my_holder, my_metadata, clock_timestamp(),
             clock_timestamp() + ttl, my_remembered, lease_take.ttl_ms
        FROM generate_series(0, wanted_permits - 1) AS s
       WHERE NOT EXISTS (SELECT FROM :"schema".leases l WHERE l.name = wanted AND l.slot = s)
       ORDER BY s LIMIT 1
          ON CONFLICT DO NOTHING
       RETURNING slot, fence INTO granted_slot, granted_fence;
      IF granted_fence IS NULL THEN
        -- A row that is being removed is locked, and no caller holds it: it is gone in a moment.
        PERFORM pg_advisory_xact_lock_shared(:"schema".lock_id('leases', 'CleanUp:all'));
      END IF;
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
  IF waits THEN
    verdict := 'failover';
    other_left_ms := greatest(COALESCE(other_left_ms, 0), extract(epoch FROM grants_from - clock_timestamp()) * 1000, 0);
  END IF;
END
$$;
