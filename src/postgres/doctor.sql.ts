import { CREATORS } from './postgres.sql.ts'

/** The questions that the doctor asks. */

/** Settings and state of the server, in one row. */
export const EXAMINE = `
  SELECT current_setting('server_version_num') AS version,
         current_setting('server_version') AS release,
         pg_is_in_recovery()::text AS standby,
         pg_backend_pid()::text AS pid,
         (extract(epoch FROM clock_timestamp()) * 1000)::text AS clock,
         (current_setting('max_locks_per_transaction')::int
           * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int))::text AS lockroom,
         current_setting('max_locks_per_transaction') AS lockspertransaction,
         (SELECT count(*) FROM pg_locks WHERE NOT fastpath)::text AS locks,
         current_setting('idle_in_transaction_session_timeout') AS idletimeout,
         current_setting('tcp_keepalives_idle') AS keepaliveidle,
         current_setting('tcp_user_timeout') AS usertimeout,
         current_setting('client_connection_check_interval') AS clientcheck,
         current_setting('default_transaction_isolation') AS isolation,
         current_setting('synchronous_commit') AS synchronous,
         current_setting('max_connections') AS maxconnections`

/** Who holds back vacuum: sessions, prepared transactions and replication slots with an old snapshot. */
export function oldSnapshotHolders(oldAfterMs: number): string {
  const before = `clock_timestamp() - interval '${Math.floor(oldAfterMs)} milliseconds'`
  return `
    SELECT 'backend ' || pid || coalesce(' (' || nullif(application_name, '') || ')', '') || coalesce(', ' || state, '') AS who,
           floor(extract(epoch FROM clock_timestamp() - xact_start))::text AS age
      FROM pg_stat_activity
     WHERE xact_start < ${before} AND pid <> pg_backend_pid() AND backend_type = 'client backend'
    UNION ALL
    SELECT 'prepared transaction ' || gid, floor(extract(epoch FROM clock_timestamp() - prepared))::text
      FROM pg_prepared_xacts WHERE prepared < ${before}
    UNION ALL
    SELECT 'replication slot ' || slot_name || ' (inactive)', '0'
      FROM pg_replication_slots WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)
    LIMIT 10`
}

/** Sessions that are in no transaction and hold an advisory lock all the same. */
export const IDLE_LOCK_HOLDERS = `
  SELECT DISTINCT 'backend ' || a.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') AS who
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
   WHERE l.locktype = 'advisory' AND l.granted AND a.state = 'idle' AND a.datname = current_database()
   LIMIT 10`

/** What the role can do in the schema, from the catalogs: they need no grant. `schema` is a literal. No row: there is no schema. */
export function rightsInSchema(schema: string): string {
  return `
    WITH space AS (SELECT oid, nspowner, nspacl FROM pg_namespace WHERE nspname = ${schema})
    SELECT current_user::text AS role, pg_has_role(current_user, s.nspowner, 'USAGE')::text AS owner, ${CREATORS} AS creators,
           has_schema_privilege(s.oid, 'USAGE')::text AS usage, has_schema_privilege(s.oid, 'CREATE')::text AS create,
           COALESCE((SELECT json_agg(format('%s(%s)', p.proname, pg_get_function_identity_arguments(p.oid)))
              FROM pg_proc p WHERE p.pronamespace = s.oid AND NOT has_function_privilege(p.oid, 'EXECUTE')), '[]')::text AS denied,
           COALESCE((SELECT json_agg(format('%s(%s)', p.proname, pg_get_function_identity_arguments(p.oid)))
              FROM pg_proc p WHERE p.pronamespace = s.oid AND has_function_privilege(p.oid, 'EXECUTE')), '[]')::text AS allowed,
           COALESCE((SELECT json_agg(format('%s on %s', r.name, c.relname) ORDER BY c.relname, r.name)
              FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS r(name)
             WHERE c.relnamespace = s.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
               AND (has_table_privilege(c.oid, r.name)
                    OR (r.name IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES') AND has_any_column_privilege(c.oid, r.name)))), '[]')::text AS tables,
           COALESCE((SELECT json_agg(format('%s on %s', r.name, c.relname) ORDER BY c.relname, r.name)
              FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'UPDATE', 'USAGE']) AS r(name)
             WHERE c.relnamespace = s.oid AND c.relkind = 'S' AND has_sequence_privilege(c.oid, r.name)), '[]')::text AS sequences
      FROM space s`
}

/** Sessions whose role cannot use the schema and that hold one of Lockstep's numbers. */
export function foreignLockHolders(schema: string): string {
  return `SELECT pid::text AS pid, role, application, id::text AS id, held::text AS held, what FROM ${schema}.foreign_lock_holders(11)`
}

export function lockIdProbe(schema: string, key: string): string {
  return `SELECT ${schema}.lock_id('lock', ${key})::text AS id`
}

export const BACKEND_PID = 'SELECT pg_backend_pid()::text AS pid'

/** Keeps a server connection of a transaction pooler busy until ROLLBACK. */
export const BEGIN_AND_PID = `BEGIN; ${BACKEND_PID}`

export const ROLLBACK = 'ROLLBACK'

/** The guards of tables, and whether their triggers are there. */
export function guardStates(schema: string): string {
  return `SELECT relation, key, state FROM ${schema}.guard_list()`
}
