import { randomBytes } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, failureOf } from '../../tools/server/testing/workbench.ts'
import { type EventsOptions, InvalidOptionError, type Lockstep } from '../index.ts'

/** Retained events for people who look, page by page. */

const bench = await outboxBench()

/** All pages of a list, and how many there were. */
async function read(lockstep: Lockstep, options: EventsOptions): Promise<{ names: string[]; pages: number }> {
  const names: string[] = []
  let [pages, cursor]: [number, string | undefined] = [0, undefined]
  do {
    const page: Awaited<ReturnType<Lockstep['outbox']['events']>> = await lockstep.outbox.events({
      ...options,
      ...(cursor === undefined ? {} : { cursor }),
    })
    names.push(...page.events.map(({ topic, key, seq }) => `${topic}/${key}#${seq}`))
    expect(page.scanned).toBeLessThanOrEqual(options.maxScanned ?? 100_000)
    cursor = page.next
    pages++
  } while (cursor !== undefined)
  return { names, pages }
}

const numbered = (stream: string, from: number, to: number): string[] =>
  Array.from({ length: to - from + 1 }, (_, n) => `${stream}#${from + n}`)

describe.each(DRIVERS)('events, %s', (driver) => {
  test('have their size: of JSON, of bytes, with headers, short and long', async () => {
    const { lockstep } = bench.open(driver)
    const long = randomBytes(500).toString('hex')
    await lockstep.transaction({}, async (tx) => {
      const stream = { topic: 'sizes', key: 'a' }
      await tx.enqueue({ ...stream, payload: 1 })
      await tx.enqueue({ ...stream, payload: 'x'.repeat(124) })
      await tx.enqueue({ ...stream, payload: 'x'.repeat(125) })
      await tx.enqueue({ ...stream, payload: long })
      await tx.enqueue({ ...stream, payload: Buffer.from('abc') })
      await tx.enqueue({ ...stream, payload: 1, headers: { of: 'ann' } })
    })
    const { events } = await lockstep.outbox.events({ topic: 'sizes', key: 'a' })
    expect(events.map(({ storedBytes }) => storedBytes)).toEqual([1, 126, 127, 1002, 3, 13])
  })

  test('are found by topic, key and number, in both directions, page by page', async () => {
    const { lockstep } = bench.open(driver)
    await lockstep.transaction({}, async (tx) => {
      for (let n = 1; n <= 25; n++) {
        await tx.enqueue({ topic: 'trades', key: 'a', payload: { n } })
        await tx.enqueue({ topic: 'mails', key: 'b', payload: { n }, headers: { of: 'ann' } })
      }
    })
    const a = { topic: 'trades', key: 'a' }
    expect(await read(lockstep, { ...a, limit: 10 })).toEqual({ names: numbered('trades/a', 1, 25), pages: 3 })
    expect(await read(lockstep, { ...a, limit: 25 })).toEqual({ names: numbered('trades/a', 1, 25), pages: 1 })
    const backwards = await read(lockstep, { ...a, limit: 10, newestFirst: true, fromSeq: 3, toSeq: 20 })
    expect(backwards).toEqual({ names: numbered('trades/a', 3, 20).toReversed(), pages: 2 })
    // Few of them are read at once: pages that end early continue.
    for (const newestFirst of [false, true]) {
      const sorted = (names: string[]): string[] => (newestFirst ? names.toReversed() : names)
      const sparse = await read(lockstep, { topic: 'mails', limit: 10, maxScanned: 7, newestFirst })
      expect(sparse.names).toEqual(sorted(numbered('mails/b', 1, 25)))
      expect(sparse.pages).toBeGreaterThan(7)
      const all = await read(lockstep, { limit: 9, newestFirst })
      expect(all.names.filter((name) => name.startsWith('trades'))).toEqual(sorted(numbered('trades/a', 1, 25)))
      expect(all.names).toHaveLength(50)
    }
    const bounded = await lockstep.outbox.events({ ...a, maxScanned: 5, from: new Date(Date.now() + 3_600_000) })
    expect([bounded.events, bounded.scanned, bounded.next === undefined]).toEqual([[], 5, false])
    const [plain] = (await lockstep.outbox.events({ topic: 'mails', key: 'b', limit: 1 })).events
    expect(plain).toMatchObject({ seq: 1, erased: false, id: expect.stringMatching(/^[0-9a-f-]{36}$/) })
    expect(plain).not.toHaveProperty('payload')
    const full = await lockstep.outbox.events({ topic: 'mails', limit: 2, payloads: true, newestFirst: true })
    expect(full.events).toMatchObject([
      { seq: 25, payload: { n: 25 }, headers: { of: 'ann' } },
      { seq: 24, payload: { n: 24 }, headers: { of: 'ann' } },
    ])
  })
})

