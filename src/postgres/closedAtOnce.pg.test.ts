import postgres from 'postgres'
import { expect, test } from 'vitest'
import { openAtOnce } from '../../proofs/checkers/openAtOnce.ts'
import { cleanUps } from '../../tools/server/testing/cleanUps.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Lockstep } from '../lockstep.ts'
import { startProxy } from '../testing/index.ts'

const database = await testDatabase()
const cleanUp = cleanUps()

const POOL_SIZE = 4
const ROUNDS = 15
/** A place that is lost times out for ever; one that is not is open long before, also on a busy machine. */
const WAIT_MS = 20_000

test('a postgres.js pool keeps its places when all its connections are closed at once, some of them in a transaction', async () => {
  const { hostname, port } = new URL(database.url)
  const proxy = await startProxy({ targetHost: hostname, targetPort: Number(port || 5432) })
  const sql = postgres(proxy.url(database.url), {
    max: POOL_SIZE,
    backoff: () => 0.005,
    connect_timeout: 5,
    onnotice() {},
  })
  const lockstep = new Lockstep(sql, { waitMs: WAIT_MS })
  cleanUp(async () => {
    await lockstep.close()
    await sql.end({ timeout: 1 })
    await proxy.close()
  })
  const allAtOnce = (): Promise<number> =>
    openAtOnce(POOL_SIZE, WAIT_MS, async (held) => {
      await lockstep.transaction({}, held)
    })
  expect(await allAtOnce()).toBe(POOL_SIZE)
  for (let round = 0; round < ROUNDS; round++) {
    const atWork = 1 + (round % 3)
    let begun = 0
    const work = Array.from({ length: atWork }, () =>
      lockstep.transaction({}, async (tx) => {
        // With an id the outcome of a lost one is looked up, at once and on another connection.
        await tx.query('SELECT pg_current_xact_id()')
        if (++begun > atWork) return
        if (begun === atWork) setImmediate(() => proxy.cutAll())
        await tx.query('SELECT pg_sleep(60)')
      }),
    )
    await Promise.all(work)
    expect(await allAtOnce(), `round ${round}`).toBe(POOL_SIZE)
  }
})
