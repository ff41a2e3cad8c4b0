import { expect, test } from 'vitest'
import { type Dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, signal } from '../../tools/server/testing/workbench.ts'
import { type Drained, InvalidOptionError, type Lockstep } from '../index.ts'
import { type EventMessage, on } from '../observe/index.ts'

/** Dispatchers that deliver some topics, and what happens when their list changes. */

const bench = await outboxBench()

async function write(lockstep: Lockstep, ...names: string[]): Promise<void> {
  for (const name of names) {
    const [topic = '', key = ''] = name.split('/')
    await lockstep.transaction({}, (tx) => tx.enqueue({ topic, key, payload: 1 }))
  }
}

/** What is reported until the test ends. */
function reported<Name extends 'outbox.topicsHeld' | 'outbox.topicsChanged'>(name: Name): EventMessage<Name>[] {
  const messages: EventMessage<Name>[] = []
  bench.cleanUp(on(name, (message) => void messages.push(message)))
  return messages
}

const lag = async (lockstep: Lockstep): Promise<number> =>
  (await lockstep.outbox.status()).shards.reduce((sum, { lagEvents }) => sum + lagEvents, 0)

test.each(DRIVERS)('delivers the topics that it names, in order, %s', async (driver) => {
  const { lockstep } = bench.open(driver, { max: 6 })
  const dispatcher = bench.dispatch(lockstep, { topics: ['orders.*', 'trades', 'orders.*'] })
  await write(
    lockstep,
    'mails/a',
    'trades/a',
    'orders/a',
    'orders.placed/a',
    'trades.eu/a',
    'ordersXplaced/a',
    'trades/a',
  )
  await write(lockstep, 'orders.eu.placed/a', 'trades/a')
  await dispatcher.until(5)
  expect(dispatcher.delivered).toEqual([
    'trades/a#1',
    'orders.placed/a#1',
    'trades/a#2',
    'orders.eu.placed/a#1',
    'trades/a#3',
  ])
  expect((await lockstep.outbox.status()).dispatchers).toEqual([
    { name: 'default', topics: ['orders.*', 'trades'], topicsAfter: 0 },
  ])
})

test('compares the names of topics as they are', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const dispatcher = bench.dispatch(lockstep, { topics: ['a_b', '100%', String.raw`a\b`, '_*'] })
  await write(
    lockstep,
    'axb/1',
    '1000/1',
    String.raw`a\\b/1`,
    'x/1',
    'a_b/1',
    '100%/1',
    String.raw`a\b/1`,
    '_/1',
    'a_b/2',
  )
  await dispatcher.until(5)
  expect(dispatcher.delivered).toEqual(['a_b/1#1', '100%/1#1', String.raw`a\b/1#1`, '_/1#1', 'a_b/2#1'])
})

test.each([
  [[]],
  [['']],
  [['a*b']],
  [['**']],
  ['trades'],
  [[1]],
  [Array.from({ length: 65 }, (_, n) => `t${n}`)],
  [['\0']],
])('refuses the list %j', (topics) => {
  const { lockstep } = bench.open('pg')
  expect(() => lockstep.outbox.dispatcher({ topics: topics as string[], sink: () => undefined })).toThrow(
    InvalidOptionError,
  )
})

test('passes events that it does not want: its cursor and its lag do not wait for them', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const dispatcher = bench.dispatch(lockstep, { shards: 4, topics: ['trades'] })
  await write(lockstep, 'trades/a')
  await dispatcher.until(1)
  // In many transactions of one event each, and in one of many events.
  await bench.admin.query(
    `DO $$ BEGIN FOR n IN 1 .. 3000 LOOP PERFORM lockstep.enqueue('mails', n::text, '1'); COMMIT; END LOOP; END $$`,
  )
  await bench.admin.query(`SELECT lockstep.enqueue('mails', n::text, '1') FROM generate_series(1, 3000) AS n`)
  await write(lockstep, 'trades/a')
  await dispatcher.until(2)
  expect(dispatcher.delivered).toEqual(['trades/a#1', 'trades/a#2'])
  await expect.poll(() => lag(lockstep)).toBe(0)
  // Every shard has written down that it has passed them, but for the last few, also those that had nothing to deliver.
  const passed = `
    SELECT (SELECT last_value FROM lockstep.outbox_ids) - min(seen) < 200 AS passed
      FROM (SELECT max(seen_id) AS seen FROM lockstep.outbox_cursors GROUP BY shard) AS c`
  await expect.poll(async () => (await bench.admin.query(passed)).rows).toEqual([{ passed: true }])
})

