/** The SQL of the ground floor. Schema names arrive here already quoted. */

/** Does nothing, cheaply. */
export const PROBE = 'SELECT 1'

export const ROLLBACK = 'ROLLBACK'

/** What must be known of a server before the first transaction, in one message. */
export function readiness(schema: string): string {
  return `
    SELECT pg_is_in_recovery()::text AS standby,
           (SELECT max(version) FROM ${schema}.migrations)::text AS version,
           (SELECT max(compatible_from) FROM ${schema}.migrations)::text AS floor`
}

/** The life of the server that we are in; begins a new one where the last has ended. Its own transaction, at READ COMMITTED. */
export function ensureIncarnation(schema: string): string {
  return `
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SELECT value::text AS value, epoch::text AS epoch, timeline::text AS timeline,
           system::text AS system, database::text AS database
      FROM ${schema}.ensure_incarnation();
    COMMIT`
}

/** The life of the server as its table says, without beginning a new one. Null after a crash. */
export function incarnationExpression(schema: string): string {
  return `(SELECT value::text FROM ${schema}.incarnation)`
}

/** Servers on platforms without a way to see a closed socket refuse the setting. */
export const CONNECTION_CHECK_PROBE = `
  BEGIN ISOLATION LEVEL READ COMMITTED;
  SET LOCAL client_connection_check_interval = 1000;
  ROLLBACK`

/** Bounds for a migration: how long to wait for another migrator, then for each table. */
const MIGRATOR_WAIT = '60s'
const TABLE_WAIT = '10s'

/**
 * Opens the migration transaction and reads where the schema stands. The lock comes one statement before the read, so that
 * the second of ten processes that start at once sees what the first has done.
 */
export function beginMigration(schema: string, lockId: bigint): string {
  return `
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL lock_timeout = '${MIGRATOR_WAIT}';
    SELECT pg_advisory_xact_lock(${lockId});
    SET LOCAL lock_timeout = '${TABLE_WAIT}';
    SET LOCAL client_min_messages = warning;
    CREATE SCHEMA IF NOT EXISTS ${schema};
    CREATE TABLE IF NOT EXISTS ${schema}.migrations (
      version integer PRIMARY KEY,
      name text NOT NULL,
      compatible_from integer NOT NULL,
      applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    SELECT pg_is_in_recovery()::text AS standby,
           (SELECT max(version) FROM ${schema}.migrations)::text AS version,
           (SELECT max(compatible_from) FROM ${schema}.migrations)::text AS floor`
}

export function recordMigration(schema: string): string {
  return `INSERT INTO ${schema}.migrations (version, name, compatible_from) VALUES ($1, $2, $3)`
}

export const COMMIT = 'COMMIT'

/** Everything in the schema that a migration can have made, as sorted lines: compared with sql/schema.sql. */
export const DESCRIBE_SCHEMA = `
  WITH space AS (SELECT oid FROM pg_namespace WHERE nspname = $1)
  SELECT 'table' AS kind, c.relname AS name,
         format('%stable %s', CASE c.relpersistence WHEN 'u' THEN 'unlogged ' ELSE '' END, c.relname) AS text
    FROM pg_class c, space WHERE c.relnamespace = space.oid AND c.relkind IN ('r', 'p')
  UNION ALL
  SELECT 'table', c.relname,
         format('%s.%s %s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
                CASE WHEN a.attnotnull THEN ' not null' ELSE '' END,
                coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), ''))
    FROM pg_class c JOIN space ON c.relnamespace = space.oid
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
   WHERE c.relkind IN ('r', 'p')
  UNION ALL
  SELECT 'table', c.relname, format('%s: constraint %s %s', c.relname, o.conname, pg_get_constraintdef(o.oid))
    FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid JOIN space ON c.relnamespace = space.oid
   WHERE o.contype <> 'n'
  UNION ALL
  SELECT 'index', c.relname, pg_get_indexdef(c.oid)
    FROM pg_class c, space WHERE c.relnamespace = space.oid AND c.relkind IN ('i', 'I')
  UNION ALL
  SELECT 'sequence', c.relname, format('sequence %s %s cache %s', c.relname, s.seqtypid::regtype, s.seqcache)
    FROM pg_class c JOIN space ON c.relnamespace = space.oid JOIN pg_sequence s ON s.seqrelid = c.oid
  UNION ALL
  SELECT 'function', p.proname, pg_get_functiondef(p.oid)
    FROM pg_proc p, space WHERE p.pronamespace = space.oid AND p.prokind = 'f'
  ORDER BY 1 COLLATE "C", 2 COLLATE "C", 3 COLLATE "C"`