test('are found by time, though most of them are older or newer', async () => {
  const { lockstep } = bench.open('pg')
  await bench.admin.query(
    `SELECT lockstep.outbox_append_many(array_agg('t'::text), array_agg('k' || n % 10), array_agg('{}'::text), array_agg(NULL::bytea), array_agg(NULL::text))
       FROM generate_series(1, 20000) AS n`,
  )
  // One each second, the last one now.
  await bench.admin.query(
    `UPDATE lockstep.outbox_events e SET enqueued_at = date_trunc('second', now()) - make_interval(secs => (SELECT max(id) FROM lockstep.outbox_events) - e.id)`,
  )
  const { rows } = await bench.admin.query<{ at: Date }>(`SELECT date_trunc('second', now()) AS at`)
  const newest = rows[0]?.at.getTime() ?? 0
  const ago = (seconds: number): Date => new Date(newest - seconds * 1000)
  const hour = await lockstep.outbox.events({ from: ago(7200), to: ago(3600), limit: 10_000 })
  expect(hour.events.length).toBeGreaterThanOrEqual(3599)
  expect(hour.events.length).toBeLessThanOrEqual(3601)
  for (const { enqueuedAt } of hour.events) {
    expect(enqueuedAt.getTime()).toBeGreaterThanOrEqual(ago(7200).getTime())
    expect(enqueuedAt.getTime()).toBeLessThan(ago(3600).getTime())
  }
  // Of 20,000: the hour, a minute on both sides, and what the search leaves open.
  expect(hour.scanned).toBeLessThan(6000)
  const ofOne = await lockstep.outbox.events({ topic: 't', key: 'k3', from: ago(7200), to: ago(3600), limit: 1000 })
  expect(ofOne.events).toEqual(hour.events.filter(({ key }) => key === 'k3'))
  expect((await lockstep.outbox.events({ from: new Date(newest + 600_000) })).events).toEqual([])
})

test('with payloads, a page ends where they become too many, and the next one continues', async () => {
  const { lockstep } = bench.open('pg')
  // Nothing that could be compressed.
  for (let n = 1; n <= 9; n++) await bench.enqueue('large', randomBytes(650_000).toString('base64'))
  for (const newestFirst of [false, true]) {
    const first = await lockstep.outbox.events({ payloads: true, newestFirst })
    expect(first.events.length).toBeGreaterThan(0)
    expect(first.events.length).toBeLessThan(9)
    const { names } = await read(lockstep, { payloads: true, newestFirst })
    expect(names).toEqual(newestFirst ? numbered('t/large', 1, 9).toReversed() : numbered('t/large', 1, 9))
  }
})

test('refuses what is no selection', async () => {
  const { outbox } = bench.open('pg').lockstep
  for (const options of [
    { key: 'a' },
    { topic: 't', fromSeq: 1 },
    { from: new Date(2), to: new Date(1) },
    { from: 'yesterday' as never },
    { topic: undefined as never },
    { cursor: 'x' },
    { limit: 0 },
  ])
    expect(await failureOf(outbox.events(options as EventsOptions)), JSON.stringify(options)).toBeInstanceOf(
      InvalidOptionError,
    )
  const page = await outbox.events({ maxScanned: 1 })
  expect(page.events).toEqual([])
})
