import { expect, test } from 'vitest'
import { serverBench } from './testing/serverBench.ts'

const bench = serverBench()

/** What VACUUM removed is replayed before the promotion, and waits for every snapshot that is older. */
test('promotes a standby that has to replay a VACUUM first', async () => {
  const primary = await bench.start()
  const { pool } = bench.open(primary.url())
  await pool.query('CREATE TABLE notes (text text)')
  await pool.query(`INSERT INTO notes SELECT 'a note' FROM generate_series(1, 1000)`)
  const standby = await bench.standby(primary)
  await bench.caughtUp(primary)
  const there = bench.open(standby.server.url()).pool
  await there.query('SELECT pg_wal_replay_pause()')
  await expect
    .poll(async () => (await there.query('SELECT pg_get_wal_replay_pause_state() AS state')).rows)
    .toEqual([{ state: 'paused' }])
  await pool.query('DELETE FROM notes')
  await pool.query('VACUUM notes')
  const received = 'SELECT FROM pg_stat_replication WHERE flush_lsn >= pg_current_wal_flush_lsn()'
  await expect.poll(async () => (await pool.query(received)).rowCount).toBe(1)
  await standby.promote()
  expect((await there.query('SELECT count(*)::int AS notes FROM notes')).rows).toEqual([{ notes: 0 }])
  await there.query(`INSERT INTO notes VALUES ('written')`)
})
