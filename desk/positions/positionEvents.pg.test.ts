import { afterAll, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Metrics } from '../http/metrics.ts'
import { logEvents } from '../logEvents.ts'
import { Reconciler } from './reconcile.ts'
import { freshSymbol, openExchange, openPositionProcess, reconciled, tradeByHand } from './testing/positionBench.ts'

const database = await testDatabase()
const exchange = await openExchange(database.url)
const one = await openPositionProcess(database.url, exchange.url, 'one')
const metrics = new Metrics(one.desk, { database: false })
const said: string[] = []
const stop = logEvents({ say: (line) => said.push(line) })
afterAll(() => {
  stop()
  metrics.close()
})

/** The value of a series, whichever process and other labels it has. */
async function counted(series: RegExp): Promise<number> {
  const line = (await metrics.text()).split('\n').find((each) => series.test(each))
  return Number(line?.split(' ').at(-1))
}

test('counts and logs rounds, adoptions, repairs and avoided duplicates', async () => {
  const reconciler = new Reconciler(one.context)
  const symbol = freshSymbol('SEEN')
  const duplicates = /^desk_position_duplicates_avoided_total\{.*path="signal"/
  expect(await counted(duplicates)).toBe(0)
  const signal = { symbol, side: 'long', quantity: 3 }
  await one.post('/positions', signal)
  expect((await one.post('/positions', signal)).status).toBe(200)
  expect(await counted(duplicates)).toBe(1)
  expect(said.filter((line) => line.includes('duplicate avoided, the signal'))).toHaveLength(1)

  const byHand = freshSymbol('HAND')
  await tradeByHand(exchange, byHand, 'sell', 7)
  await reconciled(reconciler)
  expect(await counted(/^desk_position_adoptions_total/)).toBe(1)
  expect(said.filter((line) => line.includes(byHand))).toEqual([expect.stringContaining('adopted')])

  await tradeByHand(exchange, symbol, 'buy', 2)
  await reconciled(reconciler)
  expect(await counted(/^desk_reconciler_repairs_total\{.*outcome="repaired"/)).toBe(1)
  expect(await counted(/^desk_reconciler_repairs_total\{.*outcome="failed"/)).toBe(0)
  expect(said.filter((line) => line.includes('repaired by the reconciler'))).toHaveLength(1)

  const end = new AbortController()
  const running = reconciler.run(end.signal)
  await expect.poll(() => counted(/^desk_reconciler_round_seconds_count/)).toBeGreaterThan(1)
  end.abort()
  await running
})

test('logs a wait for a lease that is slow', async () => {
  const symbol = freshSymbol('SLOW')
  const { lockstep } = one.desk
  const held = await lockstep.leases.acquire(`Position:${symbol}`, { holder: 'another' })
  const waiting = lockstep.lease(`Position:${symbol}`, { waitMs: 60_000 }, () => Promise.resolve())
  await expect.poll(() => said.filter((line) => line.includes(symbol))).toHaveLength(1)
  expect(said.at(-1)).toContain('the lease is contended, waited')
  await held.release()
  await waiting
})
