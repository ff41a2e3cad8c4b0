import { randomUUID } from 'node:crypto'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import {
  DRIVERS,
  failureOf,
  retriesDuring,
  type Signal,
  signal,
  testBench,
} from '../../tools/server/testing/workbench.ts'
import type { InboxEvent, InboxVerdict, Isolation, Lockstep, Transaction } from '../index.ts'

/** Transactions that meet at one stream. Each test makes its order happen; none hopes for it. */

const bench = await testBench()

// Without a unique key: an effect that happened twice is there twice.
beforeAll(() => bench.admin.query('CREATE TABLE effects (stream text NOT NULL, seq integer NOT NULL)'))
afterEach(() => bench.admin.query('TRUNCATE effects'))

const ISOLATIONS = ['read committed', 'repeatable read', 'serializable'] as const
const CONSUMER = 'portfolios'

async function effect(tx: Transaction, { key, seq }: InboxEvent): Promise<void> {
  await tx.query('INSERT INTO effects VALUES ($1, $2)', [key, seq])
}

async function effectsOf({ key }: InboxEvent): Promise<number[]> {
  const { rows } = await bench.admin.query<{ seq: number }>('SELECT seq FROM effects WHERE stream = $1 ORDER BY seq', [
    key,
  ])
  return rows.map(({ seq }) => seq)
}

