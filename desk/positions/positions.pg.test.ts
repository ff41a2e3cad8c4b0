import pg from 'pg'
import { afterAll, afterEach, describe, expect, test } from 'vitest'
import { leakGuard, testDatabase } from '../../tools/server/testDatabase.ts'
import { NO_FAULTS } from '../exchange/index.ts'
import { checkPositions } from './check.ts'
import { createPositions } from './index.ts'
import { positionKey } from './position.ts'
import { Reconciler } from './reconcile.ts'
import { openBranch, openExchange, QUICK, setFaults, tradeByHand } from './testing/positionBench.ts'

const database = await testDatabase()
leakGuard(database)
const admin = new pg.Pool({ connectionString: database.url, max: 2 })
afterAll(() => admin.end())
const exchange = await openExchange(database.url)
const [one, other] = [
  await openBranch(database.url, exchange.url, 'one'),
  await openBranch(database.url, exchange.url, 'other'),
]
const reconciler = new Reconciler(one.office)
const never = new AbortController().signal

afterEach(() => setFaults(exchange, NO_FAULTS))

/** Rounds until a round finds nothing to do. */
async function reconciled(): Promise<void> {
  await expect
    .poll(
      async () => {
        const { repairs } = await reconciler.round(never)
        await reconciler.settled()
        return repairs
      },
      { timeout: 15_000, interval: 20 },
    )
    .toBe(0)
}

async function violations(): Promise<string[]> {
  return (await checkPositions(admin)).flatMap((finding) => finding.violations)
}

async function statuses(symbol: string): Promise<string[]> {
  const text = 'SELECT status FROM lockstep_desk.positions WHERE symbol = $1 ORDER BY created_at'
  return (await admin.query<{ status: string }>(text, [symbol])).rows.map(({ status }) => status)
}

const signal = (symbol: string) => ({ symbol, side: 'long', quantity: 3 })

describe('a signal', () => {
  test('opens a position with its stop-loss, once', async () => {
    const first = await one.post('/positions', signal('AAA'))
    expect(first).toMatchObject({ status: 201, body: { symbol: 'AAA', status: 'active', side: 'long', quantity: 3 } })
    const second = await other.post('/positions', signal('AAA'))
    expect(second).toEqual({ status: 200, body: first.body })
    expect(await other.get('/positions/AAA')).toEqual({ status: 200, body: first.body })
    expect(await violations()).toEqual([])
  })

  test('many at once, in two processes: one creates, all get the same', async () => {
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, index) => (index % 2 ? one : other).post('/positions', signal('BBB'))),
    )
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(11)
    expect(new Set(answers.map(({ body }) => body['id'])).size).toBe(1)
    expect(await statuses('BBB')).toEqual(['active'])
    expect(await violations()).toEqual([])
  })

  test('holds no connection while the exchange is asked', async () => {
    const small = await openBranch(database.url, exchange.url, 'small', 2)
    const symbols = Array.from({ length: 20 }, (_, index) => `POOL${index}`)
    // All twenty have their row, and so wait for the exchange: with a pool of two, nobody may sit on a connection.
    await setFaults(exchange, { slowRate: 1, slowMs: 400 })
    const opening = symbols.map((symbol) => small.post('/positions', signal(symbol)))
    const begun = `SELECT count(*)::int AS n FROM lockstep_desk.positions WHERE symbol LIKE 'POOL%' AND status = 'opening'`
    await expect.poll(async () => (await admin.query<{ n: number }>(begun)).rows[0]?.n, { interval: 5 }).toBe(20)
    await expect.poll(() => small.desk.pool.idleCount, { interval: 5 }).toBe(small.desk.pool.totalCount)
    expect(small.desk.pool.waitingCount).toBe(0)
    expect((await Promise.all(opening)).map(({ status }) => status)).toEqual(symbols.map(() => 201))
    await small.close()
  })

  test('an order that is refused leaves nothing', async () => {
    expect(await one.post('/positions', signal('HALT1'))).toMatchObject({
      status: 422,
      body: { code: 'refused-by-exchange', reason: 'trading-halted' },
    })
    expect(await statuses('HALT1')).toEqual(['failed'])
    expect(await violations()).toEqual([])
  })

  test('a stop-loss that is refused closes the position again', async () => {
    expect(await one.post('/positions', signal('NOSTOP1'))).toMatchObject({
      status: 422,
      body: { code: 'refused-by-exchange', reason: 'no-stop-orders-here' },
    })
    expect(await statuses('NOSTOP1')).toEqual(['failed'])
    expect(await violations()).toEqual([])
    const net = `SELECT sum(change)::int AS net, count(*)::int AS n FROM lockstep_exchange.executions WHERE symbol = 'NOSTOP1'`
    expect((await admin.query(net)).rows).toEqual([{ net: 0, n: 2 }])
  })

  test('answers that are lost after the effect, and failures before it, change nothing', async () => {
    await setFaults(exchange, { lostRate: 0.5, failingRate: 0.3 })
    const symbols = Array.from({ length: 8 }, (_, index) => `LOST${index}`)
    const answers = await Promise.all(symbols.map((symbol) => one.post('/positions', signal(symbol))))
    await setFaults(exchange, NO_FAULTS)
    expect(answers.every(({ status }) => status === 201 || status === 503)).toBe(true)
    await reconciled()
    expect(await violations()).toEqual([])
    expect(await Promise.all(symbols.map(statuses))).toEqual(symbols.map(() => ['active']))
    const struck = (await (await fetch(`${exchange.url}/faults`)).json()) as { struck: { lost: number } }
    expect(struck.struck.lost).toBeGreaterThan(0)
  })

  test('without any answer the beginning stays, and is brought to its end later', async () => {
    await setFaults(exchange, { failingRate: 1 })
    expect(await one.post('/positions', signal('AWAY'))).toMatchObject({ status: 503, body: { code: 'exchange-away' } })
    expect(await statuses('AWAY')).toEqual(['opening'])
    await setFaults(exchange, NO_FAULTS)
    expect(await other.post('/positions', signal('AWAY'))).toMatchObject({ status: 201, body: { status: 'active' } })
    expect(await violations()).toEqual([])
  })

  test('what is not valid is refused with the field', async () => {
    expect(await one.post('/positions', { symbol: 'btc', side: 'up', quantity: 0 })).toMatchObject({
      status: 400,
      body: { code: 'invalid-request', fields: [{ field: 'symbol' }, { field: 'side' }, { field: 'quantity' }] },
    })
  })
})

