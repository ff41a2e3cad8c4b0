import { quoteIdentifier, quoteLiteral } from './identifiers.ts'

/** The SQL of the ground floor. Schema names arrive here already quoted. */

/** Does nothing, cheaply. */
export const PROBE = 'SELECT 1'

export const ROLLBACK = 'ROLLBACK'

/** A setting that no server has: its name stands in the error by which the check before COMMIT fails. */
export const ENDED_EARLY = 'lockstep.transaction_ended_early'

/**
 * Fails unless the condition holds, and with it the rest of its message. It asks for a setting that does not exist: without a function of
 * our own there is no other way to fail with a name. The condition must not be constant, or the planner would decide it beforehand.
 */
export function failUnlessSame(condition: string): string {
  return `SELECT current_setting(CASE WHEN ${condition} THEN 'transaction_isolation' ELSE '${ENDED_EARLY}' END)`
}

/** The check and COMMIT in one message of the simple protocol, in which nothing is run after an error. */
export function commitAfter(check: string): string {
  return `${check}; ${COMMIT}`
}

/** NOTIFY, with its channel and payload as parameters. */
export function notify(): string {
  return 'SELECT pg_notify($1, $2)'
}

/** Who asks; and of each of these backends that there is, for how long it has waited for its client, null where it does not. */
export function waitingBackends(pids: readonly number[]): string {
  return `
    SELECT pg_backend_pid()::text AS own;
    SELECT pid::text AS pid, CASE WHEN state LIKE 'idle%' THEN
             floor(extract(epoch FROM clock_timestamp() - state_change) * 1000)::text END AS waited
      FROM pg_stat_activity WHERE pid = ANY('{${pids.join(',')}}'::int[])`
}

/** Sets the limit of an event. See the function in sql/0006_outbox.sql for why it is one. */
export function limitEvents(schema: string, bytes: number): string {
  return `CREATE OR REPLACE FUNCTION ${schema}.outbox_max_event_bytes() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
          AS 'SELECT ${bytes}::bigint'`
}

export function listen(channel: string): string {
  return `LISTEN ${quoteIdentifier(channel)}`
}

export function unlisten(channel: string): string {
  return `UNLISTEN ${quoteIdentifier(channel)}`
}

/** What must be known of a server before the first transaction, in one message. */
export function readiness(schema: string): string {
  return `
    SELECT pg_is_in_recovery()::text AS standby,
           (SELECT max(version) FROM ${schema}.migrations)::text AS version,
           (SELECT max(compatible_from) FROM ${schema}.migrations)::text AS floor,
           (SELECT setting FROM pg_settings WHERE name = 'transaction_timeout') AS timeout`
}

/**
 * The life of the server that we are in; begins a new one where the last has ended. Its own transaction, at READ COMMITTED. `more` are
 * columns that come along.
 */
export function ensureIncarnation(schema: string, more: readonly string[] = []): string {
  return `
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SELECT ${['value', 'epoch', 'timeline', 'system', 'database']
      .map((name) => `${name}::text AS ${name}`)
      .concat(more)
      .join(', ')}
      FROM ${schema}.ensure_incarnation() i;
    COMMIT`
}

/** The server process that answers. */
export const ANSWERING_PROCESS = 'pg_backend_pid()::text AS pid'

/** What is remembered of trials on the server of an incarnation `i`, such as `direct 2,pooled 1`. */
export function rememberedTrials(schema: string, strategy: string, route: string, version: number): string {
  return `(
    SELECT string_agg(CASE WHEN pooled THEN 'pooled ' ELSE 'direct ' END || connections, ',')
      FROM ${schema}.lock_trials t
     WHERE t.system = i.system AND route = ${quoteLiteral(route)} AND strategy = ${quoteLiteral(strategy)} AND version >= ${version}) AS trials`
}

/** Trials that are kept at most; a process on a machine with a pooler of its own adds one. */
const TRIALS_KEPT = 1000

/** Remembers a trial that found nothing wrong, and forgets those of other servers and the oldest. */
export function rememberTrial(
  schema: string,
  trial: { route: string; strategy: string; pooled: boolean; connections: number; version: number },
): string {
  return `
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL lock_timeout = '1s';
    INSERT INTO ${schema}.lock_trials AS t (system, route, strategy, pooled, connections, version)
    SELECT system, ${quoteLiteral(trial.route)}, ${quoteLiteral(trial.strategy)}, ${trial.pooled}, ${trial.connections}, ${trial.version}
      FROM ${schema}.ensure_incarnation()
        ON CONFLICT (system, route, strategy, pooled)
        DO UPDATE SET connections = EXCLUDED.connections, version = EXCLUDED.version, tried_at = EXCLUDED.tried_at
                WHERE t.connections <= EXCLUDED.connections OR t.version < EXCLUDED.version;
    DELETE FROM ${schema}.lock_trials
     WHERE system <> (SELECT system FROM ${schema}.incarnation)
        OR tried_at < (SELECT tried_at FROM ${schema}.lock_trials ORDER BY tried_at DESC OFFSET ${TRIALS_KEPT} LIMIT 1);
    COMMIT`
}

