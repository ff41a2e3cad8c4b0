import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { type Answer, Desks, foundAfter, violations } from '../testing/desks.ts'
import { trades } from './index.ts'
import { localLog, readLocalLog } from './localLog.ts'
import { publishedPage } from './publishedPage.ts'

const database = await testDatabase()
const desks = await Desks.start(database, [trades])

const ORDER = { symbol: 'ACME', side: 'buy', quantity: 3, price: 100 }

/** Waits until the reader has booked everything. */
async function drained(): Promise<void> {
  await expect.poll(async () => violations(await trades.check(desks.pool))).toEqual([])
}

describe('trades', () => {
  test('creates one trade and one event for each concurrent request that is sent twice, in one order', async () => {
    const pairs = await Promise.all(
      Array.from({ length: 40 }, (_, turn) =>
        desks.postTwice(`/portfolios/p${turn % 3}/trades`, { ...ORDER, side: turn % 4 === 0 ? 'sell' : 'buy' }),
      ),
    )
    for (const pair of pairs) {
      for (const { status } of pair) expect([201, 409]).toContain(status)
      const made = pair.filter(({ status }) => status === 201)
      expect(new Set(made.map(({ text }) => text)).size).toBe(1)
    }
    await drained()
    const findings = await trades.check(desks.pool)
    expect(findings.slice(0, 4).map(({ looked }) => looked)).toEqual([40, 40, 40, 40])
    for (const portfolio of ['p0', 'p1', 'p2']) {
      const { text } = await desks.get(`/portfolios/${portfolio}/trades`)
      const log = await desks.pool.query<{ id: string }>(
        `SELECT payload ->> 'tradeId' AS id FROM lockstep_desk.trade_log WHERE portfolio = $1 ORDER BY position`,
        [portfolio],
      )
      expect((JSON.parse(text) as { id: string }[]).map(({ id }) => id)).toEqual(log.rows.map(({ id }) => id))
    }
  })

  test('updates holdings from trades', async () => {
    await desks.post('/portfolios/small/trades', { ...ORDER, quantity: 10 })
    await desks.post('/portfolios/small/trades', { ...ORDER, side: 'sell', quantity: 4, price: 150 })
    await expect
      .poll(async () => JSON.parse((await desks.get('/portfolios/small/holdings')).text) as unknown)
      .toEqual([{ symbol: 'ACME', quantity: 6, paid: 400 }])
  })

  test('shows the number of each event, and the published log in its order', async () => {
    for (let quantity = 1; quantity <= 3; quantity++)
      await desks.post('/portfolios/numbered/trades', { ...ORDER, quantity })
    await drained()
    const made = JSON.parse((await desks.get('/portfolios/numbered/trades')).text) as { id: string; seq: number }[]
    expect(made.map(({ seq }) => seq)).toEqual([1, 2, 3])
    const log = JSON.parse((await desks.get('/portfolios/numbered/log')).text) as { trade: string; seq: number }[]
    expect(log.map(({ trade, seq }) => ({ id: trade, seq }))).toEqual(made.map(({ id, seq }) => ({ id, seq })))
    const page = (path: string): Promise<Answer> => desks.ask(path, { headers: { accept: 'text/html' } })
    const shown = (await page('/portfolios/numbered/log')).text
    expect(shown).toContain('3 events, each one behind the one before.')
    expect([...shown.matchAll(/<td>#(\d+)<\/td><td>(buy \d) ACME/g)].map(([, ...found]) => found)).toEqual([
      ['3', 'buy 3'],
      ['2', 'buy 2'],
      ['1', 'buy 1'],
    ])
    expect((await page('/portfolios')).text).toContain(
      '<a href="/portfolios/numbered/log">numbered</a></td><td>3</td><td>3</td>',
    )
  })

  test('names what is out of order in the published log', () => {
    const event = { at: new Date(), trade: null, symbol: null, side: null, quantity: null, price: null }
    const log = [1, 2, 4, 3].map((seq, place) => ({ ...event, seq, place }))
    expect(publishedPage('p', log)).toContain('<b>Out of order:</b> #4, #3')
  })

  test('rejects the same key with another body', async () => {
    const key = randomUUID()
    const ask = (quantity: number): Promise<Answer> =>
      desks.post('/portfolios/p0/trades', { ...ORDER, quantity }, { key })
    const first = await ask(1)
    const again = await ask(1)
    expect([again.status, again.text, again.headers.get('idempotency-replayed')]).toEqual([201, first.text, 'true'])
    const other = await ask(2)
    expect([other.status, other.body['code'], other.body['instance']]).toEqual([
      422,
      'key-reused',
      '/portfolios/p0/trades',
    ])
  })

  test('stores an event once that reaches the log twice, and books it once when it is read twice', async () => {
    await drained()
    const before = (await desks.get('/portfolios/small/holdings')).text
    const [desk, other] = [desks.desk(0), desks.desk(1)]
    const { events } = await desk.lockstep.outbox.replay({ topic: 'trades', key: 'small', sink: localLog(desk) })
    expect(events).toBe(2)
    await desks.pool.query('UPDATE lockstep_desk.trade_log_readers SET position = 0')
    const stop = new AbortController()
    const reading = readLocalLog(other, stop.signal)
    const caughtUp = `SELECT position = (SELECT max(position) FROM lockstep_desk.trade_log) AS done FROM lockstep_desk.trade_log_readers`
    await expect.poll(async () => (await desks.pool.query(caughtUp)).rows).toEqual([{ done: true }])
    stop.abort()
    await reading
    expect((await desks.get('/portfolios/small/holdings')).text).toBe(before)
    expect(violations(await trades.check(desks.pool))).toEqual([])
  })

  const LAST = `(SELECT max(place) FROM lockstep_desk.bookings WHERE portfolio = 'p0')`
  test.each([
    ['every trade is booked exactly once', `DELETE FROM lockstep_desk.bookings WHERE place = ${LAST}`],
    [
      'every trade is booked exactly once',
      `INSERT INTO lockstep_desk.bookings (portfolio, seq, trade)
       SELECT portfolio, seq, trade FROM lockstep_desk.bookings WHERE place = ${LAST}`,
    ],
    [
      'every trade is booked exactly once',
      `INSERT INTO lockstep_desk.bookings (portfolio, seq, trade) VALUES ('p0', 999, gen_random_uuid())`,
    ],
    [
      'the log has the numbers of each portfolio in order',
      `DELETE FROM lockstep_desk.trade_log WHERE portfolio = 'p0' AND seq = 2`,
    ],
    [
      'the log has the numbers of each portfolio in order',
      `UPDATE lockstep_desk.trade_log SET seq = -seq WHERE portfolio = 'p0' AND seq IN (1, 2);
       UPDATE lockstep_desk.trade_log SET seq = 3 + seq WHERE portfolio = 'p0' AND seq < 0`,
    ],
    [
      'events are booked in the order of their numbers',
      `UPDATE lockstep_desk.bookings SET seq = 3 - seq WHERE portfolio = 'p0' AND seq IN (1, 2)`,
    ],
    [
      'the order of the events is that of the trades',
      `UPDATE lockstep_desk.bookings SET seq = 3 - seq WHERE portfolio = 'p0' AND seq IN (1, 2)`,
    ],
    [
      'holdings are the sums of the trades',
      `UPDATE lockstep_desk.holdings SET quantity = quantity + 1 WHERE portfolio = 'p1'`,
    ],
    ['holdings are the sums of the trades', `DELETE FROM lockstep_desk.holdings WHERE portfolio = 'p1'`],
  ])('reports a violation: %s', async (invariant, sql) => {
    await drained()
    const findings = await foundAfter(desks.pool, trades, sql)
    expect(findings.find((finding) => finding.invariant === invariant)?.violations).not.toEqual([])
  })
})
