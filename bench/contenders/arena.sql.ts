export function createDatabase(name: string): string {
  return `CREATE DATABASE "${name}"`
}

export const SHOW_VERSION = 'SHOW server_version'

/** A snapshot that is kept open: from here on VACUUM cannot remove what is deleted or updated in this database. */
export const HOLD_SNAPSHOT = `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class`

/** A writer that has got its transaction id and does not commit. */
export const HOLD_TRANSACTION = 'BEGIN; SELECT pg_current_xact_id()'

export const OTHERS_HERE = `
  SELECT pid FROM pg_stat_activity
   WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`

/** How many sessions there are in these databases, and what they take on disk. */
export const ROOM_TAKEN = `
  SELECT COALESCE(sum(numbackends), 0)::int AS connections, COALESCE(sum(pg_database_size(datid)), 0)::float8 AS bytes
    FROM pg_stat_database WHERE datname = ANY($1)`
