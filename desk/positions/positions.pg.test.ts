import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { afterAll, afterEach, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { NO_FAULTS } from '../exchange/index.ts'
import { checkPositions } from './check.ts'
import { createPositions } from './index.ts'
import { positionKey } from './position.ts'
import { Reconciler } from './reconcile.ts'
import {
  freshSymbol,
  openExchange,
  openPositionProcess,
  reconciled,
  setFaults,
  tradeByHand,
} from './testing/positionBench.ts'

const database = await testDatabase()
const admin = new pg.Pool({ connectionString: database.url, max: 2 })
afterAll(() => admin.end())
const exchange = await openExchange(database.url)
const [one, other] = [
  await openPositionProcess(database.url, exchange.url, 'one'),
  await openPositionProcess(database.url, exchange.url, 'other'),
]
const impatient = await openPositionProcess(database.url, exchange.url, 'impatient', {
  retryBudget: { tryMs: 1000, totalMs: 1000 },
  // It gives up after 375 ms at the earliest.
  maxAgeMs: 200,
})
const hasty = await openPositionProcess(database.url, exchange.url, 'hasty', {
  retryBudget: { tryMs: 1000, totalMs: 1000 },
})
const reconciler = new Reconciler(one.context)
const never = new AbortController().signal

afterEach(() => setFaults(exchange, NO_FAULTS))

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
    const symbol = freshSymbol('AAA')
    const first = await one.post('/positions', signal(symbol))
    expect(first).toMatchObject({ status: 201, body: { symbol, status: 'active', side: 'long', quantity: 3 } })
    const second = await other.post('/positions', signal(symbol))
    expect(second).toEqual({ status: 200, body: first.body })
    // Also where it asks for something else: the answer says what is open.
    expect(await other.post('/positions', { symbol, side: 'short', quantity: 9 })).toEqual(second)
    expect(await other.get(`/positions/${symbol}`)).toEqual({ status: 200, body: first.body })
    expect(await violations()).toEqual([])
  })

  test('creates one position for many concurrent signals in two processes', async () => {
    const symbol = freshSymbol('BBB')
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, index) => (index % 2 ? one : other).post('/positions', signal(symbol))),
    )
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(11)
    expect(new Set(answers.map(({ body }) => body['id'])).size).toBe(1)
    expect(await statuses(symbol)).toEqual(['active'])
    expect(await violations()).toEqual([])
  })

  test('holds no connection while it calls the exchange', async () => {
    const small = await openPositionProcess(database.url, exchange.url, 'small', { max: 2 })
    const symbols = Array.from({ length: 20 }, () => freshSymbol('POOL'))
    // All twenty have their row, and so wait for the exchange: with a pool of two, no call can keep a connection.
    await setFaults(exchange, { slowRate: 1, slowMs: 2000 })
    const opening = symbols.map((symbol) => small.post('/positions', signal(symbol)))
    const begun = `SELECT count(*)::int AS n FROM lockstep_desk.positions WHERE symbol = ANY ($1) AND status = 'opening'`
    await expect.poll(async () => (await admin.query<{ n: number }>(begun, [symbols])).rows[0]?.n).toBe(20)
    await setFaults(exchange, NO_FAULTS)
    await expect.poll(() => small.desk.pool.idleCount).toBe(small.desk.pool.totalCount)
    expect(small.desk.pool.waitingCount).toBe(0)
    expect((await admin.query(begun, [symbols])).rows).toEqual([{ n: 20 }])
    expect((await Promise.all(opening)).map(({ status }) => status)).toEqual(symbols.map(() => 201))
    await small.close()
  })

  test('leaves nothing behind after a refused order', async () => {
    const symbol = freshSymbol('HALT')
    expect(await one.post('/positions', signal(symbol))).toMatchObject({
      status: 422,
      body: { code: 'refused-by-exchange', reason: 'trading-halted' },
    })
    expect(await statuses(symbol)).toEqual(['failed'])
    expect(await violations()).toEqual([])
  })

  test('closes the position when its stop-loss is refused', async () => {
    const symbol = freshSymbol('NOSTOP')
    expect(await one.post('/positions', signal(symbol))).toMatchObject({
      status: 422,
      body: { code: 'refused-by-exchange', reason: 'no-stop-orders-here' },
    })
    expect(await statuses(symbol)).toEqual(['failed'])
    expect(await violations()).toEqual([])
    const net = `SELECT sum(change)::int AS net, count(*)::int AS n FROM lockstep_exchange.executions WHERE symbol = $1`
    expect((await admin.query(net, [symbol])).rows).toEqual([{ net: 0, n: 2 }])
  })

  test('gives the same result with lost answers and failures of the exchange', async () => {
    await setFaults(exchange, { lostRate: 0.5, failingRate: 0.3 })
    const symbols = Array.from({ length: 8 }, () => freshSymbol('LOST'))
    const answers = await Promise.all(symbols.map((symbol) => one.post('/positions', signal(symbol))))
    await setFaults(exchange, NO_FAULTS)
    expect(answers.every(({ status }) => status === 201 || status === 503)).toBe(true)
    await reconciled(reconciler)
    expect(await violations()).toEqual([])
    expect(await Promise.all(symbols.map(statuses))).toEqual(symbols.map(() => ['active']))
    const struck = (await (await fetch(`${exchange.url}/faults`)).json()) as { struck: { lost: number } }
    expect(struck.struck.lost).toBeGreaterThan(0)
  })

  test('does not execute a signal later that was answered 503; the next signal opens its own position', async () => {
    const [left, next] = [freshSymbol('AWAY'), freshSymbol('AWAY')]
    await setFaults(exchange, { failingRate: 1 })
    for (const symbol of [left, next]) {
      expect(await impatient.post('/positions', signal(symbol))).toMatchObject({
        status: 503,
        body: { code: 'exchange-away' },
      })
      expect(await statuses(symbol)).toEqual(['opening'])
    }
    await setFaults(exchange, NO_FAULTS)
    expect(await other.post('/positions', signal(next))).toMatchObject({ status: 201, body: { status: 'active' } })
    await reconciled(reconciler)
    expect([await statuses(left), await statuses(next)]).toEqual([['failed'], ['failed', 'active']])
    const executed = 'SELECT symbol FROM lockstep_exchange.executions WHERE symbol = ANY ($1)'
    expect((await admin.query(executed, [[left, next]])).rows).toEqual([{ symbol: next }])
    expect(await violations()).toEqual([])
  })

  test('keeps what was executed in time although its answer was lost, and sets its stop-loss', async () => {
    const symbol = freshSymbol('INTIME')
    await setFaults(exchange, { lostRate: 1 })
    expect((await hasty.post('/positions', signal(symbol))).status).toBe(503)
    await setFaults(exchange, NO_FAULTS)
    await reconciled(reconciler)
    expect(await statuses(symbol)).toEqual(['active'])
    expect(await violations()).toEqual([])
  })

  test('opens one position for each symbol and exchange', async () => {
    const symbol = freshSymbol('TWO')
    const answers = await Promise.all(
      ['north', 'south', 'north', 'south'].map((name, index) =>
        (index < 2 ? one : other).post('/positions', { ...signal(symbol), exchange: name }),
      ),
    )
    const of = (name: string) => answers.filter(({ body }) => body['exchange'] === name)
    for (const name of ['north', 'south']) {
      expect(new Set(of(name).map(({ status }) => status))).toEqual(new Set([200, 201]))
      expect(new Set(of(name).map(({ body }) => body['id'])).size).toBe(1)
    }
    expect(await statuses(symbol)).toEqual(['active', 'active'])
    expect(await one.post(`/positions/${symbol}/close?exchange=south`)).toMatchObject({
      status: 200,
      body: { exchange: 'south', status: 'closed' },
    })
    expect(await one.get(`/positions/${symbol}`)).toMatchObject({ body: { exchange: 'north', status: 'active' } })
    const row = `INSERT INTO lockstep_desk.positions (id, symbol, exchange, side, quantity, status, origin)
                 VALUES (gen_random_uuid(), $1, 'north', 'long', 1, 'opening', 'signal')`
    await expect(admin.query(row, [symbol])).rejects.toMatchObject({ constraint: 'positions_one_open_per_exchange' })
    expect(await violations()).toEqual([])
  })

  test('rejects an unknown exchange and an unknown field, and names them', async () => {
    const symbol = freshSymbol('WHERE')
    expect(await one.post('/positions', { ...signal(symbol), exchange: 'moon' })).toMatchObject({
      status: 400,
      body: { code: 'invalid-request', fields: [{ field: 'exchange' }] },
    })
    expect(await one.post('/positions', { ...signal(symbol), leverage: 5 })).toMatchObject({
      status: 400,
      body: { code: 'invalid-request', fields: [{ field: 'leverage', message: 'is not known here' }] },
    })
    expect(await statuses(symbol)).toEqual([])
  })

  test('rejects invalid input and names the field', async () => {
    expect(await one.post('/positions', { symbol: 'btc', side: 'up', quantity: 0 })).toMatchObject({
      status: 400,
      body: { code: 'invalid-request', fields: [{ field: 'symbol' }, { field: 'side' }, { field: 'quantity' }] },
    })
  })
})

