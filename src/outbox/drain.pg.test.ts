import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS } from '../../tools/server/testing/workbench.ts'
import type { Dispatcher, DispatcherOptions, Lockstep, OutboxEvent, SinkFunction } from '../index.ts'

const bench = await outboxBench()

interface Draining {
  readonly dispatcher: Dispatcher
  readonly events: OutboxEvent[]
}

/** A dispatcher that notes what it delivers. `sink` can refuse. */
function draining(
  lockstep: Lockstep,
  options: Partial<DispatcherOptions> & { readonly sink?: SinkFunction } = {},
): Draining {
  const events: OutboxEvent[] = []
  const { sink, ...rest } = options
  const dispatcher = lockstep.outbox.dispatcher({
    ttlMs: 30_000,
    retainMs: false,
    ...rest,
    async sink(batch, context) {
      const answers = (await sink?.(batch, context)) ?? batch.map(() => 'sent' as const)
      events.push(...batch.filter((_, place) => answers[place] === 'sent'))
      return answers
    },
  })
  return { dispatcher, events }
}

const KEYS = Array.from({ length: 20 }, (_, number) => `k${number}`)

async function write(lockstep: Lockstep, rounds: number): Promise<number> {
  for (let round = 0; round < rounds; round++) {
    await lockstep.transaction({}, (tx) => tx.enqueueMany(KEYS.map((key) => ({ topic: 't', key, payload: round }))))
  }
  return KEYS.length * rounds
}

/** Of each key the numbers in the order in which they came. */
function numbers(events: readonly OutboxEvent[]): number[][] {
  return KEYS.map((key) => events.filter((event) => event.key === key).map(({ seq }) => seq))
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, place) => place + 1)

const held = async (): Promise<number> =>
  (await bench.admin.query('SELECT FROM lockstep.leases WHERE token IS NOT NULL')).rowCount ?? 0

describe.each(DRIVERS)('drain(), %s', (driver) => {
  test('delivers everything in order, releases its shards and says that nothing is left', async () => {
    const { lockstep } = bench.open(driver)
    const count = await write(lockstep, 5)
    // Windows that are read in pieces.
    const { dispatcher, events } = draining(lockstep, { batch: 7 })
    const left = {
      events: 0,
      estimated: false,
      parkedStreams: 0,
      heldStreams: 0,
      nextHeldAt: undefined,
      heldShards: 0,
    }
    expect(await dispatcher.drain()).toEqual({ delivered: count, ended: 'empty', left })
    expect(numbers(events)).toEqual(KEYS.map(() => upTo(5)))
    expect(await held()).toBe(0)
    expect(await dispatcher.drain()).toEqual({ delivered: 0, ended: 'empty', left })
    await write(lockstep, 1)
    expect(await dispatcher.drain()).toMatchObject({ delivered: KEYS.length, ended: 'empty' })
    expect(numbers(events)).toEqual(KEYS.map(() => upTo(6)))
  })

  test('delivers with one connection, which its sink uses as well', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    const count = await write(lockstep, 2)
    const { dispatcher, events } = draining(lockstep, {
      async sink() {
        await lockstep.transaction({}, (tx) => tx.query('SELECT 1'))
      },
    })
    expect(await dispatcher.drain()).toMatchObject({ delivered: count, ended: 'empty' })
    expect(numbers(events)).toEqual(KEYS.map(() => upTo(2)))
  })
})

