import { afterAll, afterEach, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { NO_FAULTS, type OpenPosition, type Order, startExchange } from './index.ts'

const database = await testDatabase()
const timings = { entryMs: 10, stopMs: 10, closeMs: 10, readMs: 0 }
const exchange = await startExchange({ url: database.url, timings })
afterAll(() => exchange.close())
afterEach(async () => {
  await post('/faults', NO_FAULTS)
})

async function post(path: string, body: unknown): Promise<{ readonly status: number; readonly body: unknown }> {
  const response = await fetch(exchange.url + path, { method: 'POST', body: JSON.stringify(body) })
  return { status: response.status, body: await response.json() }
}

const place = (order: object): Promise<{ status: number; body: Order }> =>
  post('/orders', order) as Promise<{ status: number; body: Order }>

async function positionsOf(symbol: string): Promise<OpenPosition[]> {
  return (await (await fetch(`${exchange.url}/positions?symbol=${symbol}`)).json()) as OpenPosition[]
}

test('creates one order per client id, also for concurrent calls', async () => {
  const order = { clientId: 'a1', symbol: 'AAA', kind: 'market', change: 5 }
  const answers = await Promise.all(Array.from({ length: 8 }, () => place(order)))
  expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1)
  expect(await positionsOf('AAA')).toMatchObject([{ net: 5, stops: [] }])
})

test('keeps a stop-loss for one opening of a position, and ends it with the position', async () => {
  const { body } = await place({ clientId: 'b1', symbol: 'BBB', kind: 'market', change: -2 })
  const stop = { clientId: 'b2', symbol: 'BBB', kind: 'stop', positionId: body.positionId, price: 100 }
  expect((await place(stop)).body.status).toBe('live')
  expect(await positionsOf('BBB')).toMatchObject([{ net: -2, stops: ['b2'] }])
  await post('/manual-trades', { symbol: 'BBB', side: 'buy', quantity: 5 })
  const [flipped] = await positionsOf('BBB')
  expect(flipped).toMatchObject({ net: 3, stops: [] })
  expect(flipped?.id).not.toBe(body.positionId)
  expect((await place(stop)).body.status).toBe('cancelled')
  expect(await place({ ...stop, clientId: 'b3' })).toMatchObject({ status: 422, body: { reason: 'no-position' } })
  const close = { clientId: 'b4', symbol: 'BBB', kind: 'close' }
  expect(await place({ ...close, positionId: body.positionId })).toMatchObject({ status: 422 })
  expect(await place({ ...close, positionId: flipped?.id, clientId: 'b5' })).toMatchObject({ status: 200 })
  expect(await positionsOf('BBB')).toEqual([])
})

test('keeps refusing an id that it has refused', async () => {
  const order = { clientId: 'c1', symbol: 'CCC', kind: 'market', change: 1_000_000 }
  expect(await place(order)).toMatchObject({ status: 422, body: { reason: 'order-too-large' } })
  expect(await place({ ...order, change: 1 })).toMatchObject({ status: 422, body: { reason: 'order-too-large' } })
  expect(await positionsOf('CCC')).toEqual([])
})

test('loses answers after the effect, and fails before it', async () => {
  await post('/faults', { lostRate: 1 })
  await expect(place({ clientId: 'd1', symbol: 'DDD', kind: 'market', change: 1 })).rejects.toThrow()
  await post('/faults', { lostRate: 0, failingRate: 1 })
  expect((await place({ clientId: 'd2', symbol: 'DDD', kind: 'market', change: 1 })).status).toBe(503)
  const faults = await post('/faults', NO_FAULTS)
  expect(faults.body).toMatchObject({ lostRate: 0, struck: { lost: 1, failing: 1 } })
  expect(await positionsOf('DDD')).toMatchObject([{ net: 1 }])
  expect((await post('/faults', { sometimes: 1 })).status).toBe(400)
})

test('keeps its order book over a restart', async () => {
  await place({ clientId: 'e1', symbol: 'EEE', kind: 'market', change: 4 })
  const next = await startExchange({ url: database.url, timings })
  const again = { clientId: 'e1', symbol: 'EEE', kind: 'market', change: 4 }
  await fetch(`${next.url}/orders`, { method: 'POST', body: JSON.stringify(again) })
  await next.close()
  expect(await positionsOf('EEE')).toMatchObject([{ net: 4 }])
})
