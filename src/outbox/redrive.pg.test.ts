import { describe, expect, test } from 'vitest'
import { eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, failureOf } from '../../tools/server/testing/workbench.ts'
import { type Delivery, InvalidOptionError, type OutboxEvent } from '../index.ts'

/** Many dead letters or parked streams at once, by id, topic or error. */

const bench = await outboxBench()

/** Takes all but what is refused, in the order of each stream. */
function sink(refused: (event: OutboxEvent) => string | undefined) {
  return (events: readonly OutboxEvent[]): Delivery[] => {
    const stopped = new Set<string>()
    return events.map((event) => {
      if (stopped.has(event.key)) return { unknown: 'behind it' }
      const reason = event.tombstone === undefined ? refused(event) : undefined
      if (reason === undefined) return 'sent'
      stopped.add(event.key)
      return { refused: reason }
    })
  }
}

const audit = async (): Promise<string[]> => {
  const { rows } = await bench.admin.query<{ line: string }>(
    `SELECT concat_ws(' ', verb, topic, key, seq, by_name, reason) AS line FROM lockstep.outbox_audit WHERE verb = 'redrive' ORDER BY id`,
  )
  return rows.map(({ line }) => line)
}

describe.each(DRIVERS)('redrive, %s', (driver) => {
  test('enqueues dead letters again, once, in order, at the end of their streams', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    let broken = true
    const run = bench.dispatch(lockstep, {
      attempts: 1,
      giveUp: 'deadLetter',
      sink: sink(({ seq, key }) => (broken && seq <= 3 ? `550 no such user ${key}` : undefined)),
    })
    for (const key of ['a', 'b']) for (let n = 1; n <= 4; n++) await bench.enqueue(key, { n, key })
    await run.until(8)
    broken = false
    expect(run.delivered.filter((each) => each.includes('/a'))).toEqual(['t/a#1†', 't/a#2†', 't/a#3†', 't/a#4'])

    const page = await lockstep.outbox.deadLetters({ limit: 4 })
    expect(page.deadLetters).toHaveLength(4)
    const rest = await lockstep.outbox.deadLetters({ limit: 4, cursor: page.next as string })
    expect([rest.deadLetters.length, rest.next]).toEqual([2, undefined])
    const all = [...page.deadLetters, ...rest.deadLetters]
    expect(all.every(({ usable, dispatcher }) => usable && dispatcher === 'default')).toBe(true)

    const preview = await lockstep.outbox.redrive('dead', { topic: 't', error: 'USER A', preview: true })
    expect(preview).toMatchObject({ redriven: 0, more: false })
    expect(preview.found.map(({ key, seq }) => `${key}#${seq}`)).toEqual(['a#1', 'a#2', 'a#3'])
    expect((await lockstep.outbox.deadLetters()).deadLetters).toHaveLength(6)

    // By id, then by error, and many at the same time: each once.
    const second = all.find(({ key, seq }) => key === 'b' && seq === 2)?.id as string
    const byId = await lockstep.outbox.redrive('dead', { ids: [second], reason: 'fixed', by: 'ann' })
    expect([byId.redriven, byId.found.length]).toEqual([1, 1])
    const choice = { error: 'no such user', reason: 'they exist' } as const
    const raced = await Promise.all([1, 2, 3].map(() => lockstep.outbox.redrive('dead', choice)))
    expect(raced.reduce((sum, { redriven }) => sum + redriven, 0)).toBe(5)
    await run.until(14)
    await run.stop()
    const again = run.events.filter(({ headers }) => 'redriven-id' in headers)
    const seen = again.map(({ key, seq, headers }) => `${key}#${headers['redriven-seq']} as ${seq}`)
    expect(seen.toSorted()).toEqual(['a#1 as 5', 'a#2 as 6', 'a#3 as 7', 'b#1 as 6', 'b#2 as 5', 'b#3 as 7'])
    const ids = again.map(({ headers }) => String(headers['redriven-id']))
    expect(ids.toSorted()).toEqual(all.map(({ id }) => id).toSorted())
    expect(again.map(({ payload }) => payload)).toContainEqual({ n: 3, key: 'a' })
    expect((await lockstep.outbox.deadLetters()).deadLetters).toEqual([])
    expect(await audit()).toHaveLength(6)
    expect((await audit())[0]).toBe('redrive t b 2 ann fixed')
  })

  test('has parked and blocked streams tried again, and leaves others alone', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    let broken = true
    const run = bench.dispatch(lockstep, {
      shards: 4,
      attempts: 1,
      backoffMs: { first: 600_000, longest: 600_000 },
      sink: sink(({ key }) => (broken && key !== 'fine' ? (key.endsWith('9') ? 'timeout' : 'bad format') : undefined)),
    })
    for (let n = 0; n < 250; n++) await bench.enqueue(`k${n}`)
    await eventually(async () => (await lockstep.outbox.parked({ limit: 1000 })).length === 250)
    await lockstep.outbox.pause({ topic: 't', key: 'k9' }, { reason: 'a timeout of ours' })
    broken = false

    const preview = await lockstep.outbox.redrive('parked', { error: 'timeout', preview: true })
    expect([preview.redriven, preview.found.length]).toEqual([0, 24])
    const some = await lockstep.outbox.redrive('parked', { error: 'timeout', limit: 10, reason: 'back' })
    expect([some.redriven, some.found.length, some.more]).toEqual([10, 10, true])
    await run.until(10)
    const { headId } = (await lockstep.outbox.parked({ limit: 1000 })).find(({ key }) => key === 'k1') ?? {}
    const one = await lockstep.outbox.redrive('parked', { ids: [headId as string], reason: 'back' })
    expect(one.found.map(({ key }) => key)).toEqual(['k1'])
    const rest = await lockstep.outbox.redrive('parked', { all: true, reason: 'all of them' })
    await run.until(249)
    await eventually(async () => (await lockstep.outbox.parked()).length === 1)
    await run.stop()
    // Some got through before it came to them.
    expect(rest.redriven).toBeGreaterThan(0)
    expect(rest.more).toBe(false)
    expect(await lockstep.outbox.parked()).toMatchObject([{ key: 'k9', state: 'paused' }])
    expect((await audit()).length).toBe(some.redriven + one.redriven + rest.redriven)
  })
})

