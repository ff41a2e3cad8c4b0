import { quoteIdentifier, quoteLiteral } from './identifiers.ts'

/** The SQL of the module postgres. Schema names arrive here already quoted. */

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

/** Has the server process keep a statement under a name. Its parameters have the types that the statement casts them to. */
export function prepare(name: string, text: string): string {
  return `PREPARE ${name} AS ${text};`
}

/** Runs it, with numbers of ours for its parameters. */
export function execute(name: string, values: readonly bigint[]): string {
  return `EXECUTE ${name}(${values.join(', ')});`
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

/** Sets the limit of an event. See sql/functions/outbox_max_event_bytes.sql for why it is a function. */
export function limitEvents(schema: string, bytes: number): string {
  return `CREATE OR REPLACE FUNCTION ${schema}.outbox_max_event_bytes() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
          AS 'SELECT ${bytes}::bigint'`
}

/** The body that `limitEvents()` writes: a setting, not a part of the schema. */
export const LIMIT_BODY = /^SELECT \d+::bigint$/

/** The limit as it is, from the catalogs: not every role can call the function. The schema's name as it is, not quoted. */
export function eventLimit(schema: string): string {
  return `
    SELECT substring(p.prosrc FROM '[0-9]+') AS bytes FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace
     WHERE s.nspname = ${quoteLiteral(schema)} AND p.proname = 'outbox_max_event_bytes' AND p.pronargs = 0`
}

export function failoverSettings(schema: string): string {
  return `SELECT max_ttl_ms::text AS ttl, synchronous_failover::text AS synchronous FROM ${schema}.failover_settings()`
}

/** A longer ttl is not granted yet: see `grantRaisedTtl()`. A shorter one is: what was granted before is before it in the log. */
export function setFailoverSettings(schema: string, ttlMs: string, synchronous: string): string {
  return `
    SET LOCAL synchronous_commit = on;
    UPDATE ${schema}.epoch SET max_ttl_ms = ${ttlMs}, synchronous_failover = ${synchronous},
           granted_ttl_ms = CASE WHEN COALESCE(granted_ttl_ms, max_ttl_ms) < ${ttlMs} THEN COALESCE(granted_ttl_ms, max_ttl_ms) END`
}

export const LOG_END = 'SELECT pg_current_wal_flush_lsn()::text AS place'

/** Connected standbys that have not received the WAL up to this position, if the role can see that. A logical subscriber is no standby. */
export function standbysBehind(place: string): string {
  return `
    SELECT count(*)::text AS behind FROM pg_stat_replication r
     WHERE pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AND r.state <> 'backup'
       AND (r.flush_lsn < ${quoteLiteral(place)}::pg_lsn) IS NOT FALSE
       AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')`
}

export function grantRaisedTtl(schema: string): string {
  return `UPDATE ${schema}.epoch SET granted_ttl_ms = NULL WHERE granted_ttl_ms IS NOT NULL`
}

/** Which events belong to which generation. */
export function epochGenerations(schema: string): string {
  return `SELECT * FROM ${schema}.epoch_generations()`
}

/** The server epochs, the newest first. */
export function epochList(schema: string, most: number): string {
  return `SELECT * FROM ${schema}.epoch_list(${most})`
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
           version::text AS version, compatible_from::text AS floor,
           (SELECT setting FROM pg_settings WHERE name = 'transaction_timeout') AS timeout
      FROM ${schema}.schema_version()`
}

/**
 * The current server epoch. Begins a new one if the last has ended. Its own transaction, at READ COMMITTED. `more` are
 * columns that come along.
 */
export function ensureServerEpoch(schema: string, more: readonly string[] = []): string {
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

/** What is remembered of trials on the server of an epoch, the row `i` of `incarnation`, such as `direct 2,pooled 1`. */
export function rememberedTrials(schema: string, strategy: string, route: string, version: number): string {
  return `${schema}.lock_trials_known(i.system, ${quoteLiteral(route)}, ${quoteLiteral(strategy)}, ${version}) AS trials`
}

/** Remembers a trial that found nothing wrong, and forgets those of other servers and the oldest. */
export function rememberTrial(
  schema: string,
  trial: { route: string; strategy: string; pooled: boolean; connections: number; version: number },
): string {
  return `
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL lock_timeout = '1s';
    SELECT ${schema}.lock_trials_remember(${quoteLiteral(trial.route)}, ${quoteLiteral(trial.strategy)}, ${trial.pooled},
                                          ${trial.connections}, ${trial.version});
    COMMIT`
}

/** Forgets every trial by a route: there, locks do not exclude any more. */
export function forgetTrials(schema: string, route: string): string {
  return `
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL lock_timeout = '1s';
    SELECT ${schema}.lock_trials_forget(${quoteLiteral(route)});
    COMMIT`
}

/** The server epoch as its table has it, without beginning a new one. Null after a crash. */
export function serverEpochExpression(schema: string): string {
  return `${schema}.current_incarnation()`
}

/** Servers on platforms without a way to see a closed socket refuse the setting. */
export const CONNECTION_CHECK_PROBE = `
  BEGIN ISOLATION LEVEL READ COMMITTED;
  SET LOCAL client_connection_check_interval = 1000;
  ROLLBACK`

/** Bounds for a migration: how long to wait for another migrator, then for each table. */
const MIGRATOR_WAIT = '60s'
const TABLE_WAIT = '10s'

/** Whose objects the migrating role can run code of: its own, a superuser's, those of a role that it has the rights of by membership. */
const IS_TRUSTED = `
  CASE WHEN owner.oid = me.oid OR owner.rolsuper THEN true
       WHEN owner.rolname = 'pg_database_owner' THEN base.datdba = me.oid OR dba.rolsuper OR (NOT me.rolsuper AND pg_has_role(me.oid, owner.oid, 'USAGE'))
       -- A superuser has the rights of every role: that says nothing.
       ELSE NOT me.rolsuper AND pg_has_role(me.oid, owner.oid, 'USAGE') END`

/** Every object of a schema `space`, so that what is new can be found later. */
const OBJECTS = `
  COALESCE((SELECT string_agg(object.id, ',') FROM (
    SELECT 's' || space.oid AS id FROM space
    UNION ALL SELECT 'c' || c.oid FROM pg_class c JOIN space ON c.relnamespace = space.oid
    UNION ALL SELECT 'p' || p.oid FROM pg_proc p JOIN space ON p.pronamespace = space.oid) AS object), '')`

/**
 * Who can create in a schema `space` and has none of its owner's rights: such a role could add a function whose arguments fit better than
 * those of Lockstep's own, and functions that run with the owner's rights would call it. Null if there is none.
 */
export const CREATORS = `
  (SELECT string_agg(DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, ', ')
     FROM space CROSS JOIN LATERAL aclexplode(space.nspacl) AS a LEFT JOIN pg_roles who ON who.oid = a.grantee
    WHERE a.privilege_type = 'CREATE'
      AND (a.grantee = 0 OR NOT (who.rolsuper OR pg_has_role(a.grantee, space.nspowner, 'USAGE'))))`

/** Whose code a superuser would run in the schema. */
export interface ForeignOwner {
  readonly role: string
  readonly what: string
  readonly owner: string
}

/**
 * The owner of the schema, or of a function in it, where the session is a superuser's and cannot trust that role. No row where all is
 * well. It reads catalogs alone, and names all that it uses with its schema: a search_path leads it nowhere else.
 */
export function foreignOwnerInSchema(schema: string): string {
  const same = 'OPERATOR(pg_catalog.=)'
  return `
    SELECT me.rolname::pg_catalog.text AS role, object.what, owner.rolname::pg_catalog.text AS owner
      FROM pg_catalog.pg_roles me
      JOIN pg_catalog.pg_database base ON base.datname ${same} pg_catalog.current_database()
      JOIN pg_catalog.pg_roles dba ON dba.oid ${same} base.datdba
      JOIN pg_catalog.pg_namespace space ON space.nspname ${same} ${quoteLiteral(schema)}::pg_catalog.name
     CROSS JOIN LATERAL (
       SELECT 1 AS place, 'the schema'::pg_catalog.text AS what, space.nspowner AS owned_by
       UNION ALL
       SELECT 2, pg_catalog.concat('the function ', p.proname), p.proowner
         FROM pg_catalog.pg_proc p WHERE p.pronamespace ${same} space.oid
     ) AS object
      JOIN pg_catalog.pg_roles owner ON owner.oid ${same} object.owned_by
     WHERE me.rolname ${same} CURRENT_USER AND me.rolsuper
       AND NOT (owner.rolsuper OR (owner.rolname ${same} 'pg_database_owner'::pg_catalog.name AND dba.rolsuper))
     ORDER BY object.place, object.what
     LIMIT 1`
}

/** What a migration looks at before it touches anything in the schema. */
export interface SchemaOwnership {
  /** Whether the schema is there. */
  readonly present: 'true' | 'false'
  /** The migrating role. */
  readonly role: string
  /** The owner of the schema; null where there is none. */
  readonly owner: string | null
  /** Whether code of the owner can be run. */
  readonly trusted: 'true' | 'false'
  /** Whether the migrating role has the owner's rights. */
  readonly owned: 'true' | 'false'
  /** Up to five objects in the schema that another role owns, or whose trigger runs another role's function; null where there are none. */
  readonly foreign: string | null
  /** Whether its function `schema_version()` runs with its owner's rights: then calling it runs none of another role's code as this one. */
  readonly safeVersion: 'true' | 'false'
  /** Other roles that can create in the schema; null where there are none. */
  readonly creators: string | null
  /** What was there before, as `closeNewObjects` takes it. */
  readonly known: string
  readonly standby: string
}

/**
 * Opens the migration transaction and reads, from the catalogs alone, whose schema it is. The lock comes one statement before the
 * read, so that the second of ten processes that start at once sees what the first has done. A schema that another role made can have
 * triggers, rules and functions that would run with the rights of the migrating role; so could functions of another schema in the
 * search_path.
 */
export function beginMigration(schema: string, lockId: bigint): string {
  const name = quoteLiteral(schema)
  return `
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL search_path = pg_catalog, pg_temp;
    SET LOCAL lock_timeout = '${MIGRATOR_WAIT}';
    SELECT pg_advisory_xact_lock(${lockId});
    SET LOCAL lock_timeout = '${TABLE_WAIT}';
    SET LOCAL client_min_messages = warning;
    WITH me AS (SELECT * FROM pg_roles WHERE rolname = current_user),
    base AS (SELECT datdba FROM pg_database WHERE datname = current_database()),
    dba AS (SELECT r.rolsuper FROM pg_roles r JOIN base ON r.oid = base.datdba),
    space AS (SELECT oid, nspowner, nspacl FROM pg_namespace WHERE nspname = ${name}),
    object AS (
      SELECT 1 AS place, 'the schema' AS what, nspowner AS owned_by FROM space
      UNION ALL
      SELECT 2, format('%s %I', CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'view' WHEN 'S' THEN 'sequence' ELSE 'table' END, c.relname), c.relowner
        FROM pg_class c JOIN space ON c.relnamespace = space.oid WHERE c.relkind NOT IN ('i', 'I', 't')
      UNION ALL
      SELECT 3, format('function %I', p.proname), p.proowner FROM pg_proc p JOIN space ON p.pronamespace = space.oid
      UNION ALL
      SELECT 4, format('trigger %I on table %I', t.tgname, c.relname), p.proowner
        FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN space ON c.relnamespace = space.oid JOIN pg_proc p ON p.oid = t.tgfoid
       WHERE NOT t.tgisinternal
      UNION ALL
      SELECT 5, format('type %I', t.typname), t.typowner FROM pg_type t JOIN space ON t.typnamespace = space.oid
       WHERE t.typrelid = 0 AND t.typelem = 0
    ), judged AS (
      SELECT object.place, object.what, owner.rolname, ${IS_TRUSTED} AS trusted
        FROM object JOIN pg_roles owner ON owner.oid = object.owned_by CROSS JOIN me CROSS JOIN base CROSS JOIN dba
    )
    SELECT EXISTS (SELECT FROM space)::text AS present, me.rolname::text AS role,
           (SELECT j.rolname::text FROM judged j WHERE j.place = 1) AS owner,
           COALESCE((SELECT j.trusted FROM judged j WHERE j.place = 1), true)::text AS trusted,
           COALESCE((SELECT me.rolsuper OR pg_has_role(me.oid, space.nspowner, 'USAGE') FROM space), true)::text AS owned,
           (SELECT string_agg(format('%s of %I', f.what, f.rolname), ', ' ORDER BY f.place, f.what)
              FROM (SELECT * FROM judged j WHERE j.place > 1 AND NOT j.trusted ORDER BY j.place, j.what LIMIT 5) AS f) AS foreign,
           COALESCE((SELECT count(*) = 1 AND bool_and(p.prosecdef AND p.pronargs = 0) FROM pg_proc p JOIN space ON p.pronamespace = space.oid
                      WHERE p.proname = 'schema_version'), false)::text AS "safeVersion",
           ${CREATORS} AS creators,
           ${OBJECTS} AS known,
           pg_is_in_recovery()::text AS standby
      FROM me`
}

/** Makes the schema, unless it is there and was found to be the migrating role's own. */
export function createSchema(schema: string): string {
  return `CREATE SCHEMA ${schema}`
}

/** Locks all tables or fails within this time: the limit of a statement starts again for each table. */
export function lockTables(schema: string, tables: readonly string[], waitMs: number): string {
  return `
    SET LOCAL lock_timeout = '${Math.max(1, Math.floor(waitMs / tables.length))}ms';
    LOCK TABLE ${tables.map((table) => `${schema}.${table}`).join(', ')} IN ACCESS EXCLUSIVE MODE`
}

/** Up to five processes that hold these tables, the longest transaction first, as text. The schema's name as it is, not quoted. */
export function holdersOf(schema: string, tables: readonly string[]): string {
  return `
    SELECT format('process %s%s (%s)', held.pid, ', in a transaction since ' || held.xact_start::timestamptz(0), held.tables) AS holder
      FROM (SELECT l.pid, min(a.xact_start) AS xact_start, string_agg(DISTINCT c.relname, ', ') AS tables
              FROM pg_locks l
              JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace s ON s.oid = c.relnamespace
              LEFT JOIN pg_stat_activity a ON a.pid = l.pid
             WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND s.nspname = ${quoteLiteral(schema)} AND c.relname = ANY ('{${tables.join(',')}}') AND l.pid IS NOT NULL
             GROUP BY l.pid ORDER BY min(a.xact_start) LIMIT 5) AS held`
}

/** What was applied: the migrations of the tables, and the hash of each function's text. */
export function createMigrations(schema: string): string {
  return `
    CREATE TABLE IF NOT EXISTS ${schema}.migrations (
      version integer PRIMARY KEY,
      name text NOT NULL,
      compatible_from integer NOT NULL,
      applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE TABLE IF NOT EXISTS ${schema}.functions (
      name text PRIMARY KEY,
      hash text NOT NULL,
      replaced_at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    SELECT max(abs(version))::text AS version, max(compatible_from)::text AS floor FROM ${schema}.migrations`
}

/**
 * A migration that is applied while its functions are not there yet has a negative number: `schema_version()`, which asks for the largest,
 * reports the version before, to libraries of every version.
 */
export function recordAsStep(schema: string, version: number): string {
  return `UPDATE ${schema}.migrations SET version = -version WHERE version = ${version}`
}

export function finishSteps(schema: string, target: number): string {
  return `UPDATE ${schema}.migrations SET version = -version WHERE version BETWEEN -${target} AND -1`
}

/** Where the schema stands, for a role that does not own it. */
export function schemaVersion(schema: string): string {
  return `SELECT version::text AS version, compatible_from::text AS floor FROM ${schema}.schema_version()`
}

/**
 * Leaves what a migration has made to its owner alone: what a role can do is granted to it by name. PostgreSQL gives every new function to
 * PUBLIC, and ALTER DEFAULT PRIVILEGES gives new objects to whom it names. What was there before (`known`) keeps its grants, be it of
 * Lockstep or of an application in the same schema. A function that is replaced was there before.
 */
export function closeNewObjects(schema: string, known: string): string {
  return `
    DO $do$
    DECLARE
      statement text;
    BEGIN
      FOR statement IN
        SELECT format('REVOKE ALL ON %s FROM %s', object.name,
                      CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(granted.grantee)) END)
          FROM pg_namespace space
         CROSS JOIN LATERAL (
           SELECT 's' || space.oid AS id, format('SCHEMA %I', space.nspname) AS name, space.nspowner AS owned_by, space.nspacl AS acl
           UNION ALL
           SELECT 'c' || c.oid, format('%s %I.%I', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, space.nspname, c.relname),
                  c.relowner, c.relacl
             FROM pg_class c WHERE c.relnamespace = space.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
           UNION ALL
           SELECT 'p' || p.oid, format('ROUTINE %s', p.oid::regprocedure), p.proowner, COALESCE(p.proacl, acldefault('f', p.proowner))
             FROM pg_proc p WHERE p.pronamespace = space.oid
         ) AS object
         CROSS JOIN LATERAL (SELECT DISTINCT a.grantee FROM aclexplode(object.acl) AS a) AS granted
         WHERE space.nspname = ${quoteLiteral(schema)} AND granted.grantee <> object.owned_by
           AND object.id <> ALL (string_to_array('${known}', ','))
      LOOP
        EXECUTE statement;
      END LOOP;
    END
    $do$`
}

/** Whether the function by which the version is read is there: its schema was renamed where it fails all the same. */
export function hasSchemaVersion(schema: string): string {
  return `SELECT (to_regprocedure(${quoteLiteral(`${schema}.schema_version()`)}) IS NOT NULL)::text AS present`
}

export function recordMigration(schema: string): string {
  return `INSERT INTO ${schema}.migrations (version, name, compatible_from) VALUES ($1, $2, $3)`
}

/** The name and the hash of each function that was created. */
export function recordedFunctions(schema: string): string {
  return `SELECT name, hash FROM ${schema}.functions`
}

/** A function calls others that come after it by name: the server checks bodies only when they run. A test checks all of them. */
export function createFunctions(statements: string): string {
  return `SET LOCAL check_function_bodies = off; ${statements}`
}

export function recordFunctions(schema: string): string {
  return `INSERT INTO ${schema}.functions (name, hash) SELECT * FROM unnest($1::text[], $2::text[])
          ON CONFLICT (name) DO UPDATE SET hash = excluded.hash, replaced_at = excluded.replaced_at`
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
     WHERE r.relname !~ '^guard_[0-9]+_(unlocked|listed|refused)$'
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
     WHERE p.proname !~ '^(guard|outbox_import)_[0-9]+$'
    )
    SELECT head, body FROM object ORDER BY kind COLLATE "C", name COLLATE "C", place, head COLLATE "C";
    ROLLBACK`
}
