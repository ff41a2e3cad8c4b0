import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import {
  type BatchVerdict,
  HistoryDivergedError,
  InboxGapError,
  type InboxEvent,
  InvalidOptionError,
  type Lockstep,
} from '../index.ts'

const bench = await testBench()

const eventOf = (key: string, seq: number, more: Partial<InboxEvent> = {}): InboxEvent => ({
  topic: 'trades',
  key,
  seq,
  id: randomUUID(),
  ...more,
})
const run = (key: string, first: number, count: number): InboxEvent[] =>
  Array.from({ length: count }, (_, index) => eventOf(key, first + index))
/** A verdict, or the name of the error. */
const shown = (verdicts: readonly BatchVerdict[]): string[] =>
  verdicts.map((verdict) => (typeof verdict === 'string' ? verdict : verdict.name))

describe.each(DRIVERS)('many events at once, %s', (driver) => {
  let consumers = 0
  const open = (): {
    lockstep: Lockstep
    consumer: string
    accept: (events: readonly InboxEvent[], start?: number) => Promise<string[]>
  } => {
    const { lockstep } = bench.open(driver)
    const consumer = `${driver}-${++consumers}`
    return {
      lockstep,
      consumer,
      accept: async (events, start = 1) =>
        shown(
          await lockstep.transaction({}, (tx) => lockstep.inbox.consumer(consumer).acceptMany(tx, events, { start })),
        ),
    }
  }

  test('gives the same verdicts as one by one, for random batches', async () => {
    const { lockstep, consumer } = open()
    const one = lockstep.inbox.consumer(`${consumer}-one`)
    const many = lockstep.inbox.consumer(`${consumer}-many`)
    const history = new Map<string, InboxEvent[]>()
    let seed = 7
    const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below
    for (let round = 0; round < 60; round++) {
      const batch = Array.from({ length: 1 + random(4) }, (_, stream) => {
        const key = `k${stream}-${random(3)}`
        const known = history.get(key) ?? []
        history.set(key, known)
        const first = Math.max(1, known.length + 1 - random(3) + (random(8) === 0 ? 2 : 0))
        return Array.from({ length: 1 + random(4) }, (_unused, index) => {
          const seq = first + index
          const event = known[seq - 1]
          // Its number was assigned again: with another id, or in another generation as well.
          const again = { id: randomUUID(), ...(random(2) === 0 ? {} : { generation: 1 + Math.floor(round / 15) + 1 }) }
          if (event !== undefined) return random(12) === 0 ? { ...event, ...again } : event
          const late = known.length > 0 && random(20) === 0 && seq === first
          const generation = late ? 0 : 1 + Math.floor(round / 15)
          const made = eventOf(key, seq, { generation, ...(random(6) === 0 ? { tombstone: 'dead' } : {}) })
          if (seq === known.length + 1) known.push(made)
          return made
        })
      }).flat()
      const together = shown(await lockstep.transaction({}, (tx) => many.acceptMany(tx, batch)))
      const stopped = new Set<string>()
      const apart: string[] = []
      for (const event of batch) {
        if (stopped.has(event.key)) {
          apart.push('held')
          continue
        }
        const verdict = await one.handle(event, {}, () => undefined).catch((error: Error) => error.name)
        if (verdict === 'InboxGapError' || verdict === 'HistoryDivergedError') stopped.add(event.key)
        apart.push(verdict)
      }
      expect(together).toEqual(apart)
      for (const key of new Set(batch.map((event) => event.key))) {
        const stream = { topic: 'trades', key }
        expect(await many.position(stream)).toEqual(await one.position(stream))
        // What neither has was not begun: the next round begins with what there is.
        history.set(key, (history.get(key) ?? []).slice(0, (await one.position(stream))?.seq ?? 0))
      }
    }
  })

  test('accepts the new half of a batch whose other half came before', async () => {
    const { accept } = open()
    const events = run('a', 1, 6)
    expect(await accept(events.slice(0, 4))).toEqual(Array(4).fill('first'))
    expect(await accept(events.slice(2))).toEqual(['duplicate', 'duplicate', 'first', 'first'])
    expect(await accept(events)).toEqual(Array(6).fill('duplicate'))
  })

  test('rejects a batch with a divergence, and moves nothing', async () => {
    const { lockstep, consumer, accept } = open()
    const events = run('a', 1, 3)
    await accept(events)
    const other = [events[1] as InboxEvent, eventOf('a', 3), eventOf('a', 4)]
    const verdicts = await lockstep.transaction({}, (tx) => lockstep.inbox.consumer(consumer).acceptMany(tx, other))
    expect(verdicts[1]).toBeInstanceOf(HistoryDivergedError)
    expect(shown(verdicts)).toEqual(['duplicate', 'HistoryDivergedError', 'held'])
    expect(await lockstep.inbox.consumer(consumer).position(other[0] as InboxEvent)).toEqual({
      seq: 3,
      id: events[2]?.id,
    })
  })

  test('does not begin a stream with a gap', async () => {
    const { lockstep, consumer, accept } = open()
    const events = run('a', 5, 2)
    const verdicts = await lockstep.transaction({}, (tx) => lockstep.inbox.consumer(consumer).acceptMany(tx, events))
    expect(verdicts[0]).toBeInstanceOf(InboxGapError)
    expect(verdicts[0]).toMatchObject({ expected: 1, seq: 5 })
    expect(await lockstep.inbox.consumer(consumer).position(events[0] as InboxEvent)).toBeUndefined()
    expect(await accept(events, 5)).toEqual(['first', 'first'])
    expect(await accept([...run('b', 2, 3)], 3)).toEqual(['duplicate', 'first', 'first'])
  })

  test('avoids a deadlock between batches in opposite orders', async () => {
    const { lockstep, consumer } = open()
    const keys = Array.from({ length: 20 }, (_, index) => `k${index}`)
    for (let round = 0; round < 10; round++) {
      const events = keys.map((key) => eventOf(key, round + 1))
      const one = async (list: readonly InboxEvent[]): Promise<string[]> =>
        shown(
          await lockstep.transaction({ retry: false }, (tx) => lockstep.inbox.consumer(consumer).acceptMany(tx, list)),
        )
      const [there, back] = await Promise.all([one(events), one(events.toReversed())])
      expect([...there, ...back].toSorted()).toEqual([...Array(20).fill('duplicate'), ...Array(20).fill('first')])
    }
  })

  test('makes concurrent callers wait, and judges by what was committed', async () => {
    const { lockstep, consumer, accept } = open()
    const inbox = lockstep.inbox.consumer(consumer)
    const accepted = signal()
    const goOn = signal()
    const first = run('a', 1, 3)
    const holding = lockstep.transaction({}, async (tx) => {
      await inbox.acceptMany(tx, first)
      accepted.give()
      await goOn.given
    })
    await accepted.given
    const waiting = [accept(run('a', 4, 1)), accept(first)]
    await bench.lockWaits(2)
    goOn.give()
    await holding
    expect(await Promise.all(waiting)).toEqual([['first'], ['duplicate', 'duplicate', 'duplicate']])
  })

  test('ends a transaction that is idle for too long', async () => {
    const { lockstep, consumer } = open()
    const inbox = lockstep.inbox.consumer(consumer)
    const goOn = signal()
    const accepted = signal()
    const stopped = failureOf(
      lockstep.transaction({ retry: false }, async (tx) => {
        await inbox.acceptMany(tx, run('a', 1, 1), { idleMs: 100 })
        accepted.give()
        await goOn.given
        await tx.query('SELECT 1')
      }),
    )
    await accepted.given
    const { lockstep: other } = bench.open(driver)
    expect(
      shown(await other.transaction({}, (tx) => other.inbox.consumer(consumer).acceptMany(tx, run('a', 1, 1)))),
    ).toEqual(['first'])
    goOn.give()
    expect(await stopped).toBeInstanceOf(Error)
    // The setting is local to the transaction: afterwards the session has its own again, and a shorter one is kept.
    await lockstep.transaction({}, async (tx) => {
      await tx.query("SET LOCAL idle_in_transaction_session_timeout = '2s'")
      await inbox.acceptMany(tx, run('b', 1, 1), { idleMs: 60_000 })
      const { rows } = await tx.query<Record<string, string>>('SHOW idle_in_transaction_session_timeout')
      expect(Object.values(rows[0] ?? {})).toEqual(['2s'])
    })
  })

  test('rejects invalid events before anything is sent', async () => {
    const { lockstep, consumer } = open()
    const inbox = lockstep.inbox.consumer(consumer)
    await lockstep.transaction({}, async (tx) => {
      expect(await inbox.acceptMany(tx, [])).toEqual([])
      for (const events of [
        undefined,
        [undefined],
        [eventOf('', 1)],
        [eventOf('a', 0)],
        [eventOf('a', 1, { id: 'no' })],
      ]) {
        await expect(inbox.acceptMany(tx, events as InboxEvent[])).rejects.toBeInstanceOf(InvalidOptionError)
      }
      const event = eventOf('a', 1)
      await expect(inbox.acceptMany(tx, [event], { start: 0 })).rejects.toBeInstanceOf(InvalidOptionError)
      await expect(inbox.acceptMany(tx, [event], { start: () => 1.5 })).rejects.toBeInstanceOf(InvalidOptionError)
      await expect(inbox.acceptMany(tx, [event], { idleMs: -1 })).rejects.toBeInstanceOf(InvalidOptionError)
      await expect(inbox.acceptMany({} as typeof tx, [event])).rejects.toBeInstanceOf(InvalidOptionError)
    })
  })
})