describe('a drain', () => {
  test('ends at maxEvents, and the next one continues', async () => {
    const { lockstep } = bench.open('pg')
    const count = await write(lockstep, 5)
    const { dispatcher, events } = draining(lockstep)
    expect(await dispatcher.drain({ maxEvents: 33 })).toMatchObject({
      delivered: 33,
      ended: 'maxEvents',
      left: { events: count - 33, heldShards: 0 },
    })
    expect(events).toHaveLength(33)
    expect(await held()).toBe(0)
    expect(await dispatcher.drain({ maxEvents: count })).toMatchObject({ delivered: count - 33, ended: 'empty' })
    expect(numbers(events)).toEqual(KEYS.map(() => upTo(5)))
  })

  test('begins no further batch after maxMs', async () => {
    const { lockstep } = bench.open('pg')
    const count = await write(lockstep, 1)
    const { dispatcher, events } = draining(lockstep, { shards: 1, batch: 1, sink: () => sleep(5) })
    const drained = await dispatcher.drain({ maxMs: 1 })
    expect(drained).toMatchObject({ ended: 'maxMs', left: { events: count - events.length } })
    expect(events.length).toBeLessThanOrEqual(1)
    expect(await held()).toBe(0)
  })

  test('delivers its current batch when its signal stops it', async () => {
    const { lockstep } = bench.open('pg')
    const count = await write(lockstep, 1)
    const stopping = new AbortController()
    const { dispatcher, events } = draining(lockstep, { shards: 1, batch: 3, sink: () => stopping.abort() })
    const drained = await dispatcher.drain({ signal: stopping.signal })
    expect(drained).toMatchObject({ delivered: 3, ended: 'stopped', left: { events: count - 3 } })
    expect(events).toHaveLength(3)
  })

  test('leaves shards alone that a dispatcher holds, and says so', async () => {
    const { lockstep } = bench.open('pg')
    let open = (): void => undefined
    const gate = new Promise<void>((resolve) => (open = resolve))
    const running = bench.dispatch(lockstep, { shards: 2, sink: () => gate })
    const count = await write(lockstep, 1)
    await eventually(async () => (await held()) === 3)
    const { dispatcher, events } = draining(bench.open('pg').lockstep)
    expect(await dispatcher.drain()).toMatchObject({
      delivered: 0,
      ended: 'held',
      left: { events: count, heldShards: 2 },
    })
    expect(events).toEqual([])
    open()
    await running.until(count)
  })

  test('takes the shards of a dispatcher that sleeps', async () => {
    const running = bench.dispatch(bench.open('pg', { max: 6 }).lockstep, { ttlMs: 500, sleepAfterMs: 1000 })
    const { dispatcher, events } = draining(bench.open('pg').lockstep)
    let enqueued = 0
    // What comes while it falls asleep, it may find itself.
    while (events.length === 0) {
      await eventually(async () => {
        const { rowCount } = await bench.admin.query(
          `SELECT FROM lockstep.outbox_listeners WHERE until > clock_timestamp() + interval '1 day'`,
        )
        return rowCount === 1
      })
      enqueued = await bench.enqueue('a')
      await dispatcher.drain()
    }
    const here = events.length
    await running.until(enqueued - here)
    await bench.enqueue('a')
    await bench.admin.query('SELECT lockstep.outbox_ring()')
    await running.until(enqueued - here + 1)
    const seqs = [...events, ...running.events].map(({ seq }) => seq)
    expect(seqs.toSorted((one, other) => one - other)).toEqual(upTo(enqueued + 1))
  })

  test('parks a stream whose event is refused, and tries it again when it is due', async () => {
    const { lockstep } = bench.open('pg')
    const count = await write(lockstep, 2)
    let refused = true
    const { dispatcher, events } = draining(lockstep, {
      backoffMs: { first: 60_000 },
      sink: (batch) => batch.map(({ key }) => (refused && key === 'k3' ? { refused: 'not now' } : ('sent' as const))),
    })
    expect(await dispatcher.drain()).toMatchObject({
      delivered: count - 2,
      ended: 'empty',
      left: { events: 0, parkedStreams: 1 },
    })
    refused = false
    // It is not due.
    expect(await dispatcher.drain()).toMatchObject({ delivered: 0, left: { parkedStreams: 1 } })
    await lockstep.outbox.retry({ topic: 't', key: 'k3' })
    expect(await dispatcher.drain({ maxEvents: 1 })).toMatchObject({ delivered: 1, left: { parkedStreams: 1 } })
    expect(await dispatcher.drain()).toMatchObject({ delivered: 1, ended: 'empty', left: { parkedStreams: 0 } })
    expect(numbers(events)).toEqual(KEYS.map(() => upTo(2)))
  })

  test('ends where the sink takes nothing, and nothing is lost', async () => {
    const { lockstep } = bench.open('pg')
    const count = await write(lockstep, 2)
    let down = true
    const { dispatcher, events } = draining(lockstep, {
      sink() {
        if (down) throw new Error('no route to host')
      },
    })
    expect(await dispatcher.drain()).toMatchObject({ delivered: 0, ended: 'sinkDown', left: { events: count } })
    expect(await held()).toBe(0)
    down = false
    expect(await dispatcher.drain()).toMatchObject({ delivered: count, ended: 'empty', left: { parkedStreams: 0 } })
    expect(numbers(events)).toEqual(KEYS.map(() => upTo(2)))
  })

  test('throws what keeps it from every shard', async () => {
    const { lockstep } = bench.open('pg')
    await write(lockstep, 1)
    const { dispatcher, events } = draining(lockstep)
    await bench.admin.query('ALTER FUNCTION lockstep.outbox_take_shard RENAME TO taken_away')
    try {
      await expect(dispatcher.drain()).rejects.toMatchObject({ code: '42883' })
    } finally {
      await bench.admin.query('ALTER FUNCTION lockstep.taken_away RENAME TO outbox_take_shard')
    }
    expect(events).toEqual([])
    expect(await held()).toBe(0)
  })

  test('removes old segments, also if no dispatcher runs', async () => {
    const { lockstep } = bench.open('pg')
    await write(lockstep, 1)
    const { dispatcher } = draining(lockstep, { retainMs: 1 })
    await eventually(async () => {
      await dispatcher.drain()
      return (await bench.admin.query('SELECT FROM lockstep.outbox_events LIMIT 1')).rowCount === 0
    })
  })

  test('refuses options that it does not know, and limits that are none', async () => {
    const { dispatcher } = draining(bench.open('pg').lockstep)
    await expect(dispatcher.drain({ maxMilliseconds: 1 } as object)).rejects.toMatchObject({
      code: 'LOCKSTEP_INVALID_OPTION',
    })
    await expect(dispatcher.drain({ maxEvents: 0 })).rejects.toMatchObject({ code: 'LOCKSTEP_INVALID_OPTION' })
  })
})