test('finds what it wants among many others, in a large transaction that is read in pieces', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  await bench.admin.query(`
    SELECT lockstep.enqueue(CASE WHEN n % 5 = 0 THEN 'trades' ELSE 'mails' END, (n % 7)::text, '1') FROM generate_series(1, 2000) AS n`)
  const dispatcher = bench.dispatch(lockstep, { batch: 50, topics: ['trades'] })
  await dispatcher.until(400)
  expect(new Set(dispatcher.events.map(({ topic }) => topic))).toEqual(new Set(['trades']))
  const seqs = new Map<string, number>()
  for (const { key, seq } of dispatcher.events) {
    expect(seq).toBe((seqs.get(key) ?? 0) + 1)
    seqs.set(key, seq)
  }
})

test('estimates how far a dispatcher is behind by the topics that it wants', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const dispatcher = bench.dispatch(lockstep, { topics: ['trades'] })
  await write(lockstep, 'trades/a')
  await dispatcher.until(1)
  await dispatcher.stop()
  await bench.admin.query(`SELECT lockstep.enqueue('mails', '1', '1') FROM generate_series(1, 20) AS n`)
  expect(await lag(lockstep)).toBe(0)
  expect((await lockstep.outbox.status()).shards[0]?.oldestUndelivered).toBeUndefined()
  await bench.enqueue('x')
  await bench.admin.query(`SELECT lockstep.enqueue('trades', '1', '1') FROM generate_series(1, 3) AS n`)
  expect(await lag(lockstep)).toBe(3)
  await bench.admin.query(`
    SELECT lockstep.enqueue(CASE WHEN n % 2 = 0 THEN 'trades' ELSE 'mails' END, '2', '1') FROM generate_series(1, 4000) AS n`)
  expect(Math.abs((await lag(lockstep)) - 2003)).toBeLessThan(500)
})

test('changes the list when no process of the old one runs, and says from where on', async () => {
  const { lockstep } = bench.open('pg', { max: 10 })
  const [held, changed] = [reported('outbox.topicsHeld'), reported('outbox.topicsChanged')]
  const old = bench.dispatch(lockstep, { topics: ['trades'] })
  await write(lockstep, 'orders/a', 'trades/a', 'orders/a')
  await old.until(1)
  const next = bench.dispatch(lockstep, { topics: ['trades', 'orders'] })
  await expect
    .poll(() => held)
    .toEqual([{ schema: 'lockstep', dispatcher: 'default', from: ['trades'], to: ['orders', 'trades'] }])
  // Both run: the old list counts for both.
  await write(lockstep, 'orders/a', 'trades/a')
  await old.until(2)
  expect(next.delivered).toEqual([])
  await old.stop()
  await expect.poll(() => changed.at(-1)?.to).toEqual(['orders', 'trades'])
  await write(lockstep, 'orders/a', 'trades/a', 'orders/a')
  await next.until(3)
  const { dispatchers } = await lockstep.outbox.status()
  expect(dispatchers).toEqual([
    { name: 'default', topics: ['orders', 'trades'], topicsAfter: changed.at(-1)?.topicsAfter },
  ])
  expect(next.events.map(({ topic, seq }) => `${topic}#${seq}`)).toEqual(['orders#4', 'trades#3', 'orders#5'])
  for (const { position } of next.events) expect(position).toBeGreaterThan(changed.at(-1)?.topicsAfter ?? Infinity)
  const { rows } = await bench.admin.query(`SELECT verb, reason FROM lockstep.outbox_audit ORDER BY id`)
  expect(rows).toEqual([
    { verb: 'topics', reason: 'trades' },
    { verb: 'topics', reason: 'orders, trades' },
  ])
})

test('a process with the old list that starts late waits, and the new list stays', async () => {
  const { lockstep } = bench.open('pg', { max: 10 })
  const held = reported('outbox.topicsHeld')
  const next = bench.dispatch(lockstep, { topics: ['trades', 'orders'] })
  await write(lockstep, 'trades/a')
  await next.until(1)
  const late = bench.dispatch(lockstep, { topics: ['trades'] })
  await expect.poll(() => held.length).toBe(1)
  await write(lockstep, 'orders/a', 'trades/a')
  await next.until(3)
  expect(next.delivered).toEqual(['trades/a#1', 'orders/a#1', 'trades/a#2'])
  await late.stop()
  expect(late.delivered).toEqual([])
})

