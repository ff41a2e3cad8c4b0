/** What the load writes. No unique key: what happens twice is there twice. The timeline says which server wrote it. */
export const MAKE_TABLES = `
  CREATE TABLE marks (
    mark text NOT NULL,
    timeline int NOT NULL DEFAULT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int
  );
  CREATE TABLE made_once (name text NOT NULL);
  CREATE TABLE paid (name text NOT NULL);`

export const WRITE_MARK = 'INSERT INTO marks (mark) VALUES ($1) RETURNING timeline'
export const ALL_MARKS = 'SELECT mark FROM marks'
export const FIND_ONCE = 'SELECT name FROM made_once WHERE name = $1'
export const MAKE_ONCE = 'INSERT INTO made_once (name) VALUES ($1)'
export const MADE_TWICE = `SELECT count(*)::int AS count FROM (SELECT FROM made_once GROUP BY name HAVING count(*) > 1) AS twice`
export const PAY = 'INSERT INTO paid (name) VALUES ($1)'
export const PAID = 'SELECT name, count(*)::int AS count FROM paid GROUP BY name'
export const ALL_EVENTS =
  'SELECT topic, key, seq::int AS seq, uuid::text AS id FROM lockstep.outbox_events ORDER BY topic, key, seq'
export const MAKE_RECEIVED = 'CREATE TABLE received (topic text, key text, seq int, id text)'
export const RECEIVE = 'INSERT INTO received (topic, key, seq, id) VALUES ($1, $2, $3, $4)'
export const ALL_RECEIVED = 'SELECT topic, key, seq, id FROM received'
export const EPOCHS = 'SELECT kind, count(*)::int AS count FROM lockstep.epochs GROUP BY kind'
export const SYNCHRONOUS_COMMIT_OFF = 'ALTER SYSTEM SET synchronous_commit = off'
export const RELOAD = 'SELECT pg_reload_conf()'
export const FORGET_PRIMARY = `ALTER SYSTEM SET primary_conninfo = ''`
export const RECEIVES = 'SELECT FROM pg_stat_wal_receiver'
export const CAUGHT_UP = 'SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_flush_lsn()'
export const WAIT_FOR_NOBODY = 'ALTER SYSTEM RESET synchronous_standby_names'
export const WAITS_FOR_STANDBY = `SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'`
export const RESTORE_POINT = `SELECT pg_create_restore_point('here')`
/** The segment that has it is complete, and can be copied. */
export const SWITCH_WAL = 'SELECT pg_switch_wal()'
