import { expect, test } from 'vitest'
import { serverBench } from '../../tools/server/testing/serverBench.ts'
import type { Finding } from '../index.ts'

const bench = serverBench()

test('reports what an acknowledged commit is worth, and a statement that does not hold', async () => {
  const primary = await bench.start()
  const { lockstep, pool } = bench.open(primary.url())
  await lockstep.migrate()
  const replication = async (): Promise<Finding | undefined> =>
    (await lockstep.doctor({ trial: false })).find(({ name }) => name === 'replication')
  expect(await replication()).toMatchObject({
    level: 'ok',
    found: expect.stringContaining('no standby is connected'),
  })
  const standby = await bench.standby(primary)
  await expect.poll(async () => (await replication())?.found).toContain('standbys: 1, 0 of them synchronous')
  expect((await replication())?.found).toContain('a failover can lose the last ones')
  await pool.query(`SELECT pg_create_physical_replication_slot('forgotten', true)`)
  expect((await replication())?.found).toMatch(/; slots: 1, 1 of them not in use, which retain \d+ bytes of the log\./)
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
