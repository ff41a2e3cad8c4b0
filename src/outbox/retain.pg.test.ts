import { describe, expect, test } from 'vitest'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, type Lockstep, ReplayStoppedError, type SinkFunction } from '../index.ts'

/** Segments that come and go, and what of them is sent again. */

const bench = await testBench({ ownServer: true })

async function enqueue(lockstep: Lockstep, ...portfolios: string[]): Promise<void> {
  await lockstep.transaction({}, (tx) =>
    tx.enqueueMany(portfolios.map((key, n) => ({ topic: 'trades', key, payload: { n } }))),
  )
}

const segments = async (lockstep: Lockstep): Promise<number[]> =>
  (await lockstep.outbox.status()).segments.map(({ number }) => number)

async function stored(key: string): Promise<number[]> {
  const { rows } = await bench.admin.query<{ seq: number }>(
    `SELECT seq::int AS seq FROM lockstep.outbox_events WHERE key = $1 ORDER BY id`,
    [key],
  )
  return rows.map(({ seq }) => seq)
}

describe.each(DRIVERS)('retention, %s', (driver) => {
  // One for both: a dispatcher that no process runs keeps every segment.
  const name = 'default'

  test('empties segments that every dispatcher has passed, and keeps the numbers of quiet streams', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const prefix = driver
    const [quiet, busy] = [`${prefix} quiet`, `${prefix} busy`]
    const run = dispatching(lockstep, { name, retainMs: false })
    await enqueue(lockstep, quiet, busy, quiet)
    await run.until(3)
    const before = await segments(lockstep)
    const seen = [...run.delivered]
    // Twenty times around: every slot is used again.
    for (let round = 0; round < 20; round++) {
      await enqueue(lockstep, busy, `${prefix} new ${round}`)
      await eventually(() => run.delivered.length === seen.length + (round + 1) * 2)
      await eventually(async () => {
        await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })
        return (await stored(busy)).length === 0
      })
    }
    expect((await segments(lockstep)).at(-1)).toBeGreaterThan((before.at(-1) ?? 0) + 8)
    await enqueue(lockstep, quiet, busy)
    await run.until(3 + 40 + 2)
    await run.stop()
    expect(await stored(quiet)).toEqual([3])
    expect(await stored(busy)).toEqual([22])
    expect(run.delivered.filter((each) => each.includes('quiet'))).toEqual([1, 2, 3].map((n) => `trades/${quiet}#${n}`))
  })

  test('empties segments under an event that is held, which is sent all the same', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const key = `${driver} held`
    const run = dispatching(lockstep, { name, retainMs: false })
    const notBefore = new Date(Date.now() + 60 * 60 * 1000)
    await lockstep.transaction({}, (tx) =>
      tx.enqueueMany([
        { topic: 'trades', key, payload: 1, notBefore },
        { topic: 'trades', key, payload: 2 },
      ]),
    )
    await eventually(async () => (await lockstep.outbox.parked())[0]?.state === 'held')
    await eventually(async () => {
      await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })
      return (await stored(key)).length === 0
    })
    expect(run.delivered).not.toContain(`trades/${key}#1`)
    await lockstep.outbox.retry({ topic: 'trades', key })
    await eventually(() => run.delivered.includes(`trades/${key}#2`))
    await run.stop()
    expect(run.delivered.filter((each) => each.includes('held'))).toEqual([`trades/${key}#1`, `trades/${key}#2`])
    expect(run.events.filter((each) => each.key === key).map(({ payload }) => payload)).toEqual([1, 2])
  })

  test('keeps what a dispatcher has not passed, and blocks no writer', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const key = `${driver} undelivered`
    await enqueue(lockstep, key)
    for (let round = 0; round < 3; round++) await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })
    expect(await stored(key)).toEqual([1])
    const run = dispatching(lockstep, { name, retainMs: false })
    await run.until(1)
    // A session reads the old segment and keeps it locked: it is emptied later, and all other work continues.
    const [reading, goOn] = [signal(), signal()]
    const reader = bench.open(driver).begin('', async () => {
      reading.give()
      await goOn.given
    })
    const holder = await bench.admin.connect()
    await holder.query('BEGIN; SELECT count(*) FROM lockstep.outbox_events')
    await reading.given
    const retaining = lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })
    await enqueue(lockstep, key)
    await retaining
    expect(await stored(key)).toContain(1)
    await holder.query('COMMIT')
    holder.release()
    goOn.give()
    await reader
    await run.until(2)
    await eventually(async () => {
      await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })
      return (await stored(key)).length === 0
    })
    await run.stop()
  })

  test('delivers the events of a transaction that is open during a change of segments', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const key = `${driver} open`
    const run = dispatching(lockstep, { name, retainMs: false })
    const [written, goOn] = [signal(), signal()]
    const slow = bench.open(driver).lockstep.transaction({}, async (tx) => {
      await tx.query('SELECT lockstep.enqueue($1, $2, $3::text::json)', ['trades', key, '{}'])
      written.give()
      await goOn.given
    })
    await written.given
    await enqueue(lockstep, `${key} other`)
    await run.until(1)
    for (let round = 0; round < 3; round++) {
      await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })
      await enqueue(lockstep, `${key} other`)
    }
    goOn.give()
    await slow
    await enqueue(lockstep, key)
    await eventually(() => run.delivered.includes(`trades/${key}#2`))
    await run.stop()
    expect(run.delivered.filter((each) => each.startsWith(`trades/${key}#`))).toEqual([
      `trades/${key}#1`,
      `trades/${key}#2`,
    ])
  })

  test('keeps everything for a stopped dispatcher until it is removed', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const key = `${driver} removed`
    const [run, old] = [name, 'old'].map((each) => dispatching(lockstep, { name: each, retainMs: false }))
    await enqueue(lockstep, key)
    await eventually(() => [run, old].every((each) => each?.delivered.includes(`trades/${key}#1`)))
    const removing = (): Promise<void> => lockstep.outbox.removeDispatcher('old', { reason: 'replaced' })
    expect(await failureOf(removing())).toBeInstanceOf(InvalidOptionError)
    await old?.stop()
    await enqueue(lockstep, key)
    await eventually(() => run?.delivered.includes(`trades/${key}#2`) ?? false)
    for (let round = 0; round < 3; round++) await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })
    expect(await stored(key)).toContain(2)
    await removing()
    await eventually(async () => {
      await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })
      return (await stored(key)).length === 0
    })
    await run?.stop()
    expect(await failureOf(removing())).toBeInstanceOf(InvalidOptionError)
  })

  test('rejects invalid times', async () => {
    const { lockstep } = bench.open(driver)
    for (const olderThanMs of [Number.NaN, -1, '1' as never]) {
      expect(await failureOf(lockstep.outbox.retain({ olderThanMs }))).toBeInstanceOf(InvalidOptionError)
    }
  })
})

