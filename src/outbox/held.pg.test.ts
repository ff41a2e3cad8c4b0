import { describe, expect, test } from 'vitest'
import { eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, failureOf, signal } from '../../tools/server/testing/workbench.ts'
import { EventInvalidError, InvalidOptionError, type Lockstep, type OutboxEvent } from '../index.ts'

/** Events with a time before which they are not sent. */

const bench = await outboxBench()

const HOUR_MS = 60 * 60 * 1000
const inMs = (ms: number): Date => new Date(Date.now() + ms)
const event = (key: string, notBefore?: Date): { topic: string; key: string; payload: number } & { notBefore?: Date } =>
  notBefore === undefined ? { topic: 't', key, payload: 1 } : { topic: 't', key, payload: 1, notBefore }

const write = (lockstep: Lockstep, ...events: ReturnType<typeof event>[]): Promise<void> =>
  lockstep.transaction({}, (tx) => tx.enqueueMany(events))

const held = async (lockstep: Lockstep): Promise<string[]> =>
  (await lockstep.outbox.parked())
    .map(({ key, state, head, events }) => `${key} ${state} at #${head}, ${events}`)
    .toSorted()

/** As if this time had passed, for parked events. */
const pass = (ms: number): Promise<unknown> =>
  bench.admin.query(`
    UPDATE lockstep.outbox_parked_events SET not_before = not_before - interval '${ms} ms';
    UPDATE lockstep.outbox_parked SET held_until = held_until - interval '${ms} ms', next_attempt_at = next_attempt_at - interval '${ms} ms'
      WHERE held_until IS NOT NULL;
    SELECT lockstep.outbox_ring()`)

describe.each(DRIVERS)('an event with a time, %s', (driver) => {
  test('is not sent before it, holds the later events of its stream, and nothing else', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const early: string[] = []
    const times = new Map<string, Date>()
    const sink = (batch: readonly OutboxEvent[]): 'sent'[] => {
      for (const { key, seq } of batch)
        if (new Date() < (times.get(`${key}#${seq}`) ?? new Date(0))) early.push(`${key}#${seq}`)
      return batch.map(() => 'sent')
    }
    const dispatcher = bench.dispatch(lockstep, { sink })
    const soon = inMs(600)
    for (const name of ['a#2', 'b#1', 'c#1']) times.set(name, soon)
    // In one transaction, alone, and behind others.
    await write(lockstep, event('a'), event('a', soon), event('a'), event('z'))
    await write(lockstep, event('b', soon))
    await lockstep.transaction({ isolation: 'serializable', streams: [{ topic: 't', key: 'c' }] }, (tx) =>
      tx.enqueue(event('c', soon)),
    )
    await write(lockstep, event('b'), event('c'), event('z'))
    await dispatcher.until(9)
    expect(early).toEqual([])
    for (const [key, count] of Object.entries({ a: 3, b: 2, c: 2, z: 2 })) {
      expect(dispatcher.names.filter((name) => name.startsWith(key))).toEqual(
        Array.from({ length: count }, (_, n) => `${key}#${n + 1}`),
      )
    }
    await eventually(async () => (await lockstep.outbox.parked()).length === 0)
  })

  test('waits where operators see it, who release it or skip it', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const dispatcher = bench.dispatch(lockstep)
    const [first, third] = [inMs(HOUR_MS), inMs(2 * HOUR_MS)]
    await write(lockstep, event('x', first), event('x'), event('x', third), event('x'), event('y'))
    await eventually(async () => (await held(lockstep))[0] === 'x held at #1, 4')
    const [stream] = await lockstep.outbox.parked()
    expect(stream).toMatchObject({ attempts: 0, reason: undefined, nextAttemptAt: first })
    expect((await lockstep.outbox.status()).shards).toMatchObject([
      { heldStreams: 1, nextHeldAt: first, parkedStreams: 0 },
    ])
    expect(await lockstep.outbox.redrive('parked', { topic: 't', reason: 'all that failed' })).toMatchObject({
      found: [],
    })
    await lockstep.outbox.retry({ topic: 't', key: 'x' })
    await dispatcher.until(3)
    await eventually(async () => (await held(lockstep))[0] === 'x held at #3, 2')
    await lockstep.outbox.pause({ topic: 't', key: 'x' })
    await lockstep.outbox.resume({ topic: 't', key: 'x' })
    expect((await lockstep.outbox.parked())[0]).toMatchObject({ state: 'held', nextAttemptAt: third })
    const { headId } = (await lockstep.outbox.parked())[0] ?? {}
    await lockstep.outbox.skip({ topic: 't', key: 'x', seq: 3, headId }, { reason: 'called off' })
    await dispatcher.until(5)
    await eventually(async () => (await lockstep.outbox.parked()).length === 0)
    await write(lockstep, event('x'))
    await dispatcher.until(6)
    expect(dispatcher.delivered.filter((name) => name.includes('x'))).toEqual([
      't/x#1',
      't/x#2',
      't/x#3†',
      't/x#4',
      't/x#5',
    ])
  })
})

