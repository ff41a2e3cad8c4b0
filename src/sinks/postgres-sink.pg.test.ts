import { randomUUID } from 'node:crypto'
import pg from 'pg'
import postgresJs from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { postgres } from '../../tools/brokers/postgres.ts'
import { startProxy } from '../testing/index.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { signal } from '../../tools/server/testing/workbench.ts'
import {
  type Delivery,
  EventRefusedError,
  InvalidOptionError,
  Lockstep,
  type OutboxEvent,
  type Sink,
} from '../index.ts'
import { postgresSink, type PostgresSinkOptions } from './postgres-sink.ts'
import { benchOf, contextOf, eventOf, eventsOf, sendAll, underFence } from './sinkBench.conformance.ts'
import { describeSink } from './sinks.conformance.ts'

describeSink('PostgreSQL', () => benchOf(postgres, { again: 'kept out', tooLarge: 2_100_000 }))

const database = await testDatabase()

describe('the inbox of another database', () => {
  const pool = new pg.Pool({ connectionString: database.url, max: 6 })
  const lockstep = new Lockstep(pool)
  let consumer = ''
  /** What handlers did and committed. */
  const effects = async (): Promise<string[]> => {
    const { rows } = await pool.query<{ what: string }>('SELECT what FROM effects WHERE consumer = $1 ORDER BY place', [
      consumer,
    ])
    return rows.map(({ what }) => what)
  }
  const act = async (
    tx: { query(text: string, values: readonly unknown[]): Promise<unknown> },
    { key, seq }: OutboxEvent,
  ): Promise<void> =>
    void (await tx.query('INSERT INTO effects (consumer, what) VALUES ($1, $2)', [consumer, `${key}${seq}`]))
  const open = (options: Partial<PostgresSinkOptions> = {}): Sink =>
    postgresSink({
      lockstep,
      consumer,
      ...(options.handleMany === undefined ? { handle: act } : {}),
      ...options,
    })
  const kinds = (answers: readonly Delivery[]): string[] =>
    answers.map((answer) => (typeof answer === 'object' ? (Object.keys(answer)[0] as string) : answer))
  const reasonOf = (answer: Delivery | undefined): string => String(Object.values(answer as object)[0])

  beforeAll(async () => {
    await lockstep.migrate()
    await pool.query(
      'CREATE TABLE effects (place bigserial PRIMARY KEY, consumer text, what text, UNIQUE (consumer, what))',
    )
  })
  beforeEach(() => {
    consumer = `c-${randomUUID().slice(0, 8)}`
  })

  test('has its effect on disk before it says sent, whatever synchronous_commit says', async () => {
    await pool.query(`
      CREATE TABLE commits (consumer text, setting text);
      CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO commits VALUES (NEW.consumer, current_setting('synchronous_commit')); RETURN NULL; END $$;
      CREATE CONSTRAINT TRIGGER note_commit AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION note_commit()`)
    try {
      for (const setting of ['off', 'local']) {
        const own = new pg.Pool({ connectionString: database.url, options: `-c synchronous_commit=${setting}`, max: 2 })
        const target = new Lockstep(own)
        consumer = `c-${setting}`
        const sink = open({ lockstep: target })
        await sink.open?.()
        expect(await sink.send(eventsOf('orders', ['a'], 1), contextOf({}))).toEqual(['sent'])
        await sink.close?.()
        await target.close()
        await own.end()
      }
      const { rows } = await pool.query('SELECT * FROM commits ORDER BY consumer')
      expect(rows).toEqual([
        { consumer: 'c-local', setting: 'local' },
        { consumer: 'c-off', setting: 'on' },
      ])
    } finally {
      await pool.query('DROP TRIGGER note_commit ON effects; DROP FUNCTION note_commit; DROP TABLE commits')
    }
  })
  afterAll(async () => {
    await lockstep.close()
    await pool.end()
  })

  test('handles a batch in one transaction, with three round trips and those of the handler', async () => {
    const proxy = await startProxy({ targetPort: Number(new URL(database.url).port) })
    const far = new pg.Pool({ connectionString: proxy.url(database.url), max: 1 })
    const xids = new Set<string>()
    const sink = open({
      lockstep: new Lockstep(far),
      handleMany: async (tx) => {
        const { rows } = await tx.query<{ xid: string }>('SELECT pg_current_xact_id()::text AS xid')
        xids.add((rows[0] as { xid: string }).xid)
      },
    })
    await sendAll(sink, eventsOf('t', ['a', 'b', 'c'], 10))
    proxy.waits = 0
    await sendAll(sink, eventsOf('t', ['a', 'b', 'c'], 10, 11))
    expect(proxy.waits).toBe(4)
    expect(xids.size).toBe(2)
    await far.end()
    await proxy.close()
  })

  test('reports duplicates as sent, without a second effect', async () => {
    const sink = open()
    const events = eventsOf('t', ['a', 'b'], 3)
    await sendAll(sink, events)
    // The next owner begins a little earlier than the last one ended.
    const more = [...underFence(events, 2n), ...eventsOf('t', ['a', 'b'], 2, 4)]
    expect(new Set(await sink.send(more, contextOf({ fence: 2n })))).toEqual(new Set(['sent']))
    expect(await effects()).toEqual(['a1', 'b1', 'a2', 'b2', 'a3', 'b3', 'a4', 'b4', 'a5', 'b5'])
  })

  test('refuses a gap with advice, without effect, and delivers other streams', async () => {
    const sink = open()
    const answers = await sink.send([...eventsOf('t', ['gap'], 2, 7), eventOf('t', 'fine', 1)], contextOf())
    expect(kinds(answers)).toEqual(['refused', 'unknown', 'sent'])
    expect(reasonOf(answers[0])).toMatch(/expects #1 of t\/gap, and #7 came.*start: 7/)
    expect(await effects()).toEqual(['fine1'])
    // What it was advised to do.
    expect(await open({ start: 7 }).send(eventsOf('t', ['gap'], 2, 7), contextOf())).toEqual(['sent', 'sent'])
    const later = await sink.send([eventOf('t', 'gap', 12)], contextOf())
    expect(reasonOf(later[0])).toMatch(/expects #9 of t\/gap, and #12 came. Replay/)
  })

  test('begins a stream at a number, by a function, or anywhere', async () => {
    const by = open({ start: ({ key }) => (key === 'late' ? 5 : 1) })
    expect(kinds(await by.send([...eventsOf('t', ['late'], 4, 3), eventOf('t', 'x', 1)], contextOf()))).toEqual(
      Array(5).fill('sent'),
    )
    expect(await effects()).toEqual(['late5', 'late6', 'x1'])
    await sendAll(open({ start: 'anywhere' }), eventsOf('t', ['any'], 2, 40))
    expect(await lockstep.inbox.consumer(consumer).position({ topic: 't', key: 'any' })).toMatchObject({ seq: 41 })
  })

  test('refuses a diverged history', async () => {
    const sink = open()
    await sendAll(sink, eventsOf('t', ['a'], 3))
    const other = eventsOf('t', ['a'], 3, 2)
    const answers = await sink.send(other, contextOf())
    expect(kinds(answers)).toEqual(['sent', 'refused', 'unknown'])
    expect(reasonOf(answers[1])).toContain('another id')
    expect(await effects()).toEqual(['a1', 'a2', 'a3'])
  })

  test.each(['handle', 'handleMany'] as const)('refuses one bad event alone, found by %s', async (way) => {
    const bad = new Set(['b3', 'd1'])
    const check = (event: OutboxEvent): void => {
      if (!bad.has(`${event.key}${event.seq}`)) return
      throw event.key === 'b' ? new EventRefusedError('no such portfolio') : new Error('division by zero')
    }
    const handle = async (tx: Parameters<typeof act>[0], event: OutboxEvent): Promise<void> => {
      check(event)
      await act(tx, event)
    }
    const sink = open(
      way === 'handle'
        ? { handle }
        : {
            handleMany: async (tx, events) => {
              for (const event of events) await act(tx, event)
              events.forEach(check)
            },
          },
    )
    const events = eventsOf('t', ['a', 'b', 'c', 'd', 'e'], 6)
    const answers = await sink.send(events, contextOf())
    const of = (key: string): string[] => kinds(answers.filter((_, place) => events[place]?.key === key))
    for (const key of ['a', 'c', 'e']) expect(of(key)).toEqual(Array(6).fill('sent'))
    expect(of('b')).toEqual(['sent', 'sent', 'refused', 'unknown', 'unknown', 'unknown'])
    expect(of('d')).toEqual(['failed', ...Array<string>(5).fill('unknown')])
    expect(reasonOf(answers[events.findIndex(({ key, seq }) => key === 'b' && seq === 3)])).toBe(
      't/b #3: no such portfolio',
    )
    expect((await effects()).length).toBe(20)
    bad.clear()
    await sendAll(sink, events)
    expect((await effects()).length).toBe(30)
  })

  test('refuses the event whose statement fails, also after a caught failure', async () => {
    const sink = open({
      handle: async (tx, event) => {
        if (event.key === 'bad') await tx.query('SELECT 1 / 0')
        if (event.key === 'caught') await tx.query('SELECT 1 / 0').catch(() => undefined)
        else await act(tx, event)
      },
    })
    const events = ['a', 'bad', 'b', 'caught'].map((key) => eventOf('t', key, 1))
    expect(kinds(await sink.send(events, contextOf()))).toEqual(['sent', 'failed', 'sent', 'failed'])
    expect((await effects()).toSorted()).toEqual(['a1', 'b1'])
  })

  test('refuses an invalid event, and sends the others', async () => {
    const events = [eventOf('t', 'a', 1), eventOf('t', 'b', 1, { id: 'no uuid' }), eventOf('t', 'c', 1)]
    const answers = await open().send(events, contextOf())
    expect(kinds(answers)).toEqual(['sent', 'refused', 'sent'])
    expect(reasonOf(answers[1])).toContain('no uuid')
  })

  test('does not delay other streams behind refused ones', async () => {
    const sink = open({
      handle: async (tx, event) => {
        if (event.key.startsWith('bad')) throw new EventRefusedError('closed')
        await act(tx, event)
      },
    })
    const keys = [...Array.from({ length: 10 }, (_, index) => `bad${index}`), 'fine']
    const answers = await sink.send(eventsOf('t', keys, 1), contextOf())
    expect(kinds(answers)).toEqual([...Array<string>(10).fill('refused'), 'sent'])
  })

  test('ends early and refuses none when everything fails', async () => {
    let calls = 0
    const sink = open({
      handle: async () => {
        calls++
        throw new Error('the table is gone')
      },
    })
    const answers = await sink.send(
      eventsOf(
        't',
        Array.from({ length: 100 }, (_, index) => `k${index}`),
        3,
      ),
      contextOf(),
    )
    expect(new Set(kinds(answers))).toEqual(new Set(['failed', 'unknown']))
    expect(kinds(answers).filter((kind) => kind === 'failed')).toHaveLength(3)
    expect(calls).toBeLessThan(30)
    expect(await effects()).toEqual([])
  })

  test('stops only the stream whose handler cannot reach another service', async () => {
    const sink = open({
      handle: async (tx, event) => {
        if (event.key === 'mail') throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
        await act(tx, event)
      },
    })
    const events = ['a', 'mail', 'b'].map((key) => eventOf('t', key, 1))
    expect(kinds(await sink.send(events, contextOf()))).toEqual(['sent', 'failed', 'sent'])
  })

  test('stops only the stream whose handler takes too long, and ends a batch that does', async () => {
    const sizes: number[] = []
    const sink = open({
      timeoutMs: 800,
      handleMany: async (tx, events) => {
        sizes.push(events.length)
        const stuck = events.some(({ key }) => key === 'stuck')
        await tx.query('SELECT pg_sleep($1)', [stuck ? 60 : events.length * 0.064])
        for (const event of events) await act(tx, event)
      },
    })
    const events = [...eventsOf('t', ['a'], 20), eventOf('t', 'stuck', 1)]
    const answers = await sink.send(events, contextOf())
    expect(kinds(answers)).toEqual([...Array<string>(20).fill('sent'), 'failed'])
    expect(reasonOf(answers[20])).toMatch(/t\/stuck #1.*800 ms/)
    expect((await effects()).length).toBe(20)
    sizes.length = 0
    await sendAll(sink, eventsOf('t', ['a'], 20, 21))
    expect(Math.max(...sizes)).toBeLessThan(20)
  })

  test('does not block the successor of a process that was stopped in its transaction', async () => {
    const stopped = signal()
    const goesOn = signal()
    const late = open({
      timeoutMs: 400,
      handle: async (tx, event) => {
        await act(tx, event)
        stopped.give()
        await goesOn.given
      },
    })
    const events = eventsOf('t', ['a'], 2)
    // Its own clock stands still, too: only the server can end it.
    const realTimeout = globalThis.setTimeout
    globalThis.setTimeout = ((work: () => void, ms?: number) =>
      ms === 400 ? (0 as unknown) : realTimeout(work, ms)) as typeof setTimeout
    const sending = late.send(events, contextOf())
    await stopped.given
    globalThis.setTimeout = realTimeout
    const next = open({ timeoutMs: 5000 })
    expect(await next.send(underFence(events, 2n), contextOf({ fence: 2n }))).toEqual(['sent', 'sent'])
    await sendAll(next, [eventOf('t', 'a', 3, { fence: 2n })])
    goesOn.give()
    expect(kinds(await sending)).not.toContain('refused')
    expect(await effects()).toEqual(['a1', 'a2', 'a3'])
  })

  test('has one effect when two dispatchers send the same', async () => {
    const events = eventsOf('t', ['a', 'b', 'c', 'd'], 25)
    const sinks = [open(), open(), open()]
    await Promise.all(
      sinks.map((sink, index) => sendAll(sink, index === 1 ? events.toReversed().toReversed() : events)),
    )
    expect((await effects()).length).toBe(100)
    for (const key of ['a', 'b', 'c', 'd']) {
      expect((await effects()).filter((what) => what.startsWith(key))).toEqual(
        Array.from({ length: 25 }, (_, index) => `${key}${index + 1}`),
      )
    }
  })

  test('works at SERIALIZABLE with postgres.js', async () => {
    const sql = postgresJs(database.url, { max: 4, onnotice: () => undefined })
    const other = new Lockstep(sql)
    try {
      const sinks = [0, 1].map(() => open({ lockstep: other, isolation: 'serializable' }))
      const events = eventsOf('t', ['a', 'b'], 20)
      await Promise.all(sinks.map((sink) => sendAll(sink, events)))
      expect((await effects()).length).toBe(40)
    } finally {
      await other.close()
      await sql.end({ timeout: 1 })
    }
  })

  test('moves the position by tombstones, and passes them to the handler if asked to', async () => {
    const events = [eventOf('t', 'a', 1), eventOf('t', 'a', 2, { tombstone: 'dead' }), eventOf('t', 'a', 3)]
    await sendAll(open(), events)
    expect(await effects()).toEqual(['a1', 'a3'])
    consumer += '-all'
    await sendAll(open({ handlesTombstones: true }), events)
    expect(await effects()).toEqual(['a1', 'a2', 'a3'])
  })

  test('leaves numbers after a gap to another batch', async () => {
    const sink = open()
    const events = [1, 2, 4, 5].map((seq) => eventOf('t', 'a', seq))
    expect(kinds(await sink.send(events, contextOf()))).toEqual(['sent', 'sent', 'unknown', 'unknown'])
  })

  test('reports unknown with the reason for a closed Lockstep and a missing schema', async () => {
    const closed = new Lockstep(pool)
    await closed.close()
    const [answer] = await open({ lockstep: closed }).send([eventOf('t', 'a', 1)], contextOf())
    expect(kinds([answer as Delivery])).toEqual(['unknown'])
    const elsewhere = open({ lockstep: new Lockstep(pool, { schema: 'nowhere' }) })
    const [missing] = await elsewhere.send([eventOf('t', 'a', 1)], contextOf())
    expect(kinds([missing as Delivery])).toEqual(['unknown'])
    expect(reasonOf(missing)).toContain('nowhere')
    expect(await elsewhere.healthy?.()).toBe(false)
  })

  test('rejects invalid options', () => {
    const nonsense: readonly Partial<Record<keyof PostgresSinkOptions, unknown>>[] = [
      { lockstep: undefined },
      { lockstep: pool },
      { handle: undefined },
      { handleMany: async () => undefined, handle: async () => undefined },
      { handle: 'insert' },
      { consumer: '' },
      { start: 0 },
      { start: 'somewhere' },
      { isolation: 'chaos' },
      { timeoutMs: 0 },
      { timeoutMs: 1.5 },
    ]
    for (const options of nonsense) {
      expect(() => open({ handle: act, ...options } as Partial<PostgresSinkOptions>)).toThrow(InvalidOptionError)
    }
    expect(() => postgresSink(undefined as never)).toThrow(InvalidOptionError)
  })
})
