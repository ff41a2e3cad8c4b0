import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { signal } from '../../tools/server/testing/workbench.ts'
import { defineEvents, type EventContracts, Lockstep } from '../index.ts'
import type { HandlingOptions } from './consumerOptions.ts'
import type { ConsumedEvent, EventHandler, ListHandler } from './handler.ts'

/** A consumer under test. */
export interface OpenConsumer {
  run(): Promise<void>
  stop(): Promise<void>
}

/** A consumer of its own database has the contracts of its Lockstep. */
export type TestedOptions = HandlingOptions & { readonly events?: EventContracts }

/** What a suite needs of one kind of consumer, and of what its events come from. */
export interface ConsumerBench {
  /** Sends this number of events of each key, keys mixed; the payload has the number. */
  send(topic: string, keys: readonly string[], count: number, from?: number): Promise<void>
  /** Delivers what was sent of a topic once more, where the broker can. */
  readonly sendAgain: ((topic: string) => Promise<void>) | undefined
  /** A consumer on a Lockstep, as a process of its own has it. */
  open(
    lockstep: Lockstep,
    name: string,
    topic: string,
    options: TestedOptions,
    handler: EventHandler | ListHandler,
  ): Promise<OpenConsumer>
  close(): Promise<void>
}

const KEYS = ['a', 'b', 'c', 'd', 'e']
const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1)