test('a stream that was paused while its head was tried is held again when it is resumed', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const [trying, go] = [signal(), signal()]
  let tries = 0
  const dispatcher = bench.dispatch(lockstep, {
    slowAfterMs: false,
    sink: async (batch) => {
      if (++tries === 1) return batch.map(() => ({ refused: 'not now' }))
      trying.give()
      await go.given
      return batch.map(() => 'sent')
    },
  })
  const x = { topic: 't', key: 'x' }
  const time = inMs(HOUR_MS)
  await write(lockstep, event('x'))
  await trying.given
  await write(lockstep, event('x', time), event('x'))
  await eventually(async () => (await lockstep.outbox.parked())[0]?.events === 3)
  await lockstep.outbox.pause(x)
  go.give()
  await eventually(async () => (await lockstep.outbox.parked())[0]?.events === 2)
  await lockstep.outbox.resume(x)
  expect((await lockstep.outbox.parked())[0]).toMatchObject({ state: 'held', head: 2, nextAttemptAt: time })
  await lockstep.outbox.retry(x)
  await dispatcher.until(3)
  expect(dispatcher.names).toEqual(['x#1', 'x#2', 'x#3'])
})

test('SQL and a transaction of the caller enqueue events with a time', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const time = inMs(HOUR_MS)
  const client = await bench.session()
  await client.query('BEGIN')
  expect(await lockstep.outbox.enqueue(client, event('a', time))).toEqual({ seq: 1 })
  await client.query(
    `SELECT lockstep.enqueue_at('t', 'b', '1', $1), lockstep.enqueue_bytes_at('t', 'c', '\\x01', $1, '{"h": "1"}')`,
    [time],
  )
  await client.query('COMMIT')
  const dispatcher = bench.dispatch(lockstep)
  await eventually(async () => (await lockstep.outbox.parked()).length === 3)
  expect(await held(lockstep)).toEqual(['a held at #1, 1', 'b held at #1, 1', 'c held at #1, 1'])
  await pass(HOUR_MS)
  await dispatcher.until(3)
  expect(dispatcher.events.find(({ key }) => key === 'c')).toMatchObject({
    headers: { h: '1' },
    payload: Buffer.from([1]),
  })
})

test('a time that is none is refused', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  for (const notBefore of ['tomorrow', new Date(Number.NaN), new Date(8.64e15), 5]) {
    expect(await failureOf(write(lockstep, { ...event('a'), notBefore: notBefore as Date }))).toBeInstanceOf(
      EventInvalidError,
    )
  }
  const missing = { ...event('a'), notBefore: undefined as unknown as Date }
  expect(await failureOf(write(lockstep, missing))).toBeInstanceOf(InvalidOptionError)
  await expect(bench.admin.query(`SELECT lockstep.enqueue_at('t', 'a', '1', 'infinity')`)).rejects.toMatchObject({
    code: '22023',
  })
  await expect(
    bench.admin.query(
      `SELECT lockstep.outbox_append_many_at('{t,t}', '{a,b}', '{1,1}', '{NULL,NULL}', '{NULL,NULL}', '{NULL,infinity}')`,
    ),
  ).rejects.toMatchObject({ code: '22023' })
})

test('another process holds the events that the first one has parked, and the others', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const first = bench.dispatch(lockstep)
  await write(lockstep, event('a', inMs(HOUR_MS)), event('a'), event('z'))
  await first.until(1)
  await eventually(async () => (await held(lockstep)).length === 1)
  await first.stop()
  await write(lockstep, event('a'), event('b', inMs(HOUR_MS)), event('b'), event('z'))
  const second = bench.dispatch(lockstep)
  await second.until(1)
  await eventually(async () => (await held(lockstep)).length === 2)
  expect(await held(lockstep)).toEqual(['a held at #1, 3', 'b held at #1, 2'])
  await pass(HOUR_MS)
  await second.until(6)
  expect(second.names.slice(1).toSorted()).toEqual(['a#1', 'a#2', 'a#3', 'b#1', 'b#2'])
})