test('processes that rest are woken before another list takes their place', async () => {
  const { lockstep } = bench.open('pg', { max: 10 })
  const held = reported('outbox.topicsHeld')
  const resting = bench.dispatch(lockstep, { topics: ['trades', 'orders'], ttlMs: 500 })
  await write(lockstep, 'trades/a')
  await resting.until(1)
  const over = `SELECT FROM lockstep.leases WHERE token IS NOT NULL AND expires_at > clock_timestamp()`
  await eventually(async () => (await bench.admin.query(over)).rowCount === 0)
  const late = bench.dispatch(bench.open('pg', { max: 4 }).lockstep, { topics: ['trades'] })
  await expect.poll(() => held.length).toBe(1)
  await eventually(async () => ((await bench.admin.query(over)).rowCount ?? 0) > 0)
  await write(lockstep, 'orders/a')
  await resting.until(2)
  await late.stop()
  expect(late.delivered).toEqual([])
})

test('an owner under the old list is fenced off by the change', async () => {
  const { lockstep } = bench.open('pg', { max: 10 })
  const [sending, sent] = [signal(), signal()]
  const old = bench.dispatch(lockstep, {
    topics: ['trades'],
    async sink(events) {
      if (events.some(({ seq }) => seq === 2)) {
        sending.give()
        await sent.given
      }
    },
  })
  await write(lockstep, 'trades/a')
  await old.until(1)
  await write(lockstep, 'trades/a', 'orders/a')
  await sending.given
  // As if the process had been stopped for longer than its ttl.
  await bench.admin.query(`UPDATE lockstep.leases SET expires_at = clock_timestamp()`)
  const { rows } = await bench.admin.query(
    `SELECT answer FROM lockstep.outbox_subscribe('default', '{orders,trades}', true)`,
  )
  expect(rows).toEqual([{ answer: 'changed' }])
  sent.give()
  await old.until(2)
  const next = bench.dispatch(lockstep, { topics: ['trades', 'orders'] })
  await next.until(2)
  expect(next.delivered.toSorted()).toEqual(['orders/a#1', 'trades/a#2'])
  await old.stop()
})

test('no event falls between two lists while processes are replaced one by one', async () => {
  const { lockstep } = bench.open('pg', { max: 20 })
  const changed = reported('outbox.topicsChanged')
  const start = (topics: readonly string[]): Dispatching => bench.dispatch(lockstep, { shards: 4, topics })
  const writing = { on: true }
  const writers = ['trades', 'orders'].map(async (topic) => {
    for (let n = 0; writing.on; n++) await write(lockstep, `${topic}/${n % 5}`)
  })
  const old = [start(['trades']), start(['trades'])]
  const total = (all: readonly Dispatching[], of: string): number =>
    all.flatMap(({ events }) => events).filter(({ topic }) => topic === of).length
  await eventually(() => total(old, 'trades') >= 20)
  const next = [start(['trades', 'orders'])]
  await old[0]?.stop()
  // An old one that restarts in the middle.
  old.push(start(['trades']))
  next.push(start(['trades', 'orders']))
  for (const each of old) await each.stop()
  await expect.poll(() => changed.some(({ to }) => to?.length === 2)).toBe(true)
  old.push(start(['trades']))
  await eventually(() => total(next, 'orders') >= 50)
  writing.on = false
  await Promise.all(writers)
  await expect.poll(() => lag(lockstep)).toBe(0)
  for (const each of [...old, ...next]) await each.stop()
  const delivered = [...old, ...next].flatMap(({ events }) => events)
  expect(total(old, 'orders')).toBe(0)
  const { topicsAfter = 0 } = changed.find(({ to }) => to?.length === 2) ?? {}
  const { rows } = await bench.admin.query<{ name: string }>(
    `SELECT uuid AS name FROM lockstep.outbox_events WHERE topic = 'trades' OR id > $1`,
    [topicsAfter],
  )
  const ids = new Set(delivered.map(({ id }) => id))
  expect(rows.filter(({ name }) => !ids.has(name))).toEqual([])
  // Every stream that has begun has no gap.
  for (const name of new Set(delivered.map(({ topic, key }) => `${topic}/${key}`))) {
    const own = delivered.filter(({ topic, key }) => `${topic}/${key}` === name)
    const seqs = [...new Set(own.map(({ seq }) => seq))].toSorted((one, other) => one - other)
    expect(seqs, name).toEqual(seqs.map((_, place) => (seqs[0] ?? 0) + place))
  }
})

