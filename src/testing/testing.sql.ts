import { quoteIdentifier, quoteLiteral } from '../postgres/index.ts'

/** Under this name the module's own sessions connect: they are no leaks. */
export const APPLICATION = 'lockstep-testing'

export const ROLLBACK = 'ROLLBACK'

/** Fails as PostgreSQL does where two transactions cannot be put in an order. */
export const CONFLICT = `
  DO $$ BEGIN
    RAISE EXCEPTION 'could not serialize access: conflictOnce() of pg-lockstep/testing' USING ERRCODE = '40001';
  END $$`

/** A database of its own; of `template0` where none is named. */
export function createDatabase(name: string, template = 'template0'): string {
  return `CREATE DATABASE ${quoteIdentifier(name)} TEMPLATE ${quoteIdentifier(template)}`
}

/** A template with a session cannot be copied. */
export function closeToSessions(name: string): string {
  return `ALTER DATABASE ${quoteIdentifier(name)} WITH ALLOW_CONNECTIONS false`
}

export function dropDatabase(name: string): string {
  return `DROP DATABASE IF EXISTS ${quoteIdentifier(name)} WITH (FORCE)`
}

export function sessionsIn(name: string): string {
  return `SELECT count(*) AS count FROM pg_stat_activity WHERE datname = ${quoteLiteral(name)}`
}

/** Makes every held lease older by this time. */
export function ageLeases(quotedSchema: string, ms: number): string {
  const by = `${ms} * interval '1 millisecond'`
  return `UPDATE ${quotedSchema}.leases SET expires_at = expires_at - ${by}, acquired_at = acquired_at - ${by} WHERE token IS NOT NULL`
}

export function hasSchema(schema: string): string {
  return `SELECT (to_regclass(${quoteLiteral(`${quoteIdentifier(schema)}.leases`)}) IS NOT NULL)::text AS there`
}

/**
 * What is held or open in this database, apart from this session: advisory locks, sessions, and leases where there is a schema. The end of
 * a lease is looked at by the clock of the database, as its holders do.
 */
export function findLeaks(quotedSchema: string | undefined): string {
  const id = '((l.classid::bigint << 32) | l.objid::bigint)'
  const name = quotedSchema === undefined ? 'NULL' : `(SELECT key FROM ${quotedSchema}.lock_names WHERE id = ${id})`
  const leases =
    quotedSchema === undefined
      ? ''
      : `UNION ALL
  SELECT 'lease', format('%s is held by %s, fence %s', name, holder, fence)
    FROM ${quotedSchema}.leases WHERE token IS NOT NULL AND expires_at > clock_timestamp()`
  return `
  SELECT 'lock' AS kind,
         format('%s is %s by session %s (%s), its last statement: %s', coalesce(${name}, 'advisory lock ' || ${id}),
                CASE WHEN l.granted THEN 'held' ELSE 'waited for' END, l.pid, l.mode, a.query) AS detail
    FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
   WHERE l.locktype = 'advisory' AND l.pid IS DISTINCT FROM pg_backend_pid()
     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  UNION ALL
  SELECT CASE WHEN xact_start IS NULL THEN 'connection' ELSE 'transaction' END,
         format('session %s of %s is %s, its last statement: %s', pid, coalesce(nullif(application_name, ''), 'an unnamed client'),
                coalesce(state, 'unknown'), query)
    FROM pg_stat_activity
   WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
     AND (application_name <> '${APPLICATION}' OR xact_start IS NOT NULL)
  ${leases}
   ORDER BY 1, 2`
}