test('a clock that goes back holds the event again', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  let down = true
  const dispatcher = bench.dispatch(lockstep, {
    sink: (batch) => batch.map(({ key }) => (down && key === 'a' ? { unknown: 'no answer' } : 'sent')),
  })
  await write(lockstep, event('a', inMs(HOUR_MS)), event('a'))
  await eventually(async () => (await held(lockstep))[0] === 'a held at #1, 2')
  await pass(HOUR_MS)
  await eventually(async () => (await lockstep.outbox.parked())[0]?.reason === 'no answer')
  await pass(-HOUR_MS)
  await eventually(async () => (await held(lockstep))[0] === 'a held at #1, 2')
  down = false
  await write(lockstep, event('a'), event('z'))
  await dispatcher.until(1)
  expect(dispatcher.names).toEqual(['z#1'])
  await pass(HOUR_MS)
  await dispatcher.until(4)
  expect(dispatcher.names).toEqual(['z#1', 'a#1', 'a#2', 'a#3'])
})

test('an erased event goes out as a tombstone, at its time', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  // Erased before it was parked, and afterwards.
  await write(lockstep, event('a', inMs(HOUR_MS)), event('b', inMs(HOUR_MS)), event('a'))
  await lockstep.outbox.erase({ topic: 't', key: 'a' })
  const dispatcher = bench.dispatch(lockstep)
  await write(lockstep, event('z'))
  await dispatcher.until(1)
  await eventually(async () => (await held(lockstep)).length === 2)
  await lockstep.outbox.erase({ topic: 't', key: 'b' })
  expect(await held(lockstep)).toEqual(['a held at #1, 2', 'b held at #1, 1'])
  await pass(HOUR_MS)
  await dispatcher.until(4)
  expect(dispatcher.delivered.toSorted()).toEqual(['t/a#1†', 't/a#2†', 't/b#1†', 't/z#1'])
})

test('a split and a rebase keep it', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const dispatcher = bench.dispatch(lockstep, { shards: 2 })
  const keys = ['a', 'b', 'c', 'd', 'e']
  await write(lockstep, ...keys.map((key) => event(key, inMs(HOUR_MS))), event('z'))
  await dispatcher.until(1)
  await eventually(async () => (await held(lockstep)).length === 5)
  await lockstep.outbox.split('default', { shards: 8, reason: 'growth' })
  await write(lockstep, ...keys.map((key) => event(key)), event('z'))
  await dispatcher.until(2)
  await eventually(async () => (await held(lockstep)).filter((each) => each.endsWith('2')).length === 5)
  await dispatcher.stop()
  await write(lockstep, event('f', inMs(HOUR_MS)))
  expect(await lockstep.outbox.rebase({ deliver: 'undelivered' })).toMatchObject({ putAside: 1 })
  const again = bench.dispatch(lockstep, { shards: 8 })
  await write(lockstep, event('z'))
  await again.until(1)
  expect(await held(lockstep)).toHaveLength(6)
  await pass(HOUR_MS)
  await again.until(12)
  for (const key of keys) expect(again.names.filter((name) => name.startsWith(key))).toEqual([`${key}#1`, `${key}#2`])
})

test('a rebase that delivers all again sends what is before it, and holds it again', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const first = bench.dispatch(lockstep)
  await write(lockstep, event('a'), event('a', inMs(HOUR_MS)), event('a'))
  await first.until(1)
  await eventually(async () => (await held(lockstep))[0] === 'a held at #2, 2')
  await first.stop()
  await lockstep.outbox.rebase({ deliver: 'all' })
  const second = bench.dispatch(lockstep)
  await second.until(1)
  await eventually(async () => (await held(lockstep))[0] === 'a held at #2, 2')
  expect(second.names).toEqual(['a#1'])
})

test('more streams than a read makes a table of are held, and the others continue', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const dispatcher = bench.dispatch(lockstep)
  const keys = Array.from({ length: 130 }, (_, n) => `k${n}`)
  const time = inMs(HOUR_MS)
  await write(lockstep, ...keys.map((key) => event(key, time)), event('z'))
  await dispatcher.until(1)
  await eventually(async () => (await lockstep.outbox.status()).shards[0]?.heldStreams === 130)
  await write(lockstep, ...keys.map((key) => event(key)), event('z'), event('y'))
  await dispatcher.until(3)
  expect(dispatcher.names).toEqual(['z#1', 'z#2', 'y#1'])
  await pass(HOUR_MS)
  await dispatcher.until(3 + 260)
  for (const key of keys)
    expect(dispatcher.names.filter((name) => name.startsWith(`${key}#`))).toEqual([`${key}#1`, `${key}#2`])
})

