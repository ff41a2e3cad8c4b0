/** Where a reader begins that knows nothing of the past. */
export const XMIN_NOW = 'SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xid'

/**
 * As other outboxes read: in the order of transaction ids, and no further than the oldest transaction that runs, so that none is
 * passed over.
 */
export const READ_BELOW_XMIN = `
  SELECT e.xid::text AS xid, e.id::text AS id, e.payload->>'mark' AS mark
    FROM lockstep.outbox_events e
   WHERE e.bucket_group = ANY(ARRAY(SELECT generate_series(0, 63)::smallint))
     AND e.xid >= $1::text::xid8 AND (e.xid > $1::text::xid8 OR e.id > $2)
     AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
   ORDER BY e.xid, e.id LIMIT 500`