describe('closing', () => {
  test('closes at the exchange, and may be asked for again', async () => {
    await one.post('/positions', signal('CLO'))
    const both = await Promise.all([one.post('/positions/CLO/close'), other.post('/positions/CLO/close')])
    expect(both.map(({ status, body }) => [status, body['status']])).toEqual([
      [200, 'closed'],
      [200, 'closed'],
    ])
    expect(await one.post('/positions', signal('CLO'))).toMatchObject({ status: 201 })
    expect(await statuses('CLO')).toEqual(['closed', 'active'])
    expect(await one.post('/positions/NEVER/close')).toMatchObject({ status: 404, body: { code: 'not-found' } })
    expect(await violations()).toEqual([])
  })

  test('one that got no answer is brought to its end by the reconciler', async () => {
    await one.post('/positions', signal('CLOA'))
    await setFaults(exchange, { failingRate: 1 })
    expect(await one.post('/positions/CLOA/close')).toMatchObject({ status: 503 })
    expect(await statuses('CLOA')).toEqual(['closing'])
    expect(await other.post('/positions', signal('CLOA'))).toMatchObject({ status: 409, body: { code: 'closing' } })
    await setFaults(exchange, NO_FAULTS)
    await reconciled()
    expect(await statuses('CLOA')).toEqual(['closed'])
    expect(await violations()).toEqual([])
  })
})

