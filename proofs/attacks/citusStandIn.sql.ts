/** What the attack reads of a coordinator's catalog. Its tables are not distributed. */
export const STAND_IN: readonly string[] = [
  `SET allow_system_table_mods = on;
   CREATE TABLE pg_catalog.pg_dist_local_group (groupid integer);
   CREATE TABLE pg_catalog.pg_dist_node (nodeid serial, nodename text, nodeport integer, isactive boolean, shouldhaveshards boolean, groupid integer);
   CREATE TABLE pg_catalog.pg_dist_shard (shardid bigint, logicalrelid regclass);
   CREATE TABLE pg_catalog.pg_dist_placement (shardid bigint, groupid integer)`,
  'INSERT INTO pg_catalog.pg_dist_local_group VALUES (0)',
  `CREATE FUNCTION citus_version() RETURNS text LANGUAGE sql AS $$ SELECT 'a stand-in' $$`,
  `CREATE FUNCTION create_distributed_table(distributed regclass, by text) RETURNS void LANGUAGE sql AS $$
     INSERT INTO pg_catalog.pg_dist_shard VALUES (1, distributed) $$`,
  'INSERT INTO pg_catalog.pg_dist_placement VALUES (1, 1)',
]

export function standInWorker(host: string, port: number): string {
  return `INSERT INTO pg_catalog.pg_dist_node (nodename, nodeport, isactive, shouldhaveshards, groupid) VALUES ('${host}', ${port}, true, true, 1)`
}
