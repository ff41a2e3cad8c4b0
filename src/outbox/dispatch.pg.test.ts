import { describe, expect, test, vi } from 'vitest'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, failureOf, signal } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, type Lockstep } from '../index.ts'
import { on } from '../observe/index.ts'

/** What dispatchers deliver, and in which order. */

const bench = await outboxBench()

const READS_THAT_WAIT = `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%outbox_read(%'`

const trade = (portfolio: string, n: number): { topic: string; key: string; payload: { n: number } } => {
  return { topic: 'trades', key: portfolio, payload: { n } }
}

async function enqueue(lockstep: Lockstep, ...portfolios: string[]): Promise<void> {
  await lockstep.transaction({}, (tx) => tx.enqueueMany(portfolios.map((portfolio, n) => trade(portfolio, n))))
}

const numbersOf = (delivered: readonly string[], stream: string): number[] =>
  delivered.filter((each) => each.startsWith(`${stream}#`)).map((each) => parseInt(each.split('#')[1] as string, 10))

const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n + 1)

describe.each(DRIVERS)('dispatch, %s', (driver) => {
  test('delivers old and new events in order, as they were enqueued', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const before = Date.now()
    await lockstep.transaction({}, async (tx) => {
      await tx.enqueue({ topic: 'trades', key: 'a', payload: { deep: [1, 'ü'] }, headers: { traceparent: '00-1' } })
      await tx.enqueue({ topic: 'trades', key: 'a', payload: Buffer.from([0, 255, 7]) })
    })
    const run = dispatching(lockstep)
    await run.until(2)
    await enqueue(lockstep, 'a', 'b', 'a')
    await run.until(5)
    await run.stop()
    expect(numbersOf(run.delivered, 'trades/a')).toEqual([1, 2, 3, 4])
    const [first, second] = run.events
    expect(first).toMatchObject({
      topic: 'trades',
      key: 'a',
      seq: 1,
      payload: { deep: [1, 'ü'] },
      headers: { traceparent: '00-1' },
    })
    expect(first?.body.toString()).toBe('{"deep":[1,"ü"]}')
    expect(first?.id).toMatch(/^[0-9a-f-]{36}$/)
    // However long it took: a time that was read wrong is hours off.
    const enqueuedAt = first?.enqueuedAt.getTime() ?? 0
    expect(enqueuedAt).toBeGreaterThan(before - 60_000)
    expect(enqueuedAt).toBeLessThan(Date.now() + 60_000)
    expect(second?.payload).toEqual(Buffer.from([0, 255, 7]))
    expect(second?.contentType).toBe('application/octet-stream')
    expect(first?.fence).toBeTypeOf('bigint')
  })

  test('continues where the last run stopped, without a duplicate', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    await enqueue(lockstep, 'a', 'b', 'c', 'a')
    const first = dispatching(lockstep)
    await first.until(4)
    await first.stop()
    await enqueue(lockstep, 'a', 'd')
    const second = dispatching(lockstep)
    await second.until(2)
    await second.stop()
    expect(second.delivered.toSorted()).toEqual(['trades/a#3', 'trades/d#1'])
  })

  test('delivers an open transaction when it commits, and delays no other stream', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const run = dispatching(lockstep, { shards: 1 })
    const [written, goOn] = [signal(), signal()]
    const slow = bench.open(driver).lockstep.transaction({}, async (tx) => {
      await tx.query(`SELECT lockstep.enqueue('trades', 'slow', '{}')`)
      written.give()
      await goOn.given
    })
    await written.given
    await enqueue(lockstep, 'a', 'b')
    await enqueue(lockstep, 'a', 'b')
    await run.until(4)
    goOn.give()
    await slow
    await run.until(5)
    await run.stop()
    expect(run.delivered.at(-1)).toBe('trades/slow#1')
    expect(numbersOf(run.delivered, 'trades/a')).toEqual([1, 2])
  })

  test('delivers late events of an old transaction after those that were committed before', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const [begun, goOn] = [signal(), signal()]
    const early = bench.open(driver).lockstep.transaction({}, async (tx) => {
      await tx.query('SELECT pg_current_xact_id()')
      begun.give()
      await goOn.given
      await tx.enqueue(trade('a', 101))
    })
    await begun.given
    await lockstep.transaction({}, (tx) => tx.enqueue(trade('a', 100)))
    goOn.give()
    await early
    const run = dispatching(lockstep)
    await run.until(2)
    await run.stop()
    expect(run.events.map(({ payload }) => payload)).toEqual([{ n: 100 }, { n: 101 }])
  })

  test('delivers a backlog of many writers in order, over batches and ticks', async () => {
    const writers = [bench.open(driver, { max: 5 }), bench.open(driver, { max: 5 })]
    await Promise.all(
      Array.from({ length: 10 }, async (_, writer) => {
        const { lockstep } = writers[writer % 2] as (typeof writers)[number]
        for (let round = 0; round < 30; round++) {
          await lockstep.transaction({}, async (tx) => {
            if (round % 3 === 0) await tx.query('SELECT pg_current_xact_id()')
            await tx.enqueueMany(
              Array.from({ length: 20 }, (__, n) => trade(`p${(writer * 7 + round * 3 + n) % 40}`, n)),
            )
          })
        }
      }),
    )
    const { rows } = await bench.admin.query<{ ticks: number }>(
      'SELECT count(*)::int AS ticks FROM lockstep.outbox_ticks',
    )
    expect(rows[0]?.ticks).toBeGreaterThan(3)
    const run = dispatching(bench.open(driver, { max: 6 }).lockstep, { batch: 37 })
    await run.until(6000)
    await run.stop()
    expect(run.delivered).toHaveLength(6000)
    for (let p = 0; p < 40; p++) {
      const numbers = numbersOf(run.delivered, `trades/p${p}`)
      expect(numbers).toEqual(upTo(numbers.length))
    }
  })

  test('delivers a transaction that is larger than many batches', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const run = dispatching(lockstep, { batch: 100, shards: 2 })
    await enqueue(lockstep, ...Array.from({ length: 7000 }, (_, n) => `p${n % 3}`))
    await run.until(7000)
    await run.stop()
    expect(run.delivered).toHaveLength(7000)
    for (let p = 0; p < 3; p++) expect(numbersOf(run.delivered, `trades/p${p}`)).toHaveLength(p === 0 ? 2334 : 2333)
    expect(numbersOf(run.delivered, 'trades/p1')).toEqual(upTo(2333))
  })

  /** With a window of exactly `batch` events the next reading finds nothing in it. A shard that ended there would wait for its refresh. */
  test('continues to the next window after one of exactly one batch', async () => {
    // The clock is slow, and stops before the refresh, which comes every 20 s.
    vi.useFakeTimers({ toFake: ['performance'] })
    let leftMs = 10_000
    const clock = setInterval(() => leftMs-- > 0 && vi.advanceTimersByTime(1), 5)
    try {
      const { lockstep } = bench.open(driver, { max: 6 })
      const run = dispatching(lockstep, { batch: 2, shards: 1 })
      await enqueue(lockstep, 'a', 'a')
      await run.until(2)
      await enqueue(lockstep, 'a')
      await run.until(3)
      await run.stop()
    } finally {
      clearInterval(clock)
      vi.useRealTimers()
    }
  })

  test('reads again at once what was committed while it was reading', async () => {
    // No pause ends.
    vi.useFakeTimers({ toFake: ['performance'] })
    const other = await bench.session()
    try {
      const { lockstep } = bench.open(driver, { max: 6 })
      await other.query('BEGIN; LOCK TABLE lockstep.outbox_segments IN ACCESS EXCLUSIVE MODE')
      const run = dispatching(lockstep, { shards: 1 })
      // By then it has the snapshot by which it reads.
      await eventually(async () => (await bench.admin.query(READS_THAT_WAIT)).rows.length > 0)
      await enqueue(lockstep, 'a')
      await other.query('COMMIT')
      await run.until(1)
      await run.stop()
    } finally {
      vi.useRealTimers()
      await other.query('ROLLBACK')
    }
  })

  test('shares shards evenly between two dispatchers, and hands over without a duplicate', async () => {
    const one = dispatching(bench.open(driver, { max: 6 }).lockstep, { holder: 'one' })
    const admin = bench.open(driver, { max: 6 }).lockstep
    const owned = async (holder: string): Promise<number> =>
      (await admin.outbox.status()).shards.filter((each) => each.owner === holder).length
    await eventually(async () => (await owned('one')) === 8)
    const two = dispatching(bench.open(driver, { max: 6 }).lockstep, { holder: 'two' })
    for (let round = 0; (await owned('two')) < 4; round++) await enqueue(admin, `p${round % 20}`, `q${round % 20}`)
    expect(await owned('one')).toBe(4)
    await one.stop()
    await eventually(async () => (await owned('two')) === 8)
    await enqueue(admin, 'last')
    const { rows } = await bench.admin.query<{ n: number }>('SELECT count(*)::int AS n FROM lockstep.outbox_events')
    const total = rows[0]?.n as number
    await eventually(() => one.delivered.length + two.delivered.length >= total)
    await two.stop()
    const all = [...one.delivered, ...two.delivered]
    expect(new Set(all).size).toBe(total)
    expect(all).toHaveLength(total)
    const other = dispatching(admin, { name: 'other', shards: 1 })
    await other.until(total)
    await other.stop()
    expect(other.delivered.toSorted()).toEqual(all.toSorted())
  })

  test('loses nothing while the sink is down, and resumes by itself', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const changes: string[] = []
    bench.cleanUp(on('outbox.sinkDown', ({ reason }) => changes.push(reason)))
    bench.cleanUp(on('outbox.sinkUp', () => changes.push('up')))
    let broken = true
    const run = dispatching(lockstep, {
      sink: () => {
        if (broken) throw new Error('connection refused')
      },
    })
    await enqueue(lockstep, 'a', 'b', 'c', 'a')
    await eventually(() => changes.length > 0)
    await enqueue(lockstep, 'a')
    broken = false
    await run.until(5)
    await run.stop()
    expect(changes[0]).toBe('connection refused')
    expect(changes.at(-1)).toBe('up')
    expect(numbersOf(run.delivered, 'trades/a')).toEqual([1, 2, 3])
    expect(await lockstep.outbox.parked()).toEqual([])
  })

  test('leaves the cursor to the next owner after the lease was lost', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const [sending, goOn] = [signal(), signal()]
    let late = true
    const one = dispatching(lockstep, {
      shards: 1,
      ttlMs: 2000,
      sink: async () => {
        if (!late) return
        late = false
        sending.give()
        await goOn.given
      },
    })
    await enqueue(lockstep, 'a', 'a')
    await sending.given
    await lockstep.leases.forceRelease('Outbox:default:shard:0', { by: 'test', reason: 'test' })
    // It takes the shard again, as another process would; what was sent before comes back later.
    await one.until(2)
    await enqueue(lockstep, 'a')
    await one.until(3)
    goOn.give()
    await one.until(5)
    await enqueue(lockstep, 'a')
    await one.until(6)
    await one.stop()
    // What the first owner had to say of its batch may have come last.
    await enqueue(lockstep, 'a')
    const next = dispatching(lockstep, { shards: 1 })
    await next.until(1)
    await next.stop()
    const numbers = [...one.delivered, ...next.delivered].map((each) => each.split('#')[1])
    expect(numbers).toEqual(['1', '2', '3', '1', '2', '4', '5'])
  })

  test('rejects invalid options, and another number of shards', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const sink = (): void => undefined
    const bad = [
      {},
      { sink: 1 },
      { sink, shards: 3 },
      { sink, batch: 0 },
      { sink, name: 'a b' },
      { sink, giveUp: 'no' },
    ]
    for (const options of bad) expect(() => lockstep.outbox.dispatcher(options as never)).toThrow(InvalidOptionError)
    const run = dispatching(lockstep, { shards: 2 })
    await enqueue(lockstep, 'a')
    await run.until(1)
    await run.stop()
    expect(await failureOf(lockstep.outbox.dispatcher({ sink, shards: 4 }).run())).toBeInstanceOf(InvalidOptionError)
  })

  test('ends on close()', async () => {
    const client = bench.open(driver, { max: 6 })
    const running = client.lockstep.outbox.dispatcher({ sink: () => undefined }).run()
    const { outbox } = bench.open(driver).lockstep
    await eventually(async () => (await outbox.status()).shards.some(({ owner }) => owner !== undefined))
    await client.lockstep.close()
    await running
  })
})
