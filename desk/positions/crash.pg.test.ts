import { fork } from 'node:child_process'
import { once } from 'node:events'
import pg from 'pg'
import { afterAll, expect, test } from 'vitest'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { checkPositions } from './check.ts'
import { Reconciler } from './reconcile.ts'
import { freshSymbol, openExchange, openPositionProcess, reconciled, tradeByHand } from './testing/positionBench.ts'
import { openTollgate, type Toll } from './testing/tollgate.ts'

const database = await testDatabase()
const admin = new pg.Pool({ connectionString: database.url, max: 2 })
afterAll(() => admin.end())
const exchange = await openExchange(database.url)
/** So long the others wait for one that is dead. */
const TTL_MS = 1500
const tolls: Toll[] = []
const tollgate = await openTollgate(exchange.url, tolls)
const branch = await openPositionProcess(database.url, exchange.url, 'survivor')
const reconciler = new Reconciler(branch.context)
const creator = nodeArguments(new URL('./testing/creator.ts', import.meta.url))

/** Runs a real process up to the toll, where it is killed. Gives what it managed to say. */
async function killAt(work: 'open' | 'close', symbol: string, kind: string, when: Toll['when']): Promise<unknown[]> {
  const said: unknown[] = []
  const args = [database.url, tollgate, String(TTL_MS), work, symbol]
  const child = fork(creator.at(-1)!, args, { execArgv: creator.slice(0, -1) })
  child.on('message', (message) => said.push(message))
  const gone = once(child, 'close')
  tolls.push({
    symbol,
    kind,
    when,
    strike: async () => {
      child.kill('SIGKILL')
      await gone
    },
  })
  await gone
  expect(child.signalCode).toBe('SIGKILL')
  return said
}

async function statusOf(symbol: string): Promise<string[]> {
  const text = 'SELECT status FROM lockstep_desk.positions WHERE symbol = $1'
  return (await admin.query<{ status: string }>(text, [symbol])).rows.map(({ status }) => status)
}

/** Where a creator dies, and what the exchange has done by then. */
const STEPS = [
  ['the row and the entry order', 'market', 'before', 0],
  ['the entry order and its answer', 'market', 'after', 1],
  ['entry and stop-loss', 'stop', 'before', 1],
  ['the stop-loss and the end', 'stop', 'after', 1],
] as const

async function executed(symbol: string): Promise<number | null> {
  const text = 'SELECT client_id FROM lockstep_exchange.executions WHERE symbol = $1'
  return (await admin.query(text, [symbol])).rowCount
}

async function violations(): Promise<string[]> {
  return (await checkPositions(admin)).flatMap((finding) => finding.violations)
}

test('finishes a signal once after a kill between any two steps', async () => {
  // All at once, each with a symbol of its own.
  const symbols = await Promise.all(
    STEPS.map(async ([between, kind, when, done]) => {
      const symbol = freshSymbol('DIES')
      expect(await killAt('open', symbol, kind, when)).toEqual([])
      expect([between, await statusOf(symbol), await executed(symbol)]).toEqual([between, ['opening'], done])
      return [between, symbol] as const
    }),
  )
  await reconciled(reconciler)
  for (const [between, symbol] of symbols) {
    expect([between, await statusOf(symbol), await executed(symbol)]).toEqual([between, ['active'], 1])
  }
  expect(await violations()).toEqual([])
})

test('finishes a signal after a kill between entry and stop-loss, also after a retry or a manual trade', async () => {
  const [again, sold] = [freshSymbol('AGAIN'), freshSymbol('SOLD')]
  await Promise.all([killAt('open', again, 'stop', 'before'), killAt('open', sold, 'stop', 'before')])
  await tradeByHand(exchange, sold, 'sell', 2)
  const answer = await branch.post('/positions', { symbol: again, side: 'long', quantity: 9 })
  expect(answer).toMatchObject({ status: 201, body: { quantity: 2, status: 'active' } })
  await reconciled(reconciler)
  expect(await statusOf(again)).toEqual(['active'])
  expect(await statusOf(sold)).toEqual(['failed'])
  expect(await violations()).toEqual([])
})

test('closes a position once after a kill before or after the effect', async () => {
  const symbols = await Promise.all(
    (['before', 'after'] as const).map(async (when) => {
      const symbol = freshSymbol('CLOSES')
      await branch.post('/positions', { symbol, side: 'long', quantity: 1 })
      await killAt('close', symbol, 'close', when)
      expect(await statusOf(symbol)).toEqual(['closing'])
      return symbol
    }),
  )
  await reconciled(reconciler)
  expect(await Promise.all(symbols.map(statusOf))).toEqual([['closed'], ['closed']])
  expect(await violations()).toEqual([])
})
