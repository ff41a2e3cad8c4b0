/** A counter that loses updates where two are inside at once. */
export const CREATE_COUNTER =
  'DROP TABLE IF EXISTS counter; CREATE TABLE counter (n integer NOT NULL); INSERT INTO counter VALUES (0)'
export const READ_COUNTER = 'SELECT n FROM counter'
export const WRITE_COUNTER = 'UPDATE counter SET n = $1'

/** As programs take a lock by hand, in one message. */
export function beginWithLock(id: number): string {
  return `BEGIN; SELECT pg_advisory_xact_lock(${id})`
}

export const COMMIT = 'COMMIT'

/** A standby that is behind, as one is at any moment under load. */
export const PAUSE_REPLAY = 'SELECT pg_wal_replay_pause()'