test('a stream that was parked is still delivered when its topic is not wanted any more', async () => {
  const { lockstep } = bench.open('pg', { max: 10 })
  const old = bench.dispatch(lockstep, {
    topics: ['trades', 'mails'],
    sink: (events) => events.map(({ topic }) => (topic === 'mails' ? { refused: 'no' } : 'sent')),
  })
  await write(lockstep, 'mails/a', 'mails/a', 'trades/a')
  await old.until(1)
  await eventually(async () => (await lockstep.outbox.parked())[0]?.events === 2)
  await old.stop()
  const next = bench.dispatch(lockstep, { topics: ['trades'] })
  await write(lockstep, 'mails/a', 'trades/a')
  await next.until(3)
  expect(next.delivered.toSorted()).toEqual(['mails/a#1', 'mails/a#2', 'trades/a#2'])
  await eventually(async () => (await lockstep.outbox.parked()).length === 0)
})

test('goes back to all topics, and a process of another list takes no shard', async () => {
  const { lockstep } = bench.open('pg', { max: 10 })
  const first = bench.dispatch(lockstep, { topics: ['trades'] })
  await write(lockstep, 'trades/a')
  await first.until(1)
  await first.stop()
  const history = '(SELECT value::text FROM lockstep.incarnation)'
  const take = (topics: string): Promise<unknown> =>
    bench.admin
      .query(`SELECT lockstep.outbox_take_shard('default', 0::smallint, 1, ${history}, 1, ${topics}) AS verdict`)
      .then(({ rows }) => rows)
  expect(await take(`'{orders}'`)).toEqual([{ verdict: 'topics' }])
  // The function of the previous release wants all topics.
  const earlier = `SELECT lockstep.outbox_take('default', 0::smallint, 9223372036854775807, ${history}, 1) AS verdict`
  expect((await bench.admin.query(earlier)).rows).toEqual([{ verdict: 'lost' }])
  const all = bench.dispatch(lockstep)
  await expect.poll(async () => (await lockstep.outbox.status()).dispatchers[0]?.topics).toBeUndefined()
  await write(lockstep, 'mails/a')
  await all.until(1)
  expect(all.delivered).toEqual(['mails/a#1'])
})

test('a drain delivers its topics, passes the others, and does not change the list', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const delivered: string[] = []
  const drain = (topics: readonly string[]): Promise<Drained> =>
    lockstep.outbox
      .dispatcher({
        name: 'cron',
        topics,
        retainMs: false,
        sink: (events) => void delivered.push(...events.map(({ topic, seq }) => `${topic}#${seq}`)),
      })
      .drain()
  await write(lockstep, 'mails/a', 'trades/a', 'mails/a')
  expect(await drain(['trades'])).toMatchObject({ delivered: 1, ended: 'empty', left: { events: 0 } })
  await bench.admin.query(`SELECT lockstep.enqueue('mails', n::text, '1') FROM generate_series(1, 1000) AS n`)
  await write(lockstep, 'trades/a', 'mails/a')
  expect(await drain(['trades'])).toMatchObject({ delivered: 1, ended: 'empty', left: { events: 0 } })
  expect(delivered).toEqual(['trades#1', 'trades#2'])
  await expect(drain(['trades', 'mails'])).rejects.toThrow(/The dispatcher cron has other topics than mails, trades/)
  await expect(drain(['trades', 'mails'])).rejects.toBeInstanceOf(InvalidOptionError)
  expect((await lockstep.outbox.status()).dispatchers).toEqual([{ name: 'cron', topics: ['trades'], topicsAfter: 0 }])
})

test('a rebase parks the events that the dispatcher wants', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const dispatcher = bench.dispatch(lockstep, { topics: ['trades'] })
  await write(lockstep, 'trades/a')
  await dispatcher.until(1)
  await dispatcher.stop()
  await write(lockstep, 'mails/a', 'trades/b')
  expect(await lockstep.outbox.rebase({ deliver: 'all', preview: true })).toMatchObject({ putAside: 2 })
})

test('ends while it waits for another list', async () => {
  const { lockstep } = bench.open('pg', { max: 10 })
  const held = reported('outbox.topicsHeld')
  const runs = bench.dispatch(lockstep, { topics: ['trades'] })
  await write(lockstep, 'trades/a')
  await runs.until(1)
  const waits = bench.dispatch(lockstep, { topics: ['orders'] })
  await expect.poll(() => held.length).toBe(1)
  await waits.stop()
})
