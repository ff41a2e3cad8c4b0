import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, note, testBench } from '../../tools/server/testing/workbench.ts'
import {
  HistoryDivergedError,
  type InboxConsumer,
  type InboxEvent,
  InboxGapError,
  type InboxStream,
  InvalidOptionError,
  key,
  Lockstep,
  NestedTransactionError,
  type Transaction,
} from '../index.ts'

const bench = await testBench()

describe.each(DRIVERS)('the inbox, %s', (driver) => {
  let streams = 0
  /** Of a stream that no other test has. */
  const eventsOf = (topic = 'trades'): ((seq: number, more?: Partial<InboxEvent>) => InboxEvent) => {
    const stream = `${driver}-${++streams}`
    return (seq, more) => ({ topic, key: stream, seq, id: randomUUID(), ...more })
  }
  const open = (consumer = 'portfolios'): { lockstep: Lockstep; inbox: InboxConsumer } => {
    const { lockstep } = bench.open(driver)
    return { lockstep, inbox: lockstep.inbox.consumer(consumer) }
  }
  const noting = async (tx: Transaction, event: InboxEvent): Promise<void> => note(tx, `${event.key} #${event.seq}`)

  test('accepts events in order, and moves the position', async () => {
    const { inbox } = open()
    const event = eventsOf()
    expect(await inbox.position(event(1))).toBeUndefined()
    for (const seq of [1, 2, 3]) {
      const next = event(seq)
      expect(await inbox.handle(next, {}, noting)).toBe('first')
      expect(await inbox.position(next)).toEqual({ seq, id: next.id })
    }
    expect(await bench.notes()).toHaveLength(3)
  })

  test('lists consumers and their positions, page by page', async () => {
    const consumer = `list-${driver}`
    const { lockstep, inbox } = open(consumer)
    const [orders, trades] = [eventsOf('orders'), eventsOf('trades')]
    const all = [orders(1), trades(1)]
    for (const event of all) await inbox.handle(event, {}, () => undefined)
    await lockstep.transaction({}, (tx) => inbox.startAt(tx, { topic: 'trades', key: 'z' }, 7))
    const [order, trade] = all.map(({ topic, key: of, seq, id }) => ({ topic, key: of, seq, id }))
    const begun = { topic: 'trades', key: 'z', seq: 6, id: undefined }
    expect(await lockstep.inbox.positions({ consumer })).toEqual({ positions: [order, trade, begun], next: undefined })
    const first = await lockstep.inbox.positions({ consumer, limit: 2 })
    expect(first).toEqual({ positions: [order, trade], next: { topic: 'trades', key: trade?.key } })
    const after = first.next as InboxStream
    expect(await lockstep.inbox.positions({ consumer, limit: 2, after })).toEqual({
      positions: [begun],
      next: undefined,
    })
    expect(await lockstep.inbox.positions({ consumer, topic: 'orders' })).toMatchObject({ positions: [order] })
    expect(await lockstep.inbox.positions({ consumer: 'no one' })).toEqual({ positions: [], next: undefined })
    expect(await lockstep.inbox.consumers()).toContainEqual({ name: consumer, streams: 3 })
    // Of a consumer of a broker, the outbox knows nothing.
    const listed = await lockstep.consumers.list()
    const unknown = { dispatched: false, topics: undefined, lagEvents: 0, parkedStreams: 0, waiting: [] }
    expect(listed.find(({ name }) => name === consumer)).toMatchObject({ streams: 3, ...unknown })
    for (const wrong of [{}, { consumer, limit: 0 }, { consumer, topic: '' }, { consumer, after: { topic: 't' } }]) {
      expect(await failureOf(lockstep.inbox.positions(wrong as never))).toBeInstanceOf(InvalidOptionError)
    }
  })

  test('does not handle a duplicate', async () => {
    const { inbox } = open()
    const event = eventsOf()
    const all = [event(1), event(2), event(3)]
    for (const each of all) await inbox.handle(each, {}, noting)
    for (const each of [...all, ...all]) {
      expect(await inbox.handle(each, {}, () => expect.unreachable())).toBe('duplicate')
    }
    const last = all[2] as InboxEvent
    expect(await inbox.handle({ ...last, id: last.id.toUpperCase() }, {}, () => expect.unreachable())).toBe('duplicate')
    expect(await inbox.position(last)).toEqual({ seq: 3, id: last.id })
  })

  test('rejects a gap with the expected number, and moves nothing', async () => {
    const { inbox } = open()
    const event = eventsOf()
    const beforeAny = await failureOf(inbox.handle(event(2), {}, () => expect.unreachable()))
    expect(beforeAny).toMatchObject({ code: 'LOCKSTEP_INBOX_GAP', expected: 1, seq: 2 })
    expect(await inbox.position(event(1))).toBeUndefined()
    const one = event(1)
    await inbox.handle(one, {}, noting)
    const error = await failureOf(inbox.handle(event(5), {}, () => expect.unreachable()))
    expect(error).toBeInstanceOf(InboxGapError)
    expect(error).toMatchObject({ expected: 2, seq: 5, keys: [`trades/${one.key}`] })
    expect(await inbox.position(one)).toEqual({ seq: 1, id: one.id })
    expect(await inbox.handle(event(2), {}, noting)).toBe('first')
  })

  test('lets the transaction continue after a caught gap', async () => {
    const { lockstep, inbox } = open()
    const event = eventsOf()
    await lockstep.transaction({}, async (tx) => {
      await expect(inbox.accept(tx, event(2))).rejects.toBeInstanceOf(InboxGapError)
      expect(await inbox.accept(tx, event(1))).toBe('first')
    })
    expect(await inbox.position(event(1))).toMatchObject({ seq: 1 })
  })

  test('does not begin a stream with a caught gap', async () => {
    const { lockstep, inbox } = open()
    const [late, moved] = [eventsOf(), eventsOf()]
    const caught = (tx: Transaction, event: InboxEvent, options = {}): Promise<void> =>
      expect(inbox.accept(tx, event, options)).rejects.toBeInstanceOf(InboxGapError)
    await lockstep.transaction({}, async (tx) => {
      await caught(tx, late(7))
      await caught(tx, moved(7))
      await caught(tx, moved(9), { start: 5 })
      expect(await inbox.position(tx, late(7))).toBeUndefined()
    })
    for (const event of [late, moved]) expect(await inbox.position(event(1))).toBeUndefined()
    expect(await inbox.handle(late(7), { start: 7 }, noting)).toBe('first')
    expect(await lockstep.transaction({}, (tx) => inbox.startAt(tx, moved(7), 7))).toBe(true)
    expect(await inbox.handle(moved(7), {}, noting)).toBe('first')
  })

  test('leaves the row of a stream unchanged after a caught gap', async () => {
    const { lockstep, inbox } = open()
    const event = eventsOf()
    const one = event(1)
    await inbox.handle(one, {}, noting)
    await lockstep.transaction({}, (tx) => expect(inbox.accept(tx, event(3))).rejects.toBeInstanceOf(InboxGapError))
    expect(await inbox.position(one)).toEqual({ seq: 1, id: one.id })
  })

  test('rejects the last number with another id as a diverged history', async () => {
    const { inbox } = open()
    const event = eventsOf()
    const one = event(1)
    await inbox.handle(one, {}, noting)
    const error = await failureOf(inbox.handle(event(1), {}, () => expect.unreachable()))
    expect(error).toBeInstanceOf(HistoryDivergedError)
    expect(error).toMatchObject({ code: 'LOCKSTEP_HISTORY_DIVERGED', keys: [`trades/${one.key}`] })
    await inbox.handle(event(2), {}, noting)
    // Of older ones the id is not known.
    expect(await inbox.handle(event(1), {}, () => expect.unreachable())).toBe('duplicate')
  })

  test('rejects an older number of a later generation, and a next number of an earlier one', async () => {
    const { lockstep, inbox } = open()
    const event = eventsOf()
    const old = [1, 2, 3, 4].map((seq) => event(seq, { generation: seq < 3 ? 1 : 2 }))
    for (const each of old) expect(await inbox.handle(each, {}, noting)).toBe('first')
    // Delivered again, as after a crash.
    for (const each of old) expect(await inbox.handle(each, {}, () => expect.unreachable())).toBe('duplicate')
    // The producer has lost #3 and #4: other events have got their numbers.
    const again = await failureOf(inbox.handle(event(3, { generation: 3 }), {}, () => expect.unreachable()))
    expect(again).toBeInstanceOf(HistoryDivergedError)
    // From a server that was replaced.
    const outdated = await failureOf(inbox.handle(event(5, { generation: 1 }), {}, () => expect.unreachable()))
    expect(outdated).toBeInstanceOf(HistoryDivergedError)
    expect(outdated).toMatchObject({ message: expect.stringContaining('its history has ended') })
    expect(await inbox.position(old[0] as InboxEvent)).toEqual({ seq: 4, id: old[3]?.id })
    // A message that does not say its generation is judged by its number and id.
    expect(await inbox.handle(event(2), {}, () => expect.unreachable())).toBe('duplicate')
    expect(await inbox.handle(event(5, { generation: 3 }), {}, noting)).toBe('first')
    await lockstep.transaction({}, (tx) => inbox.startAt(tx, old[0] as InboxEvent, 3, { force: true }))
    expect(await inbox.handle(event(3, { generation: 3 }), {}, async () => undefined)).toBe('first')
    for (const generation of [-1, 1.5, '1' as unknown as number])
      await expect(inbox.handle(event(4, { generation }), {}, noting)).rejects.toBeInstanceOf(InvalidOptionError)
  })

  test('moves the position by a tombstone without handling it', async () => {
    const { inbox } = open()
    const event = eventsOf()
    await inbox.handle(event(1), {}, noting)
    const skipped = event(2, { tombstone: 'skipped' })
    expect(await inbox.handle(skipped, {}, () => expect.unreachable())).toBe('tombstone')
    expect(await inbox.handle(skipped, {}, () => expect.unreachable())).toBe('duplicate')
    expect(await inbox.handle(event(3, { tombstone: undefined }), {}, noting)).toBe('first')
    expect(await inbox.handle(event(4, { tombstone: true }), {}, () => expect.unreachable())).toBe('tombstone')
    const other = eventsOf()
    expect(await inbox.handle(other(1, { tombstone: 'dead' }), {}, () => expect.unreachable())).toBe('tombstone')
  })

  test('keeps the position when the handler throws, and accepts the event again', async () => {
    const { inbox } = open()
    const event = eventsOf()
    const [one, two] = [event(1), event(2)]
    const failing = async (tx: Transaction, each: InboxEvent): Promise<void> => {
      await noting(tx, each)
      throw new Error('no such portfolio')
    }
    await expect(inbox.handle(one, {}, failing)).rejects.toThrow('no such portfolio')
    expect(await inbox.position(one)).toBeUndefined()
    expect(await inbox.handle(one, {}, noting)).toBe('first')
    await expect(inbox.handle(two, {}, failing)).rejects.toThrow('no such portfolio')
    expect(await inbox.position(one)).toEqual({ seq: 1, id: one.id })
    expect(await inbox.handle(two, {}, noting)).toBe('first')
    expect(await bench.notes()).toEqual([`${one.key} #1`, `${one.key} #2`])
  })

  test('accepts several events in one transaction, and forgets those of a savepoint that is rolled back', async () => {
    const { lockstep, inbox } = open()
    const event = eventsOf()
    await lockstep.transaction({}, async (tx) => {
      expect(await inbox.accept(tx, event(1))).toBe('first')
      const undone = tx.savepoint(async (inner) => {
        expect(await inbox.accept(inner, event(2))).toBe('first')
        throw new Error('changed my mind')
      })
      await expect(undone).rejects.toThrow('changed my mind')
      expect(await inbox.position(tx, event(1))).toMatchObject({ seq: 1 })
      expect(await inbox.accept(tx, event(2))).toBe('first')
      expect(await tx.transaction({}, (inner) => inbox.accept(inner, event(3)))).toBe('first')
      expect(await inbox.position(tx, event(1))).toMatchObject({ seq: 3 })
      expect(await lockstep.detached(() => inbox.position(event(1)))).toBeUndefined()
    })
    expect(await inbox.position(event(1))).toMatchObject({ seq: 3 })
  })

  test('rejects handle() and position() inside a transaction, and names what takes its tx', async () => {
    const { lockstep, inbox } = open()
    const event = eventsOf()
    await lockstep.transaction({}, async () => {
      const handled = await failureOf(inbox.handle(event(1), {}, noting))
      expect(handled).toBeInstanceOf(NestedTransactionError)
      expect((handled as Error).message).toContain('consumer.accept(tx, event)')
      const asked = await failureOf(inbox.position(event(1)))
      expect(asked).toBeInstanceOf(NestedTransactionError)
      expect((asked as Error).message).toContain('consumer.position(tx, stream)')
    })
    await expect(inbox.position({} as never, event(1))).rejects.toBeInstanceOf(InvalidOptionError)
  })

  test('keeps consumers, topics and keys apart', async () => {
    const { lockstep, inbox } = open()
    const other = lockstep.inbox.consumer('reports')
    const event = eventsOf()
    const one = event(1)
    expect(await inbox.handle(one, {}, noting)).toBe('first')
    expect(await other.handle(one, {}, async () => undefined)).toBe('first')
    expect(await inbox.handle({ ...one, topic: 'orders' }, {}, async () => undefined)).toBe('first')
    expect(await inbox.handle({ ...one, key: `${one.key} ` }, {}, async () => undefined)).toBe('first')
    expect(await inbox.handle({ ...one, key: one.key.toUpperCase() }, {}, async () => undefined)).toBe('first')
    expect(await other.handle(event(2), {}, async () => undefined)).toBe('first')
    expect(await inbox.position(one)).toMatchObject({ seq: 1 })
  })

  test('accepts the longest names', async () => {
    const { lockstep } = open()
    const long = (bytes: number): string => randomUUID().repeat(40).slice(0, bytes)
    const inbox = lockstep.inbox.consumer(long(255))
    const event = { topic: long(1000), key: long(1000), seq: 1, id: randomUUID() }
    expect(await inbox.handle(event, {}, async () => undefined)).toBe('first')
    expect(await inbox.position(event)).toEqual({ seq: 1, id: event.id })
  })

  test('accepts the largest numbers of JavaScript', async () => {
    const { inbox } = open()
    const event = eventsOf()
    const last = event(Number.MAX_SAFE_INTEGER)
    expect(await inbox.handle(last, { start: last.seq }, noting)).toBe('first')
    expect(await inbox.position(last)).toEqual({ seq: last.seq, id: last.id })
  })

  test('accepts events in a transaction of the caller', async () => {
    const client = bench.open(driver)
    const inbox = client.lockstep.inbox.consumer('portfolios')
    const event = eventsOf()
    await client.begin('', async (own) => {
      expect(await inbox.accept(await client.lockstep.join(own), event(1))).toBe('first')
    })
    const undone = client.begin('', async (own) => {
      expect(await inbox.accept(await client.lockstep.join(own), event(2))).toBe('first')
      throw new Error('changed my mind')
    })
    await expect(undone).rejects.toThrow('changed my mind')
    expect(await inbox.position(event(1))).toMatchObject({ seq: 1 })
  })

  test('passes the event and the transaction options to the handler', async () => {
    const { inbox } = open()
    const event = { ...eventsOf()(1), payload: { quantity: 5 } }
    const verdict = await inbox.handle(
      event,
      { isolation: 'serializable', lock: key`Portfolio:${event.key}`, waitMs: 1000 },
      async (tx, given) => {
        expect(given).toBe(event)
        expect(given.payload.quantity).toBe(5)
        expect(tx.isolation).toBe('serializable')
        expect(await bench.locksHeld()).toBe(1)
      },
    )
    expect(verdict).toBe('first')
  })

  test('keeps schemas apart', async () => {
    const { lockstep, inbox } = open()
    const elsewhere = bench.open(driver, { schema: `Other "${driver}"` }).lockstep
    await elsewhere.migrate()
    const one = eventsOf()(1)
    await inbox.handle(one, {}, noting)
    expect(await elsewhere.inbox.consumer('portfolios').handle(one, {}, async () => undefined)).toBe('first')
    expect(lockstep.inbox.consumer('portfolios').name).toBe('portfolios')
  })

  describe('a consumer that joins late', () => {
    test('begins with exactly its number', async () => {
      const { inbox } = open()
      const event = eventsOf()
      const options = { start: 10 }
      expect(await inbox.handle(event(9), options, () => expect.unreachable())).toBe('duplicate')
      expect(await inbox.position(event(1))).toEqual({ seq: 9, id: undefined })
      const early = await failureOf(inbox.handle(event(11), options, () => expect.unreachable()))
      expect(early).toMatchObject({ code: 'LOCKSTEP_INBOX_GAP', expected: 10, seq: 11 })
      expect(await inbox.handle(event(10), options, noting)).toBe('first')
      expect(await inbox.handle(event(11), options, noting)).toBe('first')
    })

    test('ignores its start number once there is a position', async () => {
      const { inbox } = open()
      const event = eventsOf()
      await inbox.handle(event(1), {}, noting)
      expect(await inbox.handle(event(2), { start: 10 }, noting)).toBe('first')
      const other = eventsOf()
      expect(await inbox.handle(other(7), { start: 7 }, noting)).toBe('first')
      expect(await inbox.handle(other(8), {}, noting)).toBe('first')
    })

    test('rolls startAt() back with its transaction, and does not move a stream that has begun', async () => {
      const { lockstep, inbox } = open()
      const event = eventsOf()
      const undone = lockstep.transaction({}, async (tx) => {
        expect(await inbox.startAt(tx, event(1), 5)).toBe(true)
        throw new Error('the snapshot is not complete')
      })
      await expect(undone).rejects.toThrow('the snapshot is not complete')
      expect(await inbox.position(event(1))).toBeUndefined()
      await lockstep.transaction({}, async (tx) => {
        expect(await inbox.startAt(tx, event(1), 5)).toBe(true)
        expect(await inbox.startAt(tx, event(1), 9)).toBe(false)
      })
      expect(await inbox.position(event(1))).toEqual({ seq: 4, id: undefined })
      // Whatever its id: of what came before the start none is known.
      expect(await inbox.handle(event(4), {}, () => expect.unreachable())).toBe('duplicate')
      expect(await inbox.handle(event(5), {}, noting)).toBe('first')
      await lockstep.transaction({}, async (tx) => {
        expect(await inbox.startAt(tx, event(1), 1)).toBe(false)
      })
      expect(await inbox.handle(event(6), {}, noting)).toBe('first')
    })

    test('moves the position with startAt() and force, also back', async () => {
      const { lockstep, inbox } = open()
      const event = eventsOf()
      for (const seq of [1, 2, 3]) await inbox.handle(event(seq), {}, async () => undefined)
      await expect(inbox.handle(event(3), {}, noting)).rejects.toBeInstanceOf(HistoryDivergedError)
      await lockstep.transaction({}, async (tx) => {
        expect(await inbox.startAt(tx, event(1), 2, { force: true })).toBe(true)
      })
      expect(await inbox.handle(event(2), {}, noting)).toBe('first')
      expect(await inbox.handle(event(3), {}, noting)).toBe('first')
    })
  })

  test('rejects invalid events before anything is sent', async () => {
    const { lockstep } = open()
    const unreachable = new Lockstep(bench.admin, { schema: 'nowhere' }).inbox.consumer('portfolios')
    const good = eventsOf()(1)
    const bad: Record<string, unknown>[] = [
      { topic: '' },
      { topic: undefined },
      { key: '' },
      { key: 7 },
      { key: 'a\0b' },
      { key: 'x'.repeat(1001) },
      { seq: 0 },
      { seq: -1 },
      { seq: 1.5 },
      { seq: Number.NaN },
      { seq: '1' },
      { seq: 2 ** 53 },
      { id: 'no uuid' },
      { id: undefined },
      { id: `${good.id} ` },
      { tombstone: 1 },
      { tombstone: '' },
    ]
    for (const each of bad) {
      const event = { ...good, ...each } as InboxEvent
      expect(await failureOf(unreachable.handle(event, {}, noting)), JSON.stringify(each)).toBeInstanceOf(
        InvalidOptionError,
      )
      expect(await failureOf(unreachable.accept({} as never, event))).toBeInstanceOf(InvalidOptionError)
    }
    const refused = (pending: Promise<unknown>): Promise<void> =>
      expect(pending).rejects.toBeInstanceOf(InvalidOptionError)
    await refused(unreachable.handle(undefined as never, {}, noting))
    await refused(unreachable.handle(good, {}, undefined as never))
    await refused(unreachable.handle(good, { start: 0 }, noting))
    await refused(unreachable.position({ topic: 'trades' } as never))
    await refused(unreachable.accept(bench.admin as never, good))
    await refused(unreachable.accept(undefined as never, good))
    await refused(unreachable.startAt(bench.admin as never, good, 5))
    await refused(unreachable.startAt({} as never, good, 0))
    for (const consumer of ['', undefined, 7, 'x'.repeat(256), '\ud800']) {
      expect(() => lockstep.inbox.consumer(consumer as never)).toThrow(InvalidOptionError)
    }
  })
})