test('waits for a stream that a session is busy with, and redrives the others at once', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const run = bench.dispatch(lockstep, { attempts: 1, sink: sink(() => 'no') })
  for (const key of ['a', 'b', 'c']) await bench.enqueue(key)
  const blocked = async (): Promise<number> =>
    (await lockstep.outbox.parked()).filter(({ state }) => state === 'blocked').length
  await eventually(async () => (await blocked()) === 3)
  await run.stop()
  const busy = await bench.admin.connect()
  await busy.query(`BEGIN; SELECT FROM lockstep.outbox_parked WHERE key = 'b' FOR UPDATE`)
  const redriving = lockstep.outbox.redrive('parked', { topic: 't', reason: 'again' })
  try {
    await eventually(async () => (await blocked()) === 1)
  } finally {
    await busy.query('COMMIT')
    busy.release()
  }
  expect((await redriving).redriven).toBe(3)
})

test('an event that two dispatchers gave up is enqueued once', async () => {
  const { lockstep } = bench.open('pg', { max: 8 })
  let broken = true
  const options = { attempts: 1, giveUp: 'deadLetter', sink: sink(() => (broken ? 'no' : undefined)) } as const
  const [one, two] = [
    bench.dispatch(lockstep, { ...options, name: 'one' }),
    bench.dispatch(lockstep, { ...options, name: 'two' }),
  ]
  await bench.enqueue('a')
  await Promise.all([one.until(1), two.until(1)])
  broken = false
  expect((await lockstep.outbox.deadLetters()).deadLetters.map(({ dispatcher }) => dispatcher)).toEqual(['one', 'two'])
  const redriven = await lockstep.outbox.redrive('dead', { dispatcher: 'two', all: true, reason: 'again' })
  expect(redriven.redriven).toBe(1)
  await Promise.all([one.until(2), two.until(2)])
  expect([one.delivered, two.delivered]).toEqual([
    ['t/a#1†', 't/a#2'],
    ['t/a#1†', 't/a#2'],
  ])
  expect((await lockstep.outbox.deadLetters()).deadLetters).toEqual([])
})

test('what was erased stays erased, also while it is being redriven', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const run = bench.dispatch(lockstep, {
    attempts: 1,
    giveUp: 'deadLetter',
    sink: sink(({ seq }) => (seq <= 2 ? 'no' : undefined)),
  })
  for (let n = 1; n <= 2; n++) await bench.enqueue('gone', { secret: n })
  for (let n = 1; n <= 2; n++) await bench.enqueue('racing', { secret: n })
  await run.until(4)
  await lockstep.outbox.erase({ topic: 't', key: 'gone' }, { reason: 'asked to' })
  const { found, redriven } = await lockstep.outbox.redrive('dead', { topic: 't', key: 'gone', reason: 'again' })
  expect([redriven, found.map(({ usable }) => usable)]).toEqual([0, [false, false]])

  // A redrive that has begun: erasing waits for it, and erases what it has enqueued.
  const busy = await bench.admin.connect()
  await busy.query('BEGIN')
  await busy.query(`SELECT lockstep.outbox_redrive_dead('default', array_agg(stream), array_agg(seq), array_agg(uuid), 'again')
                      FROM lockstep.outbox_dead WHERE key = 'racing'`)
  const erasing = lockstep.outbox.erase({ topic: 't', key: 'racing' }, { reason: 'asked to' })
  try {
    await eventually(async () => {
      const { rows } = await bench.admin.query(
        `SELECT FROM pg_locks WHERE relation = 'lockstep.outbox_dead'::regclass AND NOT granted`,
      )
      return rows.length === 1
    })
  } finally {
    await busy.query('COMMIT')
    busy.release()
  }
  expect(await erasing).toEqual({ erased: 4 })
  await run.stop()
  const { rows } = await bench.admin.query(
    `SELECT count(*)::int AS n FROM lockstep.outbox_events WHERE payload IS NOT NULL`,
  )
  expect(rows).toEqual([{ n: 0 }])
})

test('refuses a call that does not select, or gives no reason', async () => {
  const { lockstep } = bench.open('pg')
  const { outbox } = lockstep
  for (const call of [
    () => outbox.redrive('dead', { reason: 'x' }),
    () => outbox.redrive('dead', { all: true, topic: 't', reason: 'x' }),
    () => outbox.redrive('dead', { topic: 't' }),
    () => outbox.redrive('dead', { key: 'k', reason: 'x' }),
    () => outbox.redrive('dead', { ids: ['1'], reason: 'x' }),
    () => outbox.redrive('dead', { topic: undefined as never, reason: 'x' }),
    () => outbox.redrive('all' as never, { all: true, reason: 'x' }),
    () => outbox.deadLetters({ cursor: 'x' }),
    () => outbox.deadLetters({ cursor: Buffer.from('["dead","a","b","c"]').toString('base64url') }),
  ])
    expect(await failureOf(call())).toBeInstanceOf(InvalidOptionError)
})
