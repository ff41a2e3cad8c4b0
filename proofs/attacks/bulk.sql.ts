/** What a transaction wrote: the event at place n of its list has the mark "<topic> n". */
export const WRITTEN = `
  SELECT count(*)::int AS events, count(DISTINCT e.stream)::int AS streams,
         count(*) FILTER (WHERE e.seq <> split_part(e.payload->>'mark', ' ', 2)::int / $2::int + 1)::int AS misnumbered
    FROM lockstep.outbox_events e WHERE e.topic = $1`

/** What it would take without groups. */
export const LOCK_EACH = 'SELECT count(pg_advisory_xact_lock(100, n)) FROM generate_series(1, $1::int) AS n'

/** Ends all dispatching, so that earlier events do not disturb the measurement. */
export const FORGET_EVENTS = 'TRUNCATE lockstep.outbox_events'