describe('the SQL function', () => {
  const accept = async (values: string): Promise<unknown> => {
    const { rows } = await bench.admin.query<{ verdict: string }>(`SELECT lockstep.inbox_accept(${values}) AS verdict`)
    return rows[0]?.verdict
  }

  test('returns the verdict as text', async () => {
    expect(await accept(`'c', 't', 'k', 1, gen_random_uuid()`)).toBe('first')
    expect(await accept(`'c', 't', 'k', 3, gen_random_uuid()`)).toBe('gap:2')
    expect(await accept(`'c', 't', 'k', 2, gen_random_uuid(), true`)).toBe('tombstone')
    expect(await accept(`'c', 't', 'k', 1, gen_random_uuid()`)).toBe('duplicate')
    expect(await accept(`'c', 't', 'k', 2, gen_random_uuid()`)).toBe('diverged')
  })

  test('rejects invalid arguments', async () => {
    for (const values of [`'c', 't', 'k', 0, gen_random_uuid()`, `'c', 't', 'k', NULL, gen_random_uuid()`]) {
      expect(await failureOf(accept(values))).toMatchObject({ code: '22023' })
    }
    expect(await failureOf(accept(`'c', 't', 'k', 1, NULL`))).toMatchObject({ code: '22023' })
    expect(await failureOf(accept(`'c', 't', 'k', 1, gen_random_uuid(), false, NULL`))).toMatchObject({ code: '22023' })
    expect(await failureOf(accept(`'c', NULL, 'k', 1, gen_random_uuid()`))).toMatchObject({ code: '23502' })
  })

  test('updates rows on their page, without touching the index', async () => {
    for (let seq = 1; seq <= 200; seq++) await accept(`'hot', 't', 'k', ${seq}, gen_random_uuid()`)
    const counts = async (): Promise<{ updated: number; hot: number } | undefined> => {
      await bench.admin.query('SELECT pg_stat_clear_snapshot()')
      const { rows } = await bench.admin.query<{ updated: number; hot: number }>(
        `SELECT n_tup_upd::int AS updated, n_tup_hot_upd::int AS hot FROM pg_stat_user_tables
          WHERE schemaname = 'lockstep' AND relname = 'inbox'`,
      )
      return rows[0]
    }
    await expect.poll(async () => (await counts())?.updated).toBeGreaterThanOrEqual(199)
    const { updated, hot } = (await counts()) as { updated: number; hot: number }
    expect(hot / updated).toBeGreaterThan(0.9)
  })
})