describe('closing', () => {
  test('closes at the exchange, and accepts a repeated request', async () => {
    const symbol = freshSymbol('CLO')
    await one.post('/positions', signal(symbol))
    const close = `/positions/${symbol}/close`
    const both = await Promise.all([one.post(close), other.post(close)])
    expect(both.map(({ status, body }) => [status, body['status']])).toEqual([
      [200, 'closed'],
      [200, 'closed'],
    ])
    expect(await one.post('/positions', signal(symbol))).toMatchObject({ status: 201 })
    expect(await statuses(symbol)).toEqual(['closed', 'active'])
    expect(await one.post('/positions/NEVER/close')).toMatchObject({ status: 404, body: { code: 'not-found' } })
    expect(await violations()).toEqual([])
  })

  test('gives a repeated request its first answer: it opens and closes nothing again', async () => {
    const symbol = freshSymbol('KEYS')
    const close = `/positions/${symbol}/close`
    const [opening, closing] = [randomUUID(), randomUUID()]
    const opened = await one.post('/positions', signal(symbol), opening)
    const closed = await other.post(close, undefined, closing)
    expect([opened.status, closed.body['status']]).toEqual([201, 'closed'])
    expect(await other.post('/positions', signal(symbol), opening)).toEqual(opened)
    expect(await statuses(symbol)).toEqual(['closed'])
    await one.post('/positions', signal(symbol), randomUUID())
    expect(await one.post(close, undefined, closing)).toEqual(closed)
    expect(await statuses(symbol)).toEqual(['closed', 'active'])
    expect(await one.post('/positions', { ...signal(symbol), quantity: 4 }, opening)).toMatchObject({ status: 422 })
  })

  test('opens and closes nothing again for a request that was repeated after a crash before its answer', async () => {
    const symbol = freshSymbol('CRASH')
    const close = `/positions/${symbol}/close`
    const [opening, closing] = [randomUUID(), randomUUID()]
    const opened = await one.post('/positions', signal(symbol), opening)
    const closed = await one.post(close, undefined, closing)
    await one.post('/positions', signal(symbol))
    // As if the process had died before it could store its answers.
    await admin.query(`DELETE FROM lockstep.idempotency WHERE key = ANY ($1)`, [[opening, closing]])
    const [again, closedAgain] = [
      await other.post('/positions', signal(symbol), opening),
      await other.post(close, undefined, closing),
    ]
    expect([again.body['id'], closedAgain.body['id']]).toEqual([opened.body['id'], closed.body['id']])
    expect(await statuses(symbol)).toEqual(['closed', 'active'])
  })

  test('leaves a close without an answer to the reconciler, which finishes it', async () => {
    const symbol = freshSymbol('CLOA')
    await one.post('/positions', signal(symbol))
    await setFaults(exchange, { failingRate: 1 })
    expect(await impatient.post(`/positions/${symbol}/close`)).toMatchObject({ status: 503 })
    expect(await statuses(symbol)).toEqual(['closing'])
    expect(await other.post('/positions', signal(symbol))).toMatchObject({ status: 409, body: { code: 'closing' } })
    await setFaults(exchange, NO_FAULTS)
    await reconciled(reconciler)
    expect(await statuses(symbol)).toEqual(['closed'])
    expect(await violations()).toEqual([])
  })
})

