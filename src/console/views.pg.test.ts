import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { DRIVERS, workbench } from '../../tools/server/testing/workbench.ts'
import { key, type Lockstep } from '../index.ts'
import { bench } from './consoleBench.conformance.ts'
import { type ConsoleLockstep, createConsole } from './index.ts'
import type { BlockingBranch, EpochHistory, GuardList } from './wire.ts'
import { hold } from '../testing/index.ts'

const database = await testDatabase()
const work = workbench(database)

const EVERY_MS = 50

// Machines may be busy.
type Counts = Record<'transaction' | 'locks' | 'leases' | 'status' | 'parked', number>

/** The same Lockstep, and how often it is asked what. */
function counted(lockstep: Lockstep): { readonly lockstep: ConsoleLockstep; readonly counts: Counts } {
  const counts: Counts = { transaction: 0, locks: 0, leases: 0, status: 0, parked: 0 }
  const { schema, locks, guards, leases, consumers, outbox } = lockstep
  const count = <Given extends unknown[], T>(
    name: keyof Counts,
    ask: (...given: Given) => Promise<T>,
  ): ((...given: Given) => Promise<T>) => {
    return (...given) => {
      counts[name]++
      return ask(...given)
    }
  }
  return {
    counts,
    lockstep: {
      schema,
      guards,
      consumers,
      locks: { list: count('locks', (given: { statements?: boolean }) => locks.list(given)) },
      leases: Object.assign(Object.create(leases) as typeof leases, {
        list: count('leases', (given: { limit?: number }) => leases.list(given)),
      }),
      outbox: Object.assign(Object.create(outbox) as typeof outbox, {
        status: count('status', () => outbox.status()),
        parked: count('parked', (given: { limit?: number }) => outbox.parked(given)),
      }),
      detached: (fn) => lockstep.detached(fn),
      transaction: (options, fn) => {
        counts.transaction++
        return lockstep.transaction(options, fn)
      },
    },
  }
}

const total = (counts: Counts): number => Object.values(counts).reduce((sum, each) => sum + each, 0)

function pids(branches: readonly BlockingBranch[]): unknown[] {
  return branches.map(({ pid, blocks }) => (blocks.length === 0 ? pid : [pid, pids(blocks)]))
}