/** What every consumer promises, against the real thing that its events come from. */
export function describeConsumer(what: string, prepare: (database: string) => Promise<ConsumerBench>): void {
  describe(what, async () => {
    const database = await testDatabase()
    const pool = new pg.Pool({ connectionString: database.url, max: 12 })
    pool.on('error', () => undefined)
    const lockstep = new Lockstep(pool)
    let bench: ConsumerBench
    let [topic, name] = ['', '']

    beforeAll(async () => {
      await lockstep.migrate()
      await pool.query('CREATE TABLE effects (place bigserial PRIMARY KEY, topic text, key text, seq int)')
      bench = await prepare(database.url)
    }, 120_000)
    beforeEach(() => {
      const own = randomUUID().slice(0, 8)
      topic = `t-${own}`
      name = `c-${own}`
    })
    afterAll(async () => {
      await bench?.close()
      await lockstep.close()
      await pool.end()
    })

    const insert: EventHandler = async ({ topic: of, key, seq }, tx) =>
      void (await tx.query('INSERT INTO effects (topic, key, seq) VALUES ($1, $2, $3)', [of, key, seq]))
    /** The numbers of each key, in the order in which their effects were written. */
    const effects = async (): Promise<Record<string, number[]>> => {
      const { rows } = await pool.query<{ key: string; seq: number }>(
        'SELECT key, seq FROM effects WHERE topic = $1 ORDER BY place',
        [topic],
      )
      const order: Record<string, number[]> = {}
      for (const { key, seq } of rows) (order[key] ??= []).push(seq)
      return order
    }
    const inOrder = (count: number, keys = KEYS): Record<string, number[]> =>
      Object.fromEntries(keys.map((key) => [key, upTo(count)]))
    const expectEffects = (wanted: Record<string, number[]>): Promise<void> =>
      expect.poll(effects, { timeout: 60_000 }).toEqual(wanted)
    /** Runs it until the work is done. */
    const whileRunning = async (
      options: TestedOptions,
      handler: EventHandler | ListHandler,
      work: () => Promise<void>,
      of: Lockstep = lockstep,
    ): Promise<void> => {
      const consumer = await bench.open(of, name, topic, options, handler)
      const running = consumer.run()
      try {
        await Promise.race([work(), running])
      } finally {
        await consumer.stop()
        await running
      }
    }

    test('applies every event once, in order per key', async () => {
      await bench.send(topic, KEYS, 30)
      await whileRunning({}, insert, async () => {
        await expectEffects(inOrder(30))
        await bench.send(topic, KEYS, 10, 31)
        await expectEffects(inOrder(40))
      })
      expect(await lockstep.inbox.consumer(name).position({ topic, key: 'a' })).toMatchObject({ seq: 40 })
    })

    test('gives lists of consecutive events of one key', async () => {
      await bench.send(topic, KEYS, 30)
      const lists: string[] = []
      const handler: ListHandler = async (events, tx) => {
        lists.push([...new Set(events.map(({ key }) => key))].join())
        for (const event of events) await insert(event, tx)
      }
      await whileRunning({ lists: true }, handler, () => expectEffects(inOrder(30)))
      for (const keys of lists) expect(KEYS).toContain(keys)
    })

    test('handles keys in parallel, and the events of a key one after the other', async () => {
      const [met, atWork] = [signal(), new Map<string, number>()]
      let mostOfKey = 0
      const handler: EventHandler = async (event, tx) => {
        atWork.set(event.key, (atWork.get(event.key) ?? 0) + 1)
        mostOfKey = Math.max(mostOfKey, ...atWork.values())
        if (atWork.size >= 3) met.give()
        await met.given
        await insert(event, tx)
        atWork.set(event.key, (atWork.get(event.key) ?? 1) - 1)
      }
      await bench.send(topic, KEYS, 3)
      await whileRunning({ concurrency: 5, sharedTransactions: false }, handler, () => expectEffects(inOrder(3)))
      expect(mostOfKey).toBe(1)
    })

    test('stops only the key of an event that fails, and continues with it later', async () => {
      let broken = true
      const failed = signal()
      const handler: EventHandler = async (event, tx) => {
        await insert(event, tx)
        if (!broken || event.key !== 'c' || event.seq !== 4) return
        failed.give()
        throw new Error('no such account')
      }
      await bench.send(topic, KEYS, 10)
      await whileRunning({}, handler, async () => {
        await expectEffects({ ...inOrder(10), c: [1, 2, 3] })
        await failed.given
        broken = false
        await expectEffects(inOrder(10))
      })
    })

    test('hands on payloads of the newest version, and stops the key of one that does not fit', async () => {
      const refused = new Set<number>()
      let most = 2
      const schema = {
        '~standard': {
          version: 1 as const,
          vendor: 'test',
          validate(value: unknown) {
            const { number } = value as { number: number }
            if (number <= most) return { value: { number: BigInt(number) } }
            refused.add(number)
            return { issues: [{ message: 'too large', path: ['number'] }] }
          },
        },
      }
      const upcast = { 1: ({ seq }: { seq: number }) => ({ number: seq }) }
      const events = defineEvents({ [topic]: { schema, version: 2, upcast } }) as EventContracts
      await using checking = new Lockstep(pool, { events }) as Lockstep
      const payloads = new Set<unknown>()
      const handler: EventHandler = async (event, tx) => {
        payloads.add((event.payload as { number: bigint }).number)
        await insert(event, tx)
      }
      await bench.send(topic, ['a', 'b'], 4)
      await whileRunning(
        { events },
        handler,
        async () => {
          await expectEffects(inOrder(2, ['a', 'b']))
          await expect.poll(() => refused.has(3), { timeout: 60_000 }).toBe(true)
          most = 4
          await expectEffects(inOrder(4, ['a', 'b']))
        },
        checking,
      )
      expect(payloads).toEqual(new Set([1n, 2n, 3n, 4n]))
      expect(await effects()).toEqual(inOrder(4, ['a', 'b']))
    })

    test('leaves nothing behind of a transaction that was lost in the middle', async () => {
      let kills = 3
      const handler: EventHandler = async (event, tx) => {
        await insert(event, tx)
        if (event.seq % 5 !== 0 || kills-- <= 0) return
        await tx.query('SELECT pg_terminate_backend(pg_backend_pid())')
      }
      await bench.send(topic, KEYS, 20)
      await whileRunning({}, handler, () => expectEffects(inOrder(20)))
    })

    test('ends what it has begun when it is stopped, and leaves the rest', async () => {
      const [begun, goOn] = [signal(), signal()]
      const handler: EventHandler = async (event, tx) => {
        begun.give()
        await goOn.given
        await insert(event, tx)
      }
      await bench.send(topic, ['a'], 3)
      const consumer = await bench.open(lockstep, name, topic, { batch: 1 }, handler)
      const running = consumer.run()
      await begun.given
      const stopped = consumer.stop()
      goOn.give()
      await stopped
      await running
      const left = (await effects())['a'] ?? []
      expect(left).toEqual(upTo(left.length))
      expect(left.length).toBeGreaterThanOrEqual(1)
      await whileRunning({}, insert, () => expectEffects(inOrder(3, ['a'])))
    })

    test('lets two of a name run at once, and takes over from one that ends', async () => {
      const other = new Lockstep(pool)
      const open = (of: Lockstep): Promise<OpenConsumer> => bench.open(of, name, topic, { batch: 5 }, insert)
      const both = [await open(lockstep), await open(other)] as const
      const running = both.map((consumer) => consumer.run())
      try {
        await bench.send(topic, KEYS, 20)
        await expectEffects(inOrder(20))
        await both[0].stop()
        await bench.send(topic, KEYS, 20, 21)
        await expectEffects(inOrder(40))
      } finally {
        for (const consumer of both) await consumer.stop()
        await Promise.all(running)
        await other.close()
      }
    })

    test('limits the transactions of a tenant, and gives the others their places', async () => {
      const goOn = signal()
      let [atWork, most] = [0, 0]
      const handler: EventHandler = async (event, tx) => {
        if (event.key.startsWith('slow')) {
          most = Math.max(most, ++atWork)
          await goOn.given
          atWork--
        }
        await insert(event, tx)
      }
      const slow = ['slow1', 'slow2', 'slow3', 'slow4']
      const limitBy = { tenant: ({ key }: ConsumedEvent) => key.slice(0, 4), concurrency: 2 }
      await bench.send(topic, slow, 2)
      await bench.send(topic, KEYS, 5)
      await whileRunning({ concurrency: 3, limitBy, sharedTransactions: false }, handler, async () => {
        await expectEffects(inOrder(5))
        goOn.give()
        await expectEffects({ ...inOrder(5), ...inOrder(2, slow) })
      })
      expect(most).toBeGreaterThanOrEqual(1)
      expect(most).toBeLessThanOrEqual(2)
    })

    test('does nothing for events that come again', async ({ skip }) => {
      skip(bench.sendAgain === undefined, 'what it reads from delivers nothing twice')
      await bench.send(topic, KEYS, 10)
      await whileRunning({}, insert, async () => {
        await expectEffects(inOrder(10))
        await bench.sendAgain?.(topic)
        await bench.send(topic, KEYS, 5, 11)
        await expectEffects(inOrder(15))
      })
    })
  })
}