test('drains at the same time share the shards, deliver each event once, and keep the order', async () => {
  const { lockstep } = bench.open('pg', { max: 4 })
  const locksteps = Array.from({ length: 4 }, () => bench.open('pg', { max: 4 }).lockstep)
  const count = await write(lockstep, 20)
  const all: OutboxEvent[] = []
  const drains = Array.from({ length: 24 }, (_, place) => {
    const { dispatcher } = draining(locksteps[place % 4] as Lockstep, {
      batch: 10,
      async sink(batch) {
        all.push(...batch)
        await sleep(1)
      },
    })
    return dispatcher.drain()
  })
  const drained = await Promise.all(drains)
  expect(all).toHaveLength(count)
  expect(numbers(all)).toEqual(KEYS.map(() => upTo(20)))
  expect(drained.reduce((sum, { delivered }) => sum + delivered, 0)).toBe(count)
  expect(await held()).toBe(0)
})

test('a drain that has all shards gives up those above its share when another one comes', async () => {
  const { lockstep } = bench.open('pg', { max: 4 })
  const stopping = new AbortController()
  const first = draining(lockstep, { batch: 5, sink: () => sleep(1) })
  const second = draining(bench.open('pg', { max: 4 }).lockstep)
  let rounds = 0
  // There is always something to deliver.
  const writing = (async (): Promise<void> => {
    for (; !stopping.signal.aborted; rounds++) await write(lockstep, 1)
  })()
  await eventually(() => rounds > 0)
  const draining1 = first.dispatcher.drain({ signal: stopping.signal, maxMs: 600_000 })
  await eventually(() => first.events.length > 0)
  while (second.events.length === 0) await second.dispatcher.drain({ maxEvents: 100 })
  stopping.abort()
  await writing
  expect((await draining1).ended).toBe('stopped')
  await first.dispatcher.drain()
  const all = [...first.events, ...second.events]
  expect(numbers(all).map((each) => each.toSorted((one, other) => one - other))).toEqual(KEYS.map(() => upTo(rounds)))
})