describe.each(DRIVERS)('concurrent deliveries of one stream, %s', (driver) => {
  let streams = 0
  const eventsOf = (): ((seq: number) => InboxEvent) => {
    const [name, ids] = [`${driver}-${++streams}`, [] as string[]]
    return (seq) => ({ topic: 'trades', key: name, seq, id: (ids[seq] ??= randomUUID()) })
  }
  const handle = (lockstep: Lockstep, event: InboxEvent, isolation: Isolation): Promise<InboxVerdict> =>
    lockstep.inbox.consumer(CONSUMER).handle(event, { isolation }, effect)

  /** Accepts an event and stays open until the test says how to end: comes back when it was accepted. */
  async function accepting(
    lockstep: Lockstep,
    event: InboxEvent,
    isolation: Isolation,
  ): Promise<(ending: 'commit' | 'rollback') => Promise<void>> {
    const [accepted, end]: [Signal, Signal] = [signal(), signal()]
    let fails = false
    const pending = lockstep.inbox.consumer(CONSUMER).handle(event, { isolation }, async (tx) => {
      await effect(tx, event)
      accepted.give()
      await end.given
      if (fails) throw new Error('rolled back')
    })
    await Promise.race([accepted.given, pending])
    return async (ending) => {
      fails = ending === 'rollback'
      end.give()
      if (fails) await expect(pending).rejects.toThrow('rolled back')
      else expect(await pending).toBe('first')
    }
  }

  describe.each(ISOLATIONS)('%s', (isolation) => {
    test.each([0, 3])('have one effect for 32 deliveries of one event, after %i before it', async (before) => {
      const clients = [bench.open(driver, { max: 8 }).lockstep, bench.open(driver, { max: 8 }).lockstep]
      const event = eventsOf()
      const [one] = clients as [Lockstep]
      for (let seq = 1; seq <= before; seq++) await handle(one, event(seq), isolation)
      const next = event(before + 1)
      const verdicts = await Promise.all(
        Array.from({ length: 32 }, (_, n) => handle(clients[n % 2] as Lockstep, next, isolation)),
      )
      expect(verdicts.filter((verdict) => verdict === 'first')).toHaveLength(1)
      expect(verdicts.filter((verdict) => verdict === 'duplicate')).toHaveLength(31)
      expect((await effectsOf(next)).filter((seq) => seq === next.seq)).toEqual([next.seq])
    })

    test.each([
      ['the first of all', 0],
      ['a later one', 2],
    ])('do not report %s as a duplicate before it is committed', async (_name, before) => {
      const { lockstep } = bench.open(driver)
      const event = eventsOf()
      for (let seq = 1; seq <= before; seq++) await handle(lockstep, event(seq), isolation)
      const next = event(before + 1)
      const end = await accepting(lockstep, next, isolation)
      const second = handle(lockstep, next, isolation)
      await bench.lockWaits(1)
      const { reasons } = await retriesDuring(async () => {
        await end('commit')
        expect(await second).toBe('duplicate')
      })
      expect(reasons).toEqual(isolation === 'read committed' ? [] : ['40001'])
      expect(await effectsOf(next)).toHaveLength(before + 1)
    })

    test.each([
      ['the first of all', 0],
      ['a later one', 2],
    ])('accept %s again when its transaction fails', async (_name, before) => {
      const { lockstep } = bench.open(driver)
      const event = eventsOf()
      for (let seq = 1; seq <= before; seq++) await handle(lockstep, event(seq), isolation)
      const next = event(before + 1)
      const end = await accepting(lockstep, next, isolation)
      const second = handle(lockstep, next, isolation)
      await bench.lockWaits(1)
      await end('rollback')
      expect(await second).toBe('first')
      expect(await effectsOf(next)).toHaveLength(before + 1)
    })

    test.each([
      ['the first of all', 0],
      ['a later one', 2],
    ])('report the successor of %s as a gap only when its transaction fails', async (_name, before) => {
      const { lockstep } = bench.open(driver)
      const event = eventsOf()
      for (let seq = 1; seq <= before; seq++) await handle(lockstep, event(seq), isolation)
      const failing = await accepting(lockstep, event(before + 1), isolation)
      const early = failureOf(handle(lockstep, event(before + 2), isolation))
      await bench.lockWaits(1)
      await failing('rollback')
      expect(await early).toMatchObject({ code: 'LOCKSTEP_INBOX_GAP', expected: before + 1, seq: before + 2 })

      const end = await accepting(lockstep, event(before + 1), isolation)
      const successor = handle(lockstep, event(before + 2), isolation)
      await bench.lockWaits(1)
      await end('commit')
      expect(await successor).toBe('first')
      expect(await effectsOf(event(1))).toHaveLength(before + 2)
    })

    test('do not make a duplicate of a committed event wait', async () => {
      const { lockstep } = bench.open(driver)
      const event = eventsOf()
      await handle(lockstep, event(1), isolation)
      await handle(lockstep, event(2), isolation)
      const end = await accepting(lockstep, event(3), isolation)
      expect(await handle(lockstep, event(1), isolation)).toBe('duplicate')
      expect(await handle(lockstep, event(2), isolation)).toBe('duplicate')
      await end('commit')
    })

    test('have every effect once for many events, each delivered several times', async () => {
      const lockstep = bench.open(driver, { max: 8 }).lockstep
      const event = eventsOf()
      const count = 12
      /** As a broker does: what is not acknowledged comes again. */
      const deliver = async (seq: number): Promise<void> => {
        for (;;) {
          try {
            await lockstep.inbox.consumer(CONSUMER).handle(event(seq), { isolation, retry: { attempts: 100 } }, effect)
            return
          } catch (error) {
            expect(error).toMatchObject({ code: 'LOCKSTEP_INBOX_GAP', seq })
          }
        }
      }
      const deliveries = Array.from({ length: count * 3 }, (_, n) => deliver(count - Math.floor(n / 3)))
      await Promise.all(deliveries)
      expect(await effectsOf(event(1))).toEqual(Array.from({ length: count }, (_, n) => n + 1))
    })

    test('do not begin a stream by a caught gap', async () => {
      const { lockstep } = bench.open(driver)
      const event = eventsOf()
      const [caught, end] = [signal(), signal()]
      const gap = lockstep.transaction({ isolation }, async (tx) => {
        await expect(lockstep.inbox.consumer(CONSUMER).accept(tx, event(5))).rejects.toMatchObject({ expected: 1 })
        caught.give()
        await end.given
      })
      await caught.given
      const begins = lockstep.inbox.consumer(CONSUMER).handle(event(3), { isolation, start: 3 }, effect)
      await bench.lockWaits(1)
      end.give()
      await gap
      expect(await begins).toBe('first')
      expect(await lockstep.inbox.consumer(CONSUMER).position(event(3))).toEqual({ seq: 3, id: event(3).id })
    })

    test('begin the stream once, by startAt() or by the first event', async () => {
      const { lockstep } = bench.open(driver)
      const inbox = lockstep.inbox.consumer(CONSUMER)
      const event = eventsOf()
      const end = await accepting(lockstep, event(1), isolation)
      const late = lockstep.transaction({ isolation }, (tx) => inbox.startAt(tx, event(1), 10))
      await bench.lockWaits(1)
      await end('commit')
      expect(await late).toBe(false)
      expect(await inbox.position(event(1))).toMatchObject({ seq: 1 })
    })
  })

  describe.each(['repeatable read', 'serializable'] as const)(
    'a snapshot that is older than the row, %s',
    (isolation) => {
      /** Accepts in a transaction whose snapshot was taken before `meanwhile`. */
      const late = (
        lockstep: Lockstep,
        meanwhile: () => Promise<unknown>,
        event: InboxEvent,
      ): Promise<InboxVerdict> => {
        let attempts = 0
        return lockstep.transaction({ isolation }, async (tx) => {
          await tx.query('SELECT 1')
          if (++attempts === 1) await meanwhile()
          return lockstep.inbox.consumer(CONSUMER).accept(tx, event)
        })
      }
      /** As another process: inside a transaction of the same Lockstep it would be refused. */
      const elsewhere = (): Lockstep => bench.open(driver).lockstep

      test.each([
        ['the same event', [1], [2], 2, 'duplicate'],
        ['the same event, the first of all', [], [1], 1, 'duplicate'],
        ['what looks like a gap and is next', [1], [2, 3], 4, 'first'],
        ['what looks like a gap and is a duplicate', [1], [2, 3], 3, 'duplicate'],
        ['what looks like a gap in a new stream', [], [1, 2], 3, 'first'],
      ] as const)('retry %s after a serialization failure', async (_name, before, meanwhile, seq, verdict) => {
        const { lockstep } = bench.open(driver)
        const other = elsewhere()
        const event = eventsOf()
        for (const each of before) await handle(other, event(each), 'read committed')
        const { value, reasons } = await retriesDuring(() =>
          late(
            lockstep,
            // Outside of the frame of the transaction: another Lockstep, as another process.
            async () => {
              for (const each of meanwhile) await handle(other, event(each), 'read committed')
            },
            event(seq),
          ),
        )
        expect(value).toBe(verdict)
        expect(reasons).toEqual(['40001'])
      })

      test('report the conflict without a retry', async () => {
        const { lockstep } = bench.open(driver)
        const other = elsewhere()
        const event = eventsOf()
        await handle(other, event(1), 'read committed')
        const error = await failureOf(
          lockstep.transaction({ isolation, retry: false }, async (tx) => {
            await tx.query('SELECT 1')
            await handle(other, event(2), 'read committed')
            return lockstep.inbox.consumer(CONSUMER).accept(tx, event(2))
          }),
        )
        expect(error).toMatchObject({ code: '40001' })
        expect(await effectsOf(event(1))).toEqual([1, 2])
      })

      test('do not conflict with a declared lock', async () => {
        const clients = [bench.open(driver).lockstep, bench.open(driver).lockstep]
        const event = eventsOf()
        await handle(clients[0] as Lockstep, event(1), isolation)
        const { value, reasons } = await retriesDuring(() =>
          Promise.all(
            Array.from({ length: 16 }, (_, n) =>
              (clients[n % 2] as Lockstep).inbox
                .consumer(CONSUMER)
                .handle(event(2), { isolation, lock: `Portfolio:${event(2).key}` }, effect),
            ),
          ),
        )
        expect(value.filter((verdict) => verdict === 'first')).toHaveLength(1)
        expect(reasons).toEqual([])
      })
    },
  )

  test('have two effects without the inbox (control)', async () => {
    const { lockstep } = bench.open(driver)
    const event = eventsOf()(1)
    const met = signal()
    let looked = 0
    const naive = (): Promise<void> =>
      lockstep.transaction({}, async (tx) => {
        const { rows } = await tx.query('SELECT 1 FROM effects WHERE stream = $1 AND seq = $2', [event.key, event.seq])
        if (++looked === 2) met.give()
        await met.given
        if (rows.length === 0) await effect(tx, event)
      })
    await Promise.all([naive(), naive()])
    expect(await effectsOf(event)).toEqual([1, 1])
  })

  test('retry a deadlock between two streams in opposite orders', async () => {
    const [one, two] = [bench.open(driver).lockstep, bench.open(driver).lockstep]
    const [left, right] = [eventsOf(), eventsOf()]
    for (const each of [left(1), right(1)]) await handle(one, each, 'read committed')
    const met = signal()
    let taken = 0
    const take = (lockstep: Lockstep, order: readonly InboxEvent[]): Promise<InboxVerdict[]> =>
      lockstep.transaction({}, async (tx) => {
        const verdicts: InboxVerdict[] = []
        for (const each of order) {
          verdicts.push(await lockstep.inbox.consumer(CONSUMER).accept(tx, each))
          if (++taken === 2) met.give()
          await met.given
        }
        return verdicts
      })
    const { value, reasons } = await retriesDuring(() =>
      Promise.all([take(one, [left(2), right(2)]), take(two, [right(2), left(2)])]),
    )
    expect(value.flat().toSorted()).toEqual(['duplicate', 'duplicate', 'first', 'first'])
    // Once more, where the one that is tried again comes too early.
    expect([...new Set(reasons)]).toEqual(['40P01'])
  })
})