describe.each(DRIVERS)('%s', (driver) => {
  test('shows locks and blockers as the library lists them', async () => {
    const { lockstep } = work.open(driver, { max: 4 })
    const other = work.open(driver, { max: 4 })
    const { release: letGo } = await hold(lockstep, [key`Order:held`, key`Order:other`])
    const waiting = other.lockstep.transaction({ lock: key`Order:held` }, async () => undefined)
    await work.waiters(1)
    const site = await bench(lockstep, { everyMs: EVERY_MS })
    const stream = await site.stream('locks,overview')
    const { locks, tree, more } = await stream.next('locks', (each) => each.locks[0]?.waiters.length === 1)
    const listed = await lockstep.locks.list()
    expect(more).toBe(0)
    expect(locks.map(({ id, key: name, operation }) => ({ id, name, operation }))).toEqual(
      listed.locks.map(({ id, key: name, operation }) => ({ id: String(id), name, operation })),
    )
    expect(locks[0]).toMatchObject({ key: 'Order:held', operation: 'Order', holders: [{ mode: 'exclusive' }] })
    expect(locks[0]?.waiters[0]?.forMs).toBeGreaterThanOrEqual(0)
    expect(pids(tree)).toEqual([[locks[0]?.holders[0]?.pid, [locks[0]?.waiters[0]?.pid]]])
    expect(tree[0]?.waitsFor).toBeNull()
    expect(tree[0]?.blocks[0]).toMatchObject({ waitsFor: 'Order:held', waitedMs: expect.any(Number) })
    const overview = await stream.next('overview', ({ lockWaiters }) => lockWaiters === 1)
    expect(overview).toMatchObject({ locksHeld: 2, lockWaiters: 1 })
    await letGo()
    await waiting
    await stream.next('locks', (each) => each.locks.length === 0 && each.tree.length === 0)
  })

  test('shows leases as the library lists them, and sends only changes', async () => {
    const { lockstep } = work.open(driver, { max: 4 })
    await using lease = await lockstep.leases.acquire(key`Instance:1`, {
      holder: 'one',
      permits: 2,
      ttlMs: 60_000,
      metadata: { request: 'r-1', step: 2 },
    })
    await using second = await lockstep.leases.acquire(key`Instance:1`, { holder: 'two', permits: 2, ttlMs: 60_000 })
    const leaving = new AbortController()
    const waiting = lockstep.leases.acquire(key`Instance:1`, {
      holder: 'three',
      permits: 2,
      waitMs: 60_000,
      signal: leaving.signal,
    })
    waiting.catch(() => undefined)
    const { lockstep: looking, counts } = counted(lockstep)
    const site = await bench(looking, { everyMs: EVERY_MS })
    const stream = await site.stream('leases,overview')
    const { leases, more } = await stream.next('leases', (each) => each.leases[0]?.waiters.length === 1)
    const [listed] = await lockstep.leases.list()
    expect(more).toBe(0)
    expect(leases).toEqual([
      {
        key: 'Instance:1',
        permits: 2,
        holders: listed?.holders.map(({ holder, slot, fence, since }) => ({
          holder,
          about: holder === 'one' ? 'step: 2, request: r-1' : null,
          slot,
          fence: String(fence),
          since: since.toISOString(),
          until: expect.any(String),
        })),
        waiters: [{ holder: 'three', since: listed?.waiters[0]?.since.toISOString() }],
      },
    ])
    expect(new Date(leases[0]?.holders[0]?.until ?? '').getTime() - Date.now()).toBeGreaterThan(50_000)
    expect([lease.fence, second.fence].map(String).toSorted()).toEqual(
      leases[0]?.holders.map(({ fence }) => fence).toSorted(),
    )
    await stream.next('overview', ({ leasesHeld, leaseWaiters }) => leasesHeld === 1 && leaseWaiters === 1)
    // The overview continues; of the leases there is no news, however often they are looked at.
    const sent = stream.seen.filter(({ name }) => name === 'leases').length
    const looked = counts.leases
    await expect.poll(() => counts.leases - looked).toBeGreaterThan(3)
    await stream.next('overview')
    expect(stream.seen.filter(({ name }) => name === 'leases')).toHaveLength(sent)
    leaving.abort()
    await stream.next('leases', (each) => each.leases[0]?.waiters.length === 0)
  })

  test('shows the outbox as the library reports it, with its rates', async () => {
    const { lockstep } = work.open(driver, { max: 6 })
    const name = `looking-${driver}`
    await work.admin.query('TRUNCATE lockstep.outbox_events, lockstep.outbox_parked, lockstep.outbox_parked_events')
    const run = dispatching(lockstep, {
      name,
      shards: 2,
      topics: ['t', 'orders.*'],
      attempts: 1,
      sink: (events) => events.map(({ key: stream }) => (stream === 'bad' ? { refused: 'poison' } : ('sent' as const))),
    })
    const site = await bench(lockstep, { everyMs: EVERY_MS })
    const stream = await site.stream('outbox,overview')
    const enqueue = (...keys: string[]): Promise<void> =>
      lockstep.transaction({}, (tx) =>
        tx.enqueueMany(keys.map((each) => ({ topic: 't', key: each, payload: { each } }))),
      )
    await enqueue('bad', 'bad', 'good')
    await eventually(async () => (await lockstep.outbox.parked({ dispatcher: name }))[0]?.state === 'blocked')
    const ownOf = <T extends { readonly dispatcher: string }>(all: readonly T[]): T[] =>
      all.filter(({ dispatcher }) => dispatcher === name)
    // Shards and streams are two questions, and may be of two moments.
    const { dispatchers, shards, parked, segments } = await stream.next(
      'outbox',
      (each) =>
        ownOf(each.parked).some(({ state, events }) => state === 'blocked' && events === 2) &&
        ownOf(each.shards).filter(({ owner }) => owner !== null).length === 2 &&
        ownOf(each.shards).some(({ parkedStreams }) => parkedStreams === 1),
    )
    expect(dispatchers.find((each) => each.name === name)).toEqual({ name, shards: 2, topics: ['orders.*', 't'] })
    const [listed] = await lockstep.outbox.parked({ dispatcher: name })
    expect(parked.find((row) => row.dispatcher === name)).toEqual({
      ...listed,
      since: listed?.since.toISOString(),
      nextAttemptAt: null,
    })
    expect(ownOf(shards).reduce((sum, { parkedStreams }) => sum + parkedStreams, 0)).toBe(1)
    // An owner that is slow can lose its shard: wait until the page shows what the library reports.
    const { shards: now, segments: kept } = await lockstep.outbox.status()
    const owned = (all: readonly { shard: number; owner: unknown; fence: unknown }[]): string =>
      all.map(({ shard, owner, fence }) => [shard, owner, String(fence)].join()).join(' ')
    if (owned(ownOf(shards)) !== owned(ownOf(now))) {
      await stream.next('outbox', (each) => owned(ownOf(each.shards)) === owned(ownOf(now)))
    }
    expect(segments.map(({ number, current }) => ({ number, current }))).toEqual(
      kept.map(({ number, current }) => ({ number, current })),
    )
    const busy = stream.next('overview', (each) => (each.enqueuedPerSecond ?? 0) > 0)
    const delivered = stream.next('overview', (each) => (each.deliveredPerSecond ?? 0) > 0)
    let [sent, seen] = [0, false]
    void Promise.all([busy, delivered]).then(() => (seen = true))
    // A rate is that of two looks: those before the first one do not count.
    await expect
      .poll(async () => {
        await enqueue('good')
        sent++
        return seen
      })
      .toBe(true)
    await run.until(1 + sent)
    await run.stop()
    await lockstep.outbox.removeDispatcher(name, { reason: 'the test is over' })
    await stream.next('outbox', (each) => ownOf(each.shards).length === 0 && ownOf(each.parked).length === 0)
  })
})