describe('the reconciler', () => {
  test('adopts what a person has traded, with a stop-loss', async () => {
    await tradeByHand(exchange, 'HAND', 'sell', 7)
    expect(await violations()).toHaveLength(1)
    await reconciled()
    expect((await one.get('/positions/HAND')).body).toMatchObject({
      origin: 'adopted',
      status: 'active',
      side: 'short',
      quantity: 7,
    })
    expect(await violations()).toEqual([])
  })

  test('follows what a person changes: larger, smaller, gone, the other way', async () => {
    await one.post('/positions', signal('CHANGE'))
    await tradeByHand(exchange, 'CHANGE', 'buy', 2)
    await reconciled()
    expect((await one.get('/positions/CHANGE')).body).toMatchObject({ quantity: 5, side: 'long' })
    await tradeByHand(exchange, 'CHANGE', 'sell', 5)
    await reconciled()
    expect(await statuses('CHANGE')).toEqual(['closed'])
    await one.post('/positions', signal('CHANGE'))
    await tradeByHand(exchange, 'CHANGE', 'sell', 4)
    await reconciled()
    expect(await statuses('CHANGE')).toEqual(['closed', 'closed', 'active'])
    expect((await one.get('/positions/CHANGE')).body).toMatchObject({ quantity: 1, side: 'short', origin: 'adopted' })
    expect(await violations()).toEqual([])
  })

  test('sets a stop-loss that was cancelled, and cancels one too many', async () => {
    const { body } = await one.post('/positions', signal('STOPS'))
    const cancel = { method: 'POST', body: JSON.stringify({ clientId: `${String(body['id'])}-stop-1` }) }
    await fetch(`${exchange.url}/cancel`, cancel)
    expect(await violations()).toEqual(['STOPS has 0 live stop orders'])
    await reconciled()
    expect(await violations()).toEqual([])
    const [held] = (await (await fetch(`${exchange.url}/positions?symbol=STOPS`)).json()) as { id: number }[]
    const order = { clientId: 'by-hand', symbol: 'STOPS', kind: 'stop', positionId: held?.id, price: 1 }
    await fetch(`${exchange.url}/orders`, { method: 'POST', body: JSON.stringify(order) })
    expect(await violations()).toEqual(['STOPS has 2 live stop orders'])
    await reconciled()
    expect(await violations()).toEqual([])
  })

  test('gets out of what cannot be guarded', async () => {
    await tradeByHand(exchange, 'NOSTOP2', 'buy')
    await reconciled()
    expect(await statuses('NOSTOP2')).toEqual(['failed'])
    expect(await violations()).toEqual([])
  })

  test('leaves a signal in flight alone, whenever it looks', async () => {
    const symbols = Array.from({ length: 6 }, (_, index) => `RACE${index}`)
    const stop = new AbortController()
    const busy = (async () => {
      // Round after round, without a pause: it looks at every moment of the way.
      while (!stop.signal.aborted) await reconciler.round(never)
      await reconciler.settled()
    })()
    const answers = await Promise.all(
      symbols.map((symbol, index) => (index % 2 ? one : other).post('/positions', signal(symbol))),
    )
    stop.abort()
    await busy
    expect(answers.map(({ status }) => status)).toEqual(symbols.map(() => 201))
    expect(await Promise.all(symbols.map(statuses))).toEqual(symbols.map(() => ['active']))
    expect(await violations()).toEqual([])
    expect(one.said).toEqual([])
  })

  test('runs in one process at a time, and in the other when that one ends', async () => {
    const system = createPositions({ ttlMs: 1500, everyMs: 50 })
    const first = new AbortController()
    const second = new AbortController()
    const holders = 'SELECT DISTINCT holder FROM lockstep_desk.position_rounds ORDER BY holder'
    const seen = async (): Promise<string[]> =>
      (await admin.query<{ holder: string }>(holders)).rows.map(({ holder }) => holder)
    const inOne = system.background?.(one.desk, first.signal)
    await expect.poll(seen, { timeout: 5000 }).toEqual(['one'])
    const inOther = system.background?.(other.desk, second.signal)
    first.abort()
    await expect.poll(seen, { timeout: 5000 }).toEqual(['one', 'other'])
    second.abort()
    await inOne
    await inOther
  })
})

describe('a creator that lost its lease', () => {
  test('gets what the next one made, and nothing is made twice', async () => {
    const { leases } = other.desk.lockstep
    await setFaults(exchange, { slowRate: 1, slowMs: QUICK.stopMs * 5 })
    const first = one.post('/positions', signal('TAKEN'))
    await expect.poll(() => statuses('TAKEN'), { interval: 5 }).toEqual(['opening'])
    await leases.forceRelease(positionKey('TAKEN'), { by: 'test', reason: 'stuck' })
    const second = await other.post('/positions', signal('TAKEN'))
    expect(new Set([(await first).status, second.status])).toEqual(new Set([200, 201]))
    expect((await first).body['id']).toBe(second.body['id'])
    expect(await violations()).toEqual([])
  })
})
