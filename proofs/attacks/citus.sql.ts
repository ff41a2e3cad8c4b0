/** Null where the server is not a node of a Citus cluster. */
export const CITUS_CATALOG = `SELECT to_regclass('pg_catalog.pg_dist_node')::text AS catalog`

export const CITUS_NODE = `
  SELECT citus_version() AS version, (SELECT groupid FROM pg_catalog.pg_dist_local_group)::int AS own`

/** Those that have shards, beside the coordinator. */
export const WORKERS = `
  SELECT nodename AS host, nodeport::int AS port FROM pg_catalog.pg_dist_node
   WHERE isactive AND shouldhaveshards AND groupid <> 0 ORDER BY nodeid`

/** On how many nodes the accounts are. */
export const NODES_OF_ACCOUNTS = `
  SELECT count(DISTINCT p.groupid)::int AS nodes
    FROM pg_catalog.pg_dist_shard s JOIN pg_catalog.pg_dist_placement p USING (shardid)
   WHERE s.logicalrelid = 'citus_attack_accounts'::regclass`

export const CREATE: readonly string[] = [
  'CREATE TABLE citus_attack_accounts (id integer PRIMARY KEY, balance bigint NOT NULL)',
  `CREATE TABLE citus_attack_trades (
     account integer NOT NULL, id uuid NOT NULL, amount integer NOT NULL, PRIMARY KEY (account, id))`,
  'CREATE TABLE citus_attack_counters (id integer PRIMARY KEY, value integer NOT NULL, holder text)',
  `SELECT create_distributed_table('citus_attack_accounts', 'id')`,
  `SELECT create_distributed_table('citus_attack_trades', 'account')`,
  `SELECT create_distributed_table('citus_attack_counters', 'id')`,
]

export const DROP: readonly string[] = [
  'DROP TABLE IF EXISTS citus_attack_accounts, citus_attack_trades, citus_attack_counters',
  'DROP SCHEMA IF EXISTS lockstep_citus_attack CASCADE',
]

export function fillAccounts(accounts: number, balance: number): string {
  return `INSERT INTO citus_attack_accounts SELECT n, ${balance} FROM generate_series(1, ${accounts}) AS n`
}
export function fillCounters(counters: number): string {
  return `INSERT INTO citus_attack_counters SELECT n, 0 FROM generate_series(1, ${counters}) AS n`
}

export const READ_BALANCE = 'SELECT balance::int AS balance FROM citus_attack_accounts WHERE id = $1'
/** What was read and decided, not what is there: without a lock, updates get lost. */
export const WRITE_BALANCE = 'UPDATE citus_attack_accounts SET balance = $2 WHERE id = $1'
export const INSERT_TRADE = 'INSERT INTO citus_attack_trades (account, id, amount) VALUES ($1, $2, $3)'

export const TOTAL = `
  SELECT COALESCE(sum(balance), 0)::int AS total, count(*) FILTER (WHERE balance < 0)::int AS negative
    FROM citus_attack_accounts`
export const TRADES = 'SELECT id::text AS id FROM citus_attack_trades'

export const READ_COUNTER = 'SELECT value FROM citus_attack_counters WHERE id = $1'
export const WRITE_COUNTER = 'UPDATE citus_attack_counters SET value = $2 WHERE id = $1'
export const COUNTED = 'SELECT COALESCE(sum(value), 0)::int AS counted FROM citus_attack_counters'

/** Ends one session of the attack, by chance. */
export const END_A_SESSION = `
  SELECT count(pg_terminate_backend(pid))::int AS ended FROM (
    SELECT pid FROM pg_stat_activity
     WHERE application_name = $1 AND pid <> pg_backend_pid() AND state <> 'idle' ORDER BY random() LIMIT 1) AS struck`