test('shows a history as the library does', async () => {
  const { lockstep } = work.open('pg')
  const site = await bench(lockstep)
  const lease = await lockstep.leases.acquire(key`Instance:past`, { holder: 'past' })
  await lease.release()
  const { status, text } = await site.ask('/api/leases/history?key=Instance:past')
  const [entry] = await lockstep.leases.history(key`Instance:past`)
  expect([status, JSON.parse(text)]).toEqual([
    200,
    {
      key: 'Instance:past',
      entries: [
        {
          holder: 'past',
          fence: String(entry?.fence),
          since: entry?.since.toISOString(),
          endedAt: entry?.endedAt.toISOString(),
          ending: 'released',
          by: null,
          reason: null,
        },
      ],
    },
  ])
  expect((await site.ask('/api/leases/history?key=nokey')).problem()).toMatchObject({ code: 'LOCKSTEP_INVALID_KEY' })
})

test('lists guards, and who wrote without the lock', async () => {
  const { lockstep } = work.open('pg')
  const site = await bench(lockstep)
  await work.admin.query('CREATE TABLE guarded (id integer)')
  await lockstep.guards.add('guarded', { key: 'Account:{id}' })
  await work.admin.query('INSERT INTO guarded VALUES (7)')
  expect((JSON.parse((await site.ask('/api/guards')).text) as GuardList).guards).toMatchObject([
    { table: 'public.guarded', key: 'Account:{id}', mode: 'observe', unlocked: 1, samples: [{ key: 'Account:7' }] },
  ])
})

test('shows the server epochs, the newest first', async () => {
  const { lockstep } = work.open('pg')
  const site = await bench(lockstep)
  // As after a promotion.
  await work.admin.query(`SELECT FROM lockstep.ensure_incarnation()`)
  await work.admin.query(`TRUNCATE lockstep.incarnation; UPDATE lockstep.epoch SET timeline = timeline + 1`)
  await work.admin.query(`SELECT FROM lockstep.ensure_incarnation()`)
  const { entries, grantsInMs } = JSON.parse((await site.ask('/api/epochs')).text) as EpochHistory
  expect(entries[0]).toMatchObject({ kind: 'timeline', timeline: 1, lastKnownAt: null })
  expect(entries[0]?.generation).toBeGreaterThan(entries[1]?.generation ?? 0)
  expect(grantsInMs).toBeGreaterThan(0)
  // Other tests take leases.
  await work.admin.query('UPDATE lockstep.epoch SET grants_from = NULL')
  expect((JSON.parse((await site.ask('/api/epochs')).text) as EpochHistory).grantsInMs).toBe(null)
})

test('counts what is beyond the end of a long list', async () => {
  const { lockstep } = work.open('pg')
  await work.admin.query(`
    INSERT INTO lockstep.leases (name, slot, permits, token, fence, holder, acquired_at, expires_at)
    SELECT 'Many:' || n, 0, 1, gen_random_uuid(), n, 'h', now(), now() + interval '1 hour' FROM generate_series(1, 2500) AS n`)
  const stream = await (await bench(lockstep)).stream('leases')
  const { leases, more } = await stream.next('leases')
  expect([leases.length, more]).toEqual([2000, 500])
  await work.admin.query(`DELETE FROM lockstep.leases WHERE name LIKE 'Many:%'`)
})

test('queries only what a viewer looks at', async () => {
  const { lockstep, counts } = counted(work.open('pg').lockstep)
  const site = await bench(lockstep, { everyMs: EVERY_MS })
  await site.ask('/')
  await delay(5 * EVERY_MS)
  expect(total(counts)).toBe(0)
  const stream = await site.stream('locks')
  await stream.next('locks')
  await expect.poll(() => counts.locks).toBeGreaterThan(3)
  expect(counts).toMatchObject({ leases: 0, status: 0, parked: 0 })
  const wider = await site.stream('leases')
  await wider.next('leases')
  expect(counts).toMatchObject({ status: 0, parked: 0 })
  wider.leave()
  stream.leave()
  // The server hears of it a moment later, and a question may be in progress.
  await expect
    .poll(async () => {
      const before = total(counts)
      await delay(5 * EVERY_MS)
      return total(counts) - before
    })
    .toBe(0)
  const back = await site.stream('locks')
  await back.next('locks')
})

