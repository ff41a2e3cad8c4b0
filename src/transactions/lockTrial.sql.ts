/** The questions of a trial, beside the opening messages that every transaction sends. */

/**
 * A read as an application makes it. No volatile function and no table of the catalog: these are what a balancer keeps at the primary.
 */
export const PLAIN_READ = 'SELECT pg_backend_pid()::text AS pid'

/** Not null where the server is a node of a Citus cluster. */
export const CITUS_CATALOG = `SELECT to_regclass('pg_catalog.pg_dist_local_group')::text AS citus`

/** The coordinator is group 0. */
export const CITUS_GROUP = 'SELECT groupid::text AS own FROM pg_catalog.pg_dist_local_group'

/** What answers, for people. */
export const DESCRIBE_SERVER = `
  SELECT split_part(version(), ' on ', 1) AS version,
         coalesce(host(inet_server_addr()) || ':' || inet_server_port(), 'a local socket') AS address,
         pg_postmaster_start_time()::text AS started`

/** Answered by Pgpool-II itself; a syntax error everywhere else. */
export const PGPOOL_BALANCES = 'PGPOOL SHOW load_balance_mode'
export const PGPOOL_NODES = 'SHOW pool_nodes'
