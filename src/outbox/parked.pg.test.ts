import { describe, expect, test } from 'vitest'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, failureOf, signal } from '../../tools/server/testing/workbench.ts'
import {
  type Delivery,
  InvalidOptionError,
  type Lockstep,
  type OutboxEvent,
  perEvent,
  StreamNotParkedError,
} from '../index.ts'
import { on } from '../observe/index.ts'

/** An event that the sink refuses stops its own stream, and nothing else. */

const bench = await outboxBench()

async function enqueue(lockstep: Lockstep, ...portfolios: string[]): Promise<void> {
  await lockstep.transaction({}, (tx) =>
    tx.enqueueMany(portfolios.map((key, n) => ({ topic: 'trades', key, payload: { n } }))),
  )
}

/** Refuses an event while the condition says so, and whatever comes after it in its stream. */
function refusing(bad: (event: OutboxEvent) => boolean): (events: readonly OutboxEvent[]) => Delivery[] {
  return (events) => {
    const stopped = new Set<string>()
    return events.map((event) => {
      if (stopped.has(event.key)) return { unknown: 'behind it' }
      if (event.tombstone !== undefined || !bad(event)) return 'sent'
      stopped.add(event.key)
      return { refused: 'poison' }
    })
  }
}

const of = (delivered: readonly string[], key: string): string[] =>
  delivered.filter((each) => each.startsWith(`trades/${key}#`)).map((each) => each.split('#')[1] as string)
const upTo = (count: number): string[] => Array.from({ length: count }, (_, n) => String(n + 1))

