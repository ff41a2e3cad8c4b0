-- The range of positions in which events of that time are: by bisection, because positions are given out nearly in the order of time. A minute
-- on both sides, for processes that were stopped between the two, and for clocks that are set. Without times: all that is retained.
CREATE FUNCTION :"schema".outbox_positions(from_at timestamptz, to_at timestamptz, OUT after_id bigint, OUT up_to bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  margin CONSTANT interval := '1 minute';
  first_id bigint;
  last_id bigint;
  low bigint;
  high bigint;
  middle bigint;
  width bigint;
  found_at timestamptz;
  sought timestamptz;
BEGIN
  SELECT h.emptied_id INTO first_id FROM :"schema".outbox_home h;
  last_id := :"schema".outbox_position();
  after_id := first_id;
  up_to := last_id;
  FOREACH sought IN ARRAY ARRAY[from_at - margin, to_at + margin] LOOP
    CONTINUE WHEN sought IS NULL;
    -- Events up to low are older, those behind high are not.
    low := first_id;
    high := last_id;
    WHILE high - low > 1000 LOOP
      middle := low + (high - low) / 2;
      width := 1000;
      LOOP
        SELECT e.enqueued_at INTO found_at FROM :"schema".outbox_events e
         WHERE e.id > middle AND e.id <= least(middle + width, high) ORDER BY e.id LIMIT 1;
        EXIT WHEN FOUND OR middle + width >= high;
        width := width * 8;
      END LOOP;
      IF found_at < sought THEN
        low := middle;
      ELSE
        -- Also where there is none between.
        high := middle;
      END IF;
    END LOOP;
    IF sought = from_at - margin THEN
      after_id := low;
    ELSE
      up_to := high;
    END IF;
  END LOOP;
END
$$;