test('queries for twenty viewers as often as for one', async () => {
  const { lockstep, counts } = counted(work.open('pg').lockstep)
  const site = await bench(lockstep, { everyMs: EVERY_MS })
  const from = performance.now()
  const streams = await Promise.all(Array.from({ length: 20 }, () => site.stream('overview,locks,outbox')))
  await Promise.all(
    streams.map(async (stream) => {
      for (let n = 0; n < 4; n++) await stream.next('overview')
    }),
  )
  const rounds = Math.floor((performance.now() - from) / EVERY_MS) + 1
  expect(counts.locks).toBeLessThanOrEqual(rounds)
  expect(counts.parked).toBeLessThanOrEqual(rounds / 2 + 1)
  // The overview's own, the counts of leases, where the outbox is, and now and then how long it takes to ask.
  expect(counts.transaction).toBeLessThanOrEqual(rounds + 2 * (rounds / 2 + 1) + rounds / 20 + 2)
  const [first, ...others] = streams.map(({ seen }) => seen.filter(({ name }) => name === 'overview').slice(0, 4))
  for (const other of others) expect(other.at(-1)).toEqual(first?.find(({ data }) => data === other.at(-1)?.data))
})

test('needs one connection for everything', async () => {
  const { lockstep } = work.open('pg', { max: 1 })
  const site = await bench(lockstep, { everyMs: EVERY_MS })
  const stream = await site.stream('overview,locks,leases,outbox')
  for (const tab of ['overview', 'locks', 'leases', 'outbox'] as const) await stream.next(tab)
  await stream.next('overview', ({ commitsPerSecond }) => commitsPerSecond !== null)
})

test('shows a later viewer what is there', async () => {
  const { lockstep, counts } = counted(work.open('pg').lockstep)
  const site = await bench(lockstep, { everyMs: 60_000 })
  const first = await (await site.stream('locks')).next('locks')
  const second = await (await site.stream('locks')).next('locks')
  expect(second).toEqual(first)
  expect(counts.locks).toBe(1)
})

test('sends a slow reader the newest only', async () => {
  const { lockstep } = work.open('pg')
  const { lockstep: watched, counts } = counted(lockstep)
  const site = createConsole(watched, { everyMs: EVERY_MS, share: 1 })
  const response = await site.fetch(new Request('http://localhost/api/stream?show=leases'))
  const quick = await (await bench(lockstep, { everyMs: EVERY_MS })).stream('leases')
  const reader = (response.body as ReadableStream<Uint8Array>).getReader()
  const read = async (): Promise<string> => new TextDecoder().decode((await reader.read()).value)
  let text = await read()
  while (!text.includes('event: leases')) text = await read()
  for (let n = 0; n < 5; n++) {
    const lease = await lockstep.leases.acquire(key`Slow:${n}`)
    await quick.next('leases', ({ leases }) => leases.some((each) => each.key === `Slow:${n}`))
    // Its own console has looked as well: one look can have begun before.
    const looked = counts.leases
    await expect.poll(() => counts.leases).toBeGreaterThan(looked + 2)
    if (n < 4) await lease.release()
  }
  text = await read()
  expect(text.match(/^event: leases$/gm)).toHaveLength(1)
  expect(text).toContain('Slow:4')
  expect(text).not.toContain('Slow:0')
  await reader.cancel()
  await site.close()
})

test('accepts fifty viewers, and the next when one leaves', async () => {
  const site = await bench(work.open('pg').lockstep, { everyMs: EVERY_MS })
  const streams = await Promise.all(Array.from({ length: 50 }, () => site.stream('locks')))
  const refused = await site.ask('/api/stream?show=locks')
  expect([refused.status, refused.problem().code]).toEqual([503, 'too-many-viewers'])
  streams[0]?.leave()
  await expect
    .poll(async () => {
      const answer = await site.console.fetch(new Request('http://localhost/api/stream?show=locks'))
      if (answer.status === 200) await answer.body?.cancel()
      return answer.status
    })
    .toBe(200)
})

test('ends streams on close', async () => {
  const site = await bench(work.open('pg').lockstep)
  const stream = await site.stream('overview')
  await stream.next('overview')
  await site.console.close()
  await stream.ended
})
