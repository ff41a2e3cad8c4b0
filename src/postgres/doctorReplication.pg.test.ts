import pg from 'pg'
import { afterEach, expect, test } from 'vitest'
import { startPostgres } from '../../tools/server/postgres.ts'
import { startStandby } from '../../tools/server/standby.ts'
import { type Finding, Lockstep } from '../index.ts'

let ends: (() => unknown)[] = []
afterEach(async () => {
  const ending = ends.toReversed()
  ends = []
  for (const end of ending) await end()
})

test('reports what an acknowledged commit is worth, and a statement that does not hold', async () => {
  const primary = await startPostgres()
  ends.push(() => primary.stop('immediate'))
  const pool = new pg.Pool({ connectionString: primary.url(), max: 4 })
  pool.on('error', () => undefined)
  const lockstep = new Lockstep(pool)
  ends.push(async () => {
    await lockstep.close()
    await pool.end()
  })
  await lockstep.migrate()
  const replication = async (): Promise<Finding | undefined> =>
    (await lockstep.doctor({ trial: false })).find(({ name }) => name === 'replication')
  expect(await replication()).toMatchObject({
    level: 'ok',
    found: expect.stringContaining('no standby is connected'),
  })
  const standby = await startStandby(primary)
  ends.push(() => standby.stop('immediate'))
  await expect.poll(async () => (await replication())?.found).toContain('standbys: 1, 0 of them synchronous')
  expect((await replication())?.found).toContain('a failover can lose the last ones')
  await pool.query(`SELECT pg_create_physical_replication_slot('forgotten', true)`)
  expect((await replication())?.found).toMatch(/; slots: 1, 1 of them not in use, which keep \d+ bytes of the log\./)
  await pool.query(`SELECT pg_drop_replication_slot('forgotten')`)
  expect((await replication())?.found).not.toContain('slots')
  await lockstep.migrate({ synchronousFailover: true })
  expect(await replication()).toMatchObject({ level: 'fail' })
  await standby.makeSynchronous()
  expect(await replication()).toMatchObject({
    level: 'ok',
    found: expect.stringContaining('of this server and of a standby. New leases do not wait'),
  })
})
