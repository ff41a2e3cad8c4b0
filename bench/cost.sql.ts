export const DATABASE_SIZE = 'SELECT pg_database_size(current_database())::float8 AS bytes'

/** So many processes that run the dispatcher, for a minute. */
export function addMembers(count: number): string {
  return `
    INSERT INTO lockstep.leases (name, slot, permits, fence, token, holder, acquired_at, expires_at, ttl_ms)
    SELECT 'Outbox:default:member:' || gen_random_uuid(), 0, 1, n, gen_random_uuid(), 'bench', clock_timestamp(),
           clock_timestamp() + interval '60 s', 60000
      FROM generate_series(1, ${count}) AS n`
}
export const REMOVE_MEMBERS = `DELETE FROM lockstep.leases WHERE holder = 'bench'`
export const ANALYZE_LEASES = 'VACUUM (ANALYZE) lockstep.leases'

/** What each process of a dispatcher asks every second or so. */
export const LOOK_FOR_MEMBERS = `SELECT * FROM lockstep.outbox_shares('default', 'Outbox:default:member:none')`

export function setFlush(on: boolean): string {
  return `ALTER SYSTEM SET synchronous_commit = ${on ? 'on' : 'off'}`
}
export const RELOAD = 'SELECT pg_reload_conf()'

/** The table of the locked transactions has so many rows. */
export const ACCOUNTS = 1000

/** Sessions of clients, beside the one that asks. */
export const COUNT_CLIENTS = `
  SELECT count(*)::int AS clients FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`