describe('the reconciler', () => {
  test('adopts a position that was opened by hand, and sets a stop-loss', async () => {
    const symbol = freshSymbol('HAND')
    await tradeByHand(exchange, symbol, 'sell', 7)
    expect(await violations()).toHaveLength(1)
    await reconciled(reconciler)
    expect((await one.get(`/positions/${symbol}`)).body).toMatchObject({
      origin: 'adopted',
      status: 'active',
      side: 'short',
      quantity: 7,
    })
    expect(await violations()).toEqual([])
  })

  test('reconciles each exchange on its own', async () => {
    const symbol = freshSymbol('SOUTH')
    await one.post('/positions', signal(symbol))
    await tradeByHand(exchange, symbol, 'sell', 2, 'south')
    await reconciled(reconciler)
    expect((await one.get(`/positions/${symbol}?exchange=south`)).status).toBe(404)
    await reconciled(new Reconciler(one.context, 'south'))
    expect((await one.get(`/positions/${symbol}?exchange=south`)).body).toMatchObject({
      origin: 'adopted',
      side: 'short',
      quantity: 2,
    })
    expect((await one.get(`/positions/${symbol}`)).body).toMatchObject({ origin: 'signal', side: 'long', quantity: 3 })
    expect(await violations()).toEqual([])
  })

  test('follows manual changes: larger, closed, reversed', async () => {
    const symbol = freshSymbol('CHANGE')
    await one.post('/positions', signal(symbol))
    await tradeByHand(exchange, symbol, 'buy', 2)
    await reconciled(reconciler)
    expect((await one.get(`/positions/${symbol}`)).body).toMatchObject({ quantity: 5, side: 'long' })
    await tradeByHand(exchange, symbol, 'sell', 5)
    await reconciled(reconciler)
    expect(await statuses(symbol)).toEqual(['closed'])
    await one.post('/positions', signal(symbol))
    await tradeByHand(exchange, symbol, 'sell', 4)
    await reconciled(reconciler)
    expect(await statuses(symbol)).toEqual(['closed', 'closed', 'active'])
    const { body } = await one.get(`/positions/${symbol}`)
    expect(body).toMatchObject({ quantity: 1, side: 'short', origin: 'adopted' })
    expect(await violations()).toEqual([])
  })

  test('sets a missing stop-loss, and cancels a superfluous one', async () => {
    const symbol = freshSymbol('STOPS')
    const { body } = await one.post('/positions', signal(symbol))
    const cancel = { method: 'POST', body: JSON.stringify({ clientId: `${String(body['id'])}-stop-1` }) }
    await fetch(`${exchange.url}/cancel`, cancel)
    expect(await violations()).toEqual([`${symbol} has 0 live stop orders`])
    await reconciled(reconciler)
    expect(await violations()).toEqual([])
    const [held] = (await (await fetch(`${exchange.url}/positions?symbol=${symbol}`)).json()) as { id: number }[]
    const order = { clientId: `${symbol}-by-hand`, symbol, kind: 'stop', positionId: held?.id, price: 1 }
    await fetch(`${exchange.url}/orders`, { method: 'POST', body: JSON.stringify(order) })
    expect(await violations()).toEqual([`${symbol} has 2 live stop orders`])
    await reconciled(reconciler)
    expect(await violations()).toEqual([])
  })

  test('closes a position that cannot have a stop-loss', async () => {
    const symbol = freshSymbol('NOSTOP')
    await tradeByHand(exchange, symbol, 'buy')
    await reconciled(reconciler)
    expect(await statuses(symbol)).toEqual(['failed'])
    expect(await violations()).toEqual([])
  })

  test('does not touch a signal that is in progress', async () => {
    const symbols = Array.from({ length: 6 }, () => freshSymbol('RACE'))
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

  test('runs in one process at a time, and moves to the other when that one ends', async () => {
    const system = createPositions({ ttlMs: 1500, everyMs: 50 })
    const first = new AbortController()
    const second = new AbortController()
    await admin.query('TRUNCATE lockstep_desk.position_rounds')
    const holders = 'SELECT DISTINCT holder FROM lockstep_desk.position_rounds ORDER BY holder'
    const seen = async (): Promise<string[]> =>
      (await admin.query<{ holder: string }>(holders)).rows.map(({ holder }) => holder)
    const inOne = system.background?.(one.desk, first.signal)
    await expect.poll(seen).toEqual(['one'])
    const inOther = system.background?.(other.desk, second.signal)
    first.abort()
    await expect.poll(seen).toEqual(['one', 'other'])
    second.abort()
    await inOne
    await inOther
  })
})

describe('a creator that lost its lease', () => {
  test('returns what the next creator made, and creates nothing twice', async () => {
    const symbol = freshSymbol('TAKEN')
    await setFaults(exchange, { slowRate: 1, slowMs: 1000 })
    const first = one.post('/positions', signal(symbol))
    await expect.poll(() => statuses(symbol)).toEqual(['opening'])
    await other.desk.lockstep.leases.forceRelease(positionKey({ symbol, exchange: 'north' }), {
      by: 'test',
      reason: 'stuck',
    })
    await setFaults(exchange, NO_FAULTS)
    const second = await other.post('/positions', signal(symbol))
    expect(new Set([(await first).status, second.status])).toEqual(new Set([200, 201]))
    expect((await first).body['id']).toBe(second.body['id'])
    expect(await violations()).toEqual([])
  })
})