/** Forgets every trial by a route: there, locks do not exclude any more. */
export function forgetTrials(schema: string, route: string): string {
  return `
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL lock_timeout = '1s';
    DELETE FROM ${schema}.lock_trials WHERE route = ${quoteLiteral(route)};
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
 * the second of ten processes that start at once sees what the first has done. IF NOT EXISTS would ask for the right to create
 * even where there is nothing to create: an application's role that may not must still find that all is done.
 */
export function beginMigration(schema: string, lockId: bigint): string {
  return `
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL lock_timeout = '${MIGRATOR_WAIT}';
    SELECT pg_advisory_xact_lock(${lockId});
    SET LOCAL lock_timeout = '${TABLE_WAIT}';
    SET LOCAL client_min_messages = warning;
    DO $$
    BEGIN
      IF to_regclass(${quoteLiteral(`${schema}.migrations`)}) IS NULL THEN
        CREATE SCHEMA IF NOT EXISTS ${schema};
        CREATE TABLE ${schema}.migrations (
          version integer PRIMARY KEY,
          name text NOT NULL,
          compatible_from integer NOT NULL,
          applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
        );
      END IF;
    END
    $$;
    SELECT pg_is_in_recovery()::text AS standby,
           (SELECT max(version) FROM ${schema}.migrations)::text AS version,
           (SELECT max(compatible_from) FROM ${schema}.migrations)::text AS floor`
}

export function recordMigration(schema: string): string {
  return `INSERT INTO ${schema}.migrations (version, name, compatible_from) VALUES ($1, $2, $3)`
}

export const COMMIT = 'COMMIT'

/**
 * Everything in the schema that a migration can have made, as sorted lines: compared with sql/schema.sql. `head` is PostgreSQL's
 * own wording, `body` what the migration wrote. Under an empty search_path every name comes with its schema, whatever the
 * caller's is. The schema's name arrives as a quoted literal.
 */
export function describeSchemaObjects(schema: string): string {
  return `
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL search_path = '';
    SET LOCAL quote_all_identifiers = off;
    WITH space AS (SELECT oid FROM pg_namespace WHERE nspname = ${schema}),
    relation AS (SELECT c.* FROM pg_class c JOIN space ON c.relnamespace = space.oid),
    object AS (
    SELECT 'table' AS kind, relname::text AS name, 0 AS place,
           format('%stable %I', CASE relpersistence WHEN 'u' THEN 'unlogged ' ELSE '' END, relname) AS head, '' AS body
      FROM relation WHERE relkind IN ('r', 'p')
    UNION ALL
    SELECT 'table', r.relname, a.attnum,
           format('  column %I %s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                  CASE WHEN a.attnotnull THEN ' not null' ELSE '' END,
                  coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')), ''
      FROM relation r
      JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
      LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum
     WHERE r.relkind IN ('r', 'p')
    UNION ALL
    -- From 18 on NOT NULL is a constraint with a name, too: it stands with its column.
    SELECT 'table', r.relname, 10000, format('  constraint %I %s', o.conname, pg_get_constraintdef(o.oid)), ''
      FROM pg_constraint o JOIN relation r ON r.oid = o.conrelid
     WHERE o.contype <> 'n'
    UNION ALL
    SELECT 'table', r.relname, 10001, '  ' || pg_get_indexdef(i.indexrelid), ''
      FROM pg_index i JOIN relation r ON r.oid = i.indrelid
    UNION ALL
    SELECT 'table', r.relname, 10002, '  ' || pg_get_triggerdef(t.oid), ''
      FROM pg_trigger t JOIN relation r ON r.oid = t.tgrelid
     WHERE NOT t.tgisinternal
    UNION ALL
    SELECT 'view', relname, 0, format('view %I', relname), '' FROM relation WHERE relkind IN ('v', 'm')
    UNION ALL
    SELECT 'sequence', r.relname, 0, format('sequence %I %s cache %s', r.relname, format_type(s.seqtypid, NULL), s.seqcache), ''
      FROM relation r JOIN pg_sequence s ON s.seqrelid = r.oid
    UNION ALL
    SELECT 'function', p.proname, 0,
           format('%s %I(%s)%s language %s %s%s%s%s%s', CASE p.prokind WHEN 'f' THEN 'function' ELSE 'routine' END, p.proname,
                  pg_get_function_arguments(p.oid), coalesce(' returns ' || pg_get_function_result(p.oid), ''), l.lanname,
                  CASE p.provolatile WHEN 'i' THEN 'immutable' WHEN 's' THEN 'stable' ELSE 'volatile' END,
                  CASE WHEN p.proisstrict THEN ' strict' ELSE '' END,
                  CASE p.proparallel WHEN 's' THEN ' parallel safe' WHEN 'r' THEN ' parallel restricted' ELSE '' END,
                  CASE WHEN p.prosecdef THEN ' security definer' ELSE '' END,
                  coalesce(' set ' || array_to_string(p.proconfig, ', '), '')), p.prosrc
      FROM pg_proc p JOIN space ON p.pronamespace = space.oid JOIN pg_language l ON l.oid = p.prolang
    )
    SELECT head, body FROM object ORDER BY kind COLLATE "C", name COLLATE "C", place, head COLLATE "C";
    ROLLBACK`
}
