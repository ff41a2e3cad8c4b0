/** Gives so many transaction ids away, each in a transaction of its own. */
export const useUpXids = (count: number): string => `
  DO $$ BEGIN FOR i IN 1 .. ${count} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`

/** Where the server is with its transaction ids. */
export const NEXT_XID = 'SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint::int AS next'
export const LARGEST_XID = 'SELECT max(xid::text::bigint)::int AS largest FROM lockstep.outbox_events'

/** Shards whose window was being read: some of it is delivered, some is not. */
export const CUT_WINDOWS = `
  SELECT count(*)::int AS cut
    FROM (SELECT DISTINCT ON (dispatcher, shard) done, after_id FROM lockstep.outbox_cursors
           ORDER BY dispatcher, shard, version DESC) AS last
   WHERE NOT done AND after_id > 0`

export const WAITING = `SELECT key, state FROM lockstep.outbox_parked WHERE dispatcher = 'default' ORDER BY key`

/** What the cursors say that is not delivered, and what is parked. */
export const UNDELIVERED = `
  SELECT d.name AS dispatcher, e.uuid::text AS id, p.seq IS NOT NULL AS waits
    FROM lockstep.outbox_dispatchers d
    CROSS JOIN lockstep.outbox_events e
    LEFT JOIN LATERAL (SELECT * FROM lockstep.outbox_cursors o
                        WHERE o.dispatcher = d.name AND o.shard = e.bucket * d.shards / 1024
                        ORDER BY o.version DESC LIMIT 1) AS c ON true
    LEFT JOIN lockstep.outbox_parked_events p ON p.dispatcher = d.name AND p.stream = e.stream AND p.seq = e.seq
   WHERE p.seq IS NOT NULL OR c.version IS NULL
      OR NOT (pg_visible_in_snapshot(e.xid, c.prev)
              OR (pg_visible_in_snapshot(e.xid, c.next) AND (c.done OR e.id <= c.after_id)))`

/** The last number of each stream. */
export const LAST_NUMBERS = `
  SELECT topic || '/' || key AS key, max(seq)::int AS last
    FROM (SELECT topic, key, seq FROM lockstep.outbox_events UNION ALL SELECT topic, key, seq FROM lockstep.outbox_quiet) AS known
   GROUP BY 1`

/** The mistake: it marks the cursors as this server's, unchanged. */
export const CLAIM_CURSORS = `
  UPDATE lockstep.outbox_home SET system = (SELECT system_identifier::text FROM pg_control_system());
  UPDATE lockstep.outbox_dispatchers
     SET system = (SELECT system_identifier::text FROM pg_control_system()),
         database = (SELECT oid::text FROM pg_database WHERE datname = current_database())`

/** Dispatchers that have come to this server. */
export const HAS_DISPATCHERS = `
  SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'dispatcher') AS yes`
export const TIMELINE = `
  SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int AS timeline`