test('drain() leaves it, and says until when', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const time = inMs(HOUR_MS)
  await write(lockstep, event('a', time), event('a'), event('z'))
  const delivered: string[] = []
  const dispatcher = lockstep.outbox.dispatcher({
    ttlMs: 30_000,
    retainMs: false,
    sink: (batch) => void delivered.push(...batch.map(({ key, seq }) => `${key}#${seq}`)),
  })
  const left = { events: 0, parkedStreams: 0, heldStreams: 1, nextHeldAt: time }
  expect(await dispatcher.drain()).toMatchObject({ delivered: 1, ended: 'empty', left })
  expect(await dispatcher.drain()).toMatchObject({ delivered: 0, ended: 'empty', left })
  await pass(HOUR_MS)
  expect(await dispatcher.drain()).toMatchObject({
    delivered: 2,
    ended: 'empty',
    left: { heldStreams: 0, nextHeldAt: undefined },
  })
  expect(delivered).toEqual(['z#1', 'a#1', 'a#2'])
})

test('a replay passes it, and what is behind it', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  await write(lockstep, event('a'), event('a', inMs(HOUR_MS)), event('a'), event('z'), event('b', inMs(-HOUR_MS)))
  const seen: string[] = []
  const sink = (batch: readonly OutboxEvent[]): void => void seen.push(...batch.map(({ key, seq }) => `${key}#${seq}`))
  // In pieces, of which some have nothing to send.
  expect(await lockstep.outbox.replay({ sink, batch: 1 })).toMatchObject({ events: 3 })
  expect(await lockstep.outbox.replay({ sink, topic: 't', key: 'a' })).toMatchObject({ events: 1 })
  expect(seen).toEqual(['a#1', 'z#1', 'b#1', 'a#1'])
})

describe('while nothing else happens', () => {
  /** Resolves when the leases of all shards, and of all members, are over. */
  const rest = (): Promise<void> =>
    eventually(async () => {
      const { rows } = await bench.admin.query<{ all: number; live: number }>(
        'SELECT count(*)::int AS all, count(*) FILTER (WHERE expires_at > clock_timestamp())::int AS live FROM lockstep.leases WHERE token IS NOT NULL',
      )
      return rows[0]?.live === 0 && rows[0].all > 0
    })

  test('a dispatcher rests beside what is held for long, and wakes when it is due', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    const dispatcher = bench.dispatch(lockstep, { ttlMs: 500 })
    await write(lockstep, event('a', inMs(HOUR_MS)))
    await rest()
    await write(lockstep, event('b', inMs(3000)))
    await eventually(async () => (await held(lockstep)).length === 2)
    // No writer rings, and the dispatcher does not look in between.
    await rest()
    await dispatcher.until(1)
    expect(dispatcher.names).toEqual(['b#1'])
    await eventually(async () => (await held(lockstep)).join() === 'a held at #1, 1')
  })

  test('one that sleeps wakes when it is due', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    const { lockstep: writer } = bench.open('pg', { max: 2 })
    const dispatcher = bench.dispatch(lockstep, { ttlMs: 500, sleepAfterMs: 1000 })
    await write(writer, event('a', inMs(4000)))
    await eventually(async () => {
      const { rowCount } = await bench.admin.query(
        `SELECT FROM lockstep.outbox_listeners WHERE until > clock_timestamp() + interval '1 day'`,
      )
      return rowCount === 1
    })
    // No writer rings.
    await dispatcher.until(1)
  })

  test('what a process held that has died while its shards rested is sent by another one', async () => {
    const [dying, { lockstep: other }] = [await bench.proxied('pg'), bench.open('pg', { max: 6 })]
    const { lockstep: writer } = bench.open('pg', { max: 2 })
    const keys = ['a', 'b', 'c', 'd', 'e']
    const first = bench.dispatch(dying.lockstep, { shards: 2, ttlMs: 500 })
    await write(writer, ...keys.map((key) => event(key)))
    await first.until(5)
    const second = bench.dispatch(other, { shards: 2, ttlMs: 500 })
    await eventually(async () => (await bench.admin.query('SELECT FROM lockstep.outbox_listeners')).rowCount === 2)
    // So long that the process has died before, also on a busy machine.
    await write(writer, ...keys.map((key) => event(key, inMs(15_000))))
    await eventually(async () => (await held(writer)).length === 5)
    await rest()
    await dying.proxy.close()
    await eventually(() => [...first.names, ...second.names].filter((name) => name.endsWith('#2')).length === 5)
    expect(second.names.filter((name) => name.endsWith('#2')).toSorted()).toEqual(keys.map((key) => `${key}#2`))
  })
})