describe.each(DRIVERS)('parked streams, %s', (driver) => {
  test('stop at a refused event, let the others continue, and catch up in order', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    let poisonous = true
    const run = dispatching(lockstep, {
      shards: 1,
      attempts: 1_000_000,
      sink: refusing(({ key, seq }) => poisonous && key === 'bad' && seq === 2),
    })
    await enqueue(lockstep, 'bad', 'a', 'bad', 'b', 'bad')
    await run.until(3)
    for (let round = 0; round < 20; round++) await enqueue(lockstep, 'a', 'bad', 'b')
    await eventually(() => of(run.delivered, 'a').length + of(run.delivered, 'b').length === 42)
    expect(of(run.delivered, 'bad')).toEqual(['1'])
    await eventually(async () => (await lockstep.outbox.parked())[0]?.events === 22)
    const [parked] = await lockstep.outbox.parked()
    expect(parked).toMatchObject({ topic: 'trades', key: 'bad', state: 'parked', head: 2, reason: 'poison' })
    poisonous = false
    await eventually(() => of(run.delivered, 'bad').length === 23)
    await eventually(async () => (await lockstep.outbox.parked()).length === 0)
    await enqueue(lockstep, 'bad')
    await eventually(() => of(run.delivered, 'bad').length === 24)
    await run.stop()
    expect(of(run.delivered, 'bad')).toEqual(upTo(24))
  })

  test('are blocked after `attempts`, until an operator retries or skips', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const told: string[] = []
    bench.cleanUp(on('outbox.parked', ({ state, attempts }) => told.push(`${state} ${attempts}`)))
    let poisonous = true
    const run = dispatching(lockstep, {
      attempts: 3,
      sink: refusing(({ key, seq }) => key === 'bad' && (seq === 2 || (seq === 3 && poisonous))),
    })
    await enqueue(lockstep, 'bad', 'bad', 'bad', 'bad')
    const state = async (): Promise<string | undefined> =>
      (await lockstep.outbox.parked()).map((each) => `${each.state} ${each.head}`)[0]
    await eventually(async () => (await state()) === 'blocked 2')
    expect(told).toEqual(['parked 1', 'parked 2', 'blocked 3'])
    const stream = { topic: 'trades', key: 'bad' }
    await lockstep.outbox.skip({ ...stream, seq: 2 }, { reason: 'a wrong price' })
    await eventually(async () => (await state()) === 'blocked 3')
    poisonous = false
    await lockstep.outbox.retry(stream)
    await eventually(() => of(run.delivered, 'bad').length === 4)
    await run.stop()
    expect(of(run.delivered, 'bad')).toEqual(['1', '2†', '3', '4'])
    const skipped = run.events.find(({ tombstone }) => tombstone !== undefined)
    expect(skipped).toMatchObject({ seq: 2, tombstone: 'skipped', payload: undefined })
    expect(skipped?.body).toHaveLength(0)
    const { rows } = await bench.admin.query('SELECT verb, seq::int, reason FROM lockstep.outbox_audit ORDER BY id')
    expect(rows).toEqual([
      { verb: 'skip', seq: 2, reason: 'a wrong price' },
      { verb: 'retry', seq: null, reason: null },
    ])
  })

  test.each([
    ['skip', 'skipped', 0],
    ['deadLetter', 'dead', 1],
  ] as const)('go on with a tombstone after giving up by %s', async (giveUp, tombstone, dead) => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const run = dispatching(lockstep, {
      attempts: 2,
      giveUp: { trades: giveUp },
      sink: refusing(({ seq }) => seq === 2),
    })
    await enqueue(lockstep, 'bad', 'bad', 'bad')
    await run.until(3)
    await run.stop()
    expect(run.delivered).toEqual(['trades/bad#1', 'trades/bad#2†', 'trades/bad#3'])
    expect(run.events[1]?.tombstone).toBe(tombstone)
    const { rows } = await bench.admin.query('SELECT seq::int, payload, reason FROM lockstep.outbox_dead')
    expect(rows).toEqual(dead === 0 ? [] : [{ seq: 2, payload: { n: 1 }, reason: 'poison' }])
  })

  test('find the event for which the sink throws', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    let poisonous = true
    const run = dispatching(lockstep, {
      shards: 1,
      sink: (events) => {
        if (poisonous && events.some(({ key, seq }) => key === 'bad' && seq === 2)) throw new Error('cannot read it')
      },
    })
    await enqueue(lockstep, 'bad', 'a', 'bad', 'bad', 'b', 'a')
    await run.until(4)
    expect(run.delivered.toSorted()).toEqual(['trades/a#1', 'trades/a#2', 'trades/b#1', 'trades/bad#1'])
    poisonous = false
    await lockstep.outbox.retry({ topic: 'trades', key: 'bad' }).catch(() => undefined)
    await run.until(6)
    await run.stop()
    expect(of(run.delivered, 'bad')).toEqual(['1', '2', '3'])
  })

  test('stop at the event that throws, with perEvent', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    let poisonous = true
    const seen: string[] = []
    const stopping = new AbortController()
    const sink = perEvent({}, async ({ key, seq }) => {
      await Promise.resolve()
      if (poisonous && key === 'bad' && seq === 2) throw new Error('no')
      seen.push(`${key}${seq}`)
    })
    const running = lockstep.outbox
      .dispatcher({ sink, backoffMs: { first: 5, longest: 20 }, attempts: 1000 })
      .run({ signal: stopping.signal })
    await enqueue(lockstep, 'bad', 'bad', 'bad', 'a', 'b')
    await eventually(() => seen.length === 3)
    poisonous = false
    await eventually(() => seen.length === 5)
    stopping.abort()
    await running
    expect(seen.filter((each) => each.startsWith('bad'))).toEqual(['bad1', 'bad2', 'bad3'])
  })

  test('are held by pause, and continue in order after resume', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const run = dispatching(lockstep)
    await enqueue(lockstep, 'a', 'b')
    await run.until(2)
    const stream = { topic: 'trades', key: 'a' }
    await lockstep.outbox.pause(stream, { reason: 'maintenance' })
    for (let round = 0; round < 5; round++) await enqueue(lockstep, 'a', 'b')
    await eventually(() => of(run.delivered, 'b').length === 6)
    await eventually(async () => (await lockstep.outbox.parked())[0]?.events === 5)
    expect(of(run.delivered, 'a')).toEqual(['1'])
    expect(await failureOf(lockstep.outbox.retry(stream))).toBeInstanceOf(StreamNotParkedError)
    await lockstep.outbox.resume(stream)
    await eventually(() => of(run.delivered, 'a').length === 6)
    await run.stop()
    expect(of(run.delivered, 'a')).toEqual(upTo(6))
    expect(await failureOf(lockstep.outbox.resume(stream))).toBeInstanceOf(StreamNotParkedError)
    expect(await failureOf(lockstep.outbox.retry({ ...stream, dispatcher: 'nobody' }))).toBeInstanceOf(
      StreamNotParkedError,
    )
    expect(await failureOf(lockstep.outbox.skip({ ...stream, seq: 1 }, { reason: ' ' }))).toBeInstanceOf(
      InvalidOptionError,
    )
  })

  test('drain 10,000 events in order, over a change of owners', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    let poisonous = true
    const sink = refusing(({ seq }) => poisonous && seq === 1)
    const one = dispatching(lockstep, { attempts: 1_000_000, sink })
    for (let round = 0; round < 5; round++) await enqueue(lockstep, ...Array.from({ length: 2000 }, () => 'bad'))
    await eventually(async () => (await lockstep.outbox.parked())[0]?.events === 10_000)
    poisonous = false
    await one.until(1000)
    await one.stop()
    const two = dispatching(bench.open(driver, { max: 6 }).lockstep, { sink })
    await enqueue(lockstep, 'bad')
    await eventually(() => one.delivered.length + two.delivered.length >= 10_001)
    await two.stop()
    const all = [...of(one.delivered, 'bad'), ...of(two.delivered, 'bad')]
    expect(all).toEqual(upTo(10_001))
  })

  test('do not delay other streams during a slow retry', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const [trying, goOn] = [signal(), signal()]
    let tries = 0
    const run = dispatching(lockstep, {
      shards: 1,
      async sink(events) {
        const refuse = refusing(({ key }) => key === 'bad' && tries < 2)
        if (events.some(({ key }) => key === 'bad') && ++tries === 2) {
          trying.give()
          await goOn.given
        }
        return refuse(events)
      },
    })
    await enqueue(lockstep, 'bad', 'a')
    await trying.given
    for (let round = 0; round < 10; round++) await enqueue(lockstep, 'a', 'bad')
    await eventually(() => of(run.delivered, 'a').length === 11)
    goOn.give()
    await eventually(() => of(run.delivered, 'bad').length === 11)
    await run.stop()
    expect(of(run.delivered, 'bad')).toEqual(upTo(11))
  })

  test('keep their numbers when erased, and go out as tombstones', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    await enqueue(lockstep, 'a', 'b', 'a')
    expect(await lockstep.outbox.erase({ topic: 'trades', key: 'a' }, { reason: 'asked for' })).toEqual({ erased: 2 })
    await enqueue(lockstep, 'a')
    const run = dispatching(lockstep)
    await run.until(4)
    await run.stop()
    expect(of(run.delivered, 'a')).toEqual(['1†', '2†', '3'])
    expect(run.events.find(({ key }) => key === 'a')?.tombstone).toBe('erased')
    const { rows } = await bench.admin.query(
      `SELECT count(*)::int AS n FROM lockstep.outbox_events WHERE key = 'a' AND payload IS NOT NULL`,
    )
    expect(rows).toEqual([{ n: 1 }])
  })
})