describe.each(DRIVERS)('replay, %s', (driver) => {
  test('sends one stream from a number, or everything from a position, in order', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const [a, b] = [`${driver} replay a`, `${driver} replay b`]
    const { position: start } = await lockstep.outbox.replay({ sink: () => undefined })
    for (let round = 0; round < 4; round++) await enqueue(lockstep, a, b, a)
    const seen: string[] = []
    const sink = (events: readonly { key: string; seq: number }[]): void => {
      for (const { key, seq } of events) seen.push(`${key}#${seq}`)
    }
    const stream = await lockstep.outbox.replay({ topic: 'trades', key: a, fromSeq: 3, toSeq: 6, batch: 2, sink })
    expect(stream.events).toBe(4)
    expect(seen.splice(0)).toEqual([3, 4, 5, 6].map((seq) => `${a}#${seq}`))
    const all = await lockstep.outbox.replay({ fromPosition: start, batch: 5, sink })
    expect(all.events).toBe(12)
    expect(seen.filter((each) => each.startsWith(a))).toEqual(Array.from({ length: 8 }, (_, n) => `${a}#${n + 1}`))
    const refusing = lockstep.outbox.replay({
      topic: 'trades',
      key: a,
      sink: (events) => events.map(() => ({ refused: 'no' })),
    })
    expect(await failureOf(refusing)).toBeInstanceOf(ReplayStoppedError)
    const short = lockstep.outbox.replay({ topic: 'trades', key: a, sink: () => [] })
    expect(await failureOf(short)).toBeInstanceOf(ReplayStoppedError)
    for (const options of [{ key: a }, { fromSeq: 2 }, { topic: 'trades', key: a, fromPosition: 1 }]) {
      expect(await failureOf(lockstep.outbox.replay({ ...options, sink }))).toBeInstanceOf(InvalidOptionError)
    }
  })

  /** a#1 has position 1 and is not committed; b#1 has position 2 and is. A replay that ends at 2 would never give a#1. */
  test('leaves no gap when it continues from where the last one ended', async () => {
    const { lockstep } = bench.open(driver)
    const [a, b] = [`${driver} slow`, `${driver} quick`]
    const { position: start } = await lockstep.outbox.replay({ sink: () => undefined })
    const slow = await bench.session()
    await slow.query('BEGIN')
    await slow.query(`SELECT lockstep.enqueue('trades', $1, '1')`, [a])
    await enqueue(lockstep, b)
    const seen: string[] = []
    const sink: SinkFunction = (events) => void seen.push(...events.map(({ key, seq }) => `${key}#${seq}`))
    const { position } = await lockstep.outbox.replay({ sink, fromPosition: start })
    await slow.query('COMMIT')
    await enqueue(lockstep, a)
    await lockstep.outbox.replay({ sink, fromPosition: position })
    expect(seen.filter((each) => each.startsWith(a))).toEqual([`${a}#1`, `${a}#2`])
  })
})
