import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import postgres, { type Sql } from 'postgres'
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import type * as Http from '../../src/http/index.ts'
import * as current from '../../src/index.ts'
import type * as Observe from '../../src/observe/index.ts'
import { nodeArguments } from '../server/nodeArguments.ts'
import { dispatching, eventually } from '../server/testing/dispatching.ts'
import { type DriverName, DRIVERS, failureOf, note, testBench } from '../server/testing/workbench.ts'
import { previousRelease } from './previousRelease.ts'
import { CREATE_SIDE_BY_SIDE } from './sideBySide.sql.ts'
import { COUNTERS, Participant, ROUNDS, SHARED, STREAMS } from './sideBySide.ts'
import type { Step } from './sideBySideProcess.ts'
import { hold } from '../../src/testing/index.ts'

/**
 * Operators migrate first and deploy afterwards, process by process. So the library of the previous release works with the schema of this
 * one, alone and beside processes of this one. What is called here is the API of the previous release: its types are those of this
 * release as long as the two agree.
 */

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 })

const library = previousRelease()
const bench = await testBench()

type Library = typeof current

/** Functions that no test here calls, and why. */
const NOT_CALLED: ReadonlySet<string> = new Set([
  // Of the background, minutes or hours apart.
  'idempotency_clean_up',
  'lease_clean_up',
  'lock_names_trim',
  'lock_trials_forget',
  // Of the console.
  'lease_counts',
  'outbox_head',
  // With a synchronous standby.
  'outbox_replicated',
  // The server puts their text in the place of the call, and counts none: a replay calls them.
  'outbox_max_event_bytes',
  'outbox_stored_bytes',
])

/** The library of the previous release. */
let previous: Library
let http: typeof Http
/** Why its dispatchers could not continue. They try again forever: a test would wait for them. */
let failures: unknown[] = []
let stops: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  if (library === undefined) return
  previous = (await import(/* @vite-ignore */ library.entry.href)) as Library
  http = (await import(/* @vite-ignore */ new URL('http/index.js', library.entry).href)) as typeof Http
  const observe = (await import(/* @vite-ignore */ new URL('observe/index.js', library.entry).href)) as typeof Observe
  observe.on('outbox.failed', ({ error }) => failures.push(error))
  await bench.admin.query(CREATE_SIDE_BY_SIDE)
  await bench.admin.query(`CREATE TABLE accounts (id text PRIMARY KEY, balance integer NOT NULL)`)
  await bench.admin.query(`ALTER DATABASE ${bench.name} SET track_functions = 'all'`)
})
afterEach(async () => {
  failures = []
  const all = stops.toReversed()
  stops = []
  for (const stop of all) await stop()
  if (library !== undefined) await bench.admin.query('TRUNCATE accounts, counters, holders, deliveries')
})

interface Opened {
  readonly lockstep: current.Lockstep
  readonly pool: pg.Pool | Sql
}

/** A Lockstep of the previous release, with a pool of its own. */
function open(driver: DriverName, options: current.LockstepOptions = {}): Opened {
  const pool =
    driver === 'pg'
      ? new pg.Pool({ connectionString: bench.url, max: 6 })
      : postgres(bench.url, { max: 6, onnotice: () => undefined })
  const lockstep = new previous.Lockstep(pool, options) as unknown as current.Lockstep
  stops.push(async () => {
    await lockstep.close()
    await pool.end()
  })
  return { lockstep, pool }
}

/** A process with the library of the previous release. */
class OldProcess {
  readonly #child: ChildProcess

  constructor(driver: DriverName) {
    const program = nodeArguments(new URL('sideBySideProcess.ts', import.meta.url))
    const args = [...program, library?.entry.href ?? '', 'old', bench.url, driver]
    this.#child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  }

  /** Comes back when it has done so. */
  async does(step: Step): Promise<void> {
    const ended = once(this.#child, 'exit').then(() => ({ failed: step, error: 'The process has ended.' }))
    const answered = once(this.#child, 'message').then(([answer]) => answer as { failed?: Step; error?: string })
    this.#child.send(step)
    const { failed, error } = await Promise.race([answered, ended])
    if (failed !== undefined) throw new Error(`The old process failed in ${failed}: ${error}`)
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const ended = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await ended
  }
}

/** Comes back when the condition holds; fails when a dispatcher has failed. */
async function dispatched(condition: () => Promise<boolean> | boolean): Promise<void> {
  await eventually(() => {
    if (failures.length > 0) throw failures[0]
    return condition()
  })
}

let number = 0
/** A name that no other test has. */
const fresh = (): string => `n${++number}`

describe.skipIf(library === undefined)('the library of the previous release, with the schema of this one', () => {
  describe.each(DRIVERS)('%s', (driver) => {
    test.each(['read committed', 'serializable'] as const)(
      'runs transactions with locks, nested ones and joined ones, %s',
      async (isolation) => {
        const { lockstep } = open(driver)
        await lockstep.transaction({ lock: ['Job:a', 'Job:b'], isolation }, async (tx) => {
          await note(tx, 'outer')
          await tx.transaction({ lock: 'Job:a' }, (inner) => note(inner, 'inner'))
          const failed = tx.transaction({}, async (inner) => {
            await note(inner, 'rolled back')
            throw new Error('no')
          })
          await failureOf(failed)
        })
        expect(await bench.notes()).toEqual(['inner', 'outer'])
        await bench.open(driver).begin('', async (client) => {
          await note(await lockstep.join(client, { lock: 'Job:a' }), 'joined')
        })
        expect(await bench.notes()).toEqual(['inner', 'joined', 'outer'])
        expect((await lockstep.locks.list()).locks).toEqual([])
      },
    )

    test.each(['advisory', 'table'] as const)(
      'excludes this release from its locks, and waits for those of this release, %s',
      async (strategy) => {
        const { lockstep: old } = open(driver, { strategy })
        const { lockstep: beside } = bench.open(driver, { strategy })
        const [lock, lease] = ['Job:held', `Held:${strategy}`] as const
        for (const [holder, other, TimeoutError] of [
          [old, beside, current.LockTimeoutError],
          [beside, old, previous.LockTimeoutError],
        ] as const) {
          const { release: letGo } = await hold(holder, lock)
          try {
            const refused = other.transaction({ lock, noWait: true }, async () => undefined)
            expect(await failureOf(refused)).toBeInstanceOf(TimeoutError)
          } finally {
            await letGo()
          }
          const held = await holder.leases.acquire(lease)
          expect(await other.leases.tryAcquire(lease)).toBeUndefined()
          await held.release()
        }
      },
    )

    test('locks by rows of a table, follows the rollout in the database, and lists who holds what', async () => {
      const { lockstep: byRows } = open(driver, { strategy: 'table' })
      const { lockstep } = open(driver, { rollout: 'database' })
      await byRows.transaction({ lock: 'Row:a' }, (tx) => note(tx, 'by row'))
      await lockstep.rollout.set('Off', 'off')
      expect(await lockstep.rollout.list()).toMatchObject([{ prefix: 'Off', mode: 'off' }])
      await lockstep.transaction({ lock: 'Off:a' }, (tx) => note(tx, 'off'))
      expect(await lockstep.rollout.unset('Off')).toBe(true)
      await lockstep.transaction({ lock: 'Held:a' }, async () => {
        await eventually(async () => (await lockstep.locks.list()).locks[0]?.key === 'Held:a')
      })
      expect(await bench.notes()).toEqual(['by row', 'off'])
    })

    test('creates once, combines calls, and locks rows in order', async () => {
      const { lockstep } = open(driver)
      await bench.admin.query(`INSERT INTO accounts VALUES ('a', 0), ('b', 0)`)
      const create = (): Promise<{ created: boolean }> =>
        lockstep.once(`Note:one`, {
          find: async (tx) => (await tx.query(`SELECT id FROM notes WHERE id = 'one'`)).rows[0],
          create: async (tx) =>
            (await tx.query(`INSERT INTO notes VALUES ('one') RETURNING id`)).rows[0] as Record<string, unknown>,
        })
      const created = await Promise.all([create(), create(), create()])
      expect(created.filter((each) => each.created)).toHaveLength(1)
      const deposit = lockstep.combine({
        key: (item: { to: string; amount: number }): current.Key => `Account:${item.to}`,
        run: async (tx, items) => {
          const rows = await previous.lockRows<{ id: string }>(tx, 'accounts', ['b', 'a'])
          expect(rows.map(({ id }) => id)).toEqual(['a', 'b'])
          for (const { to, amount } of items)
            await tx.query('UPDATE accounts SET balance = balance + $1 WHERE id = $2', [amount, to])
          return items.map(({ amount }) => amount)
        },
      })
      expect(await Promise.all([1, 2, 3].map((amount) => deposit({ to: 'a', amount })))).toEqual([1, 2, 3])
      expect((await bench.admin.query('SELECT balance FROM accounts ORDER BY id')).rows).toEqual([
        { balance: 6 },
        { balance: 0 },
      ])
    })

    test('takes, renews, waits for and releases leases, and takes them away', async () => {
      const { lockstep } = open(driver)
      const key: current.Key = `Lease:${fresh()}`
      const lease = await lockstep.leases.acquire(key, { ttlMs: 500, holder: 'first' })
      const expiry = async (): Promise<unknown> =>
        (await bench.admin.query(`SELECT expires_at::text FROM lockstep.leases WHERE name = $1`, [key])).rows
      const granted = JSON.stringify(await expiry())
      await eventually(async () => {
        lease.signal.throwIfAborted()
        return JSON.stringify(await expiry()) !== granted
      })
      expect(await lockstep.leases.tryAcquire(key)).toBeUndefined()
      expect(await failureOf(lockstep.leases.acquire(key, { waitMs: 50 }))).toBeInstanceOf(previous.LeaseHeldError)
      const next = lockstep.leases.acquire(key, { waitMs: 60_000, holder: 'second' })
      await eventually(async () => (await lockstep.leases.inspect(key)).waiters.length === 1)
      await lease.transaction({}, (tx) => note(tx, 'held'))
      await lockstep.transaction({}, async (tx) => {
        await lease.guard(tx)
        await note(tx, 'guarded')
      })
      await lease.release()
      const second = await next
      expect(second.fence).toBeGreaterThan(lease.fence)
      expect(await lockstep.leases.list({ prefix: key })).toHaveLength(1)
      expect(await lockstep.leases.forceRelease(key, { by: 'test', reason: 'test' })).toEqual({ released: 1 })
      expect(await failureOf(second.transaction({}, (tx) => note(tx, 'lost')))).toBeInstanceOf(previous.LeaseLostError)
      expect((await lockstep.leases.history(key)).map(({ ending }) => ending)).toEqual(['forced', 'released'])
      expect(await bench.notes()).toEqual(['guarded', 'held'])
    })

    test('enqueues one event and many, dispatches them in order, parks, skips, replays and retains', async () => {
      const { lockstep } = open(driver)
      const [topic, name] = [fresh(), fresh()]
      const event = (key: string, payload: number): { topic: string; key: string; payload: number } => ({
        topic,
        key,
        payload,
      })
      await lockstep.transaction({}, (tx) => tx.enqueue(event('a', 1)))
      await lockstep.transaction({}, (tx) => tx.enqueueMany([event('a', 2), event('b', 1), event('c', 1)]))
      await lockstep.transaction({ isolation: 'serializable', streams: [{ topic, key: 'a' }] }, (tx) =>
        tx.enqueue(event('a', 3)),
      )
      await bench.open(driver).begin('', async (client) => {
        expect(await lockstep.outbox.enqueue(client, event('b', 2))).toEqual({ seq: 2 })
      })
      const sink: current.SinkFunction = (batch) =>
        batch.map((each) => (each.topic === topic && each.key === 'c' && !each.tombstone ? { refused: 'no' } : 'sent'))
      const run = dispatching(lockstep, { name, sink, attempts: 1, retainMs: false })
      const delivered = (): string[] => run.delivered.filter((each) => each.startsWith(topic)).toSorted()
      const blocked = async (): Promise<boolean> =>
        (await lockstep.outbox.parked({ dispatcher: name })).some(
          ({ key, state }) => key === 'c' && state === 'blocked',
        )
      await dispatched(blocked)
      await lockstep.outbox.pause({ topic, key: 'b', dispatcher: name })
      await lockstep.outbox.resume({ topic, key: 'b', dispatcher: name })
      await lockstep.outbox.retry({ topic, key: 'c', dispatcher: name })
      await dispatched(blocked)
      await lockstep.outbox.skip({ topic, key: 'c', dispatcher: name, seq: 1 }, { reason: 'test' })
      await dispatched(() => delivered().length === 6)
      expect(delivered()).toEqual(['a#1', 'a#2', 'a#3', 'b#1', 'b#2', 'c#1†'].map((each) => `${topic}/${each}`))
      await run.stop()
      const { shards } = await lockstep.outbox.status()
      expect(shards.filter((shard) => shard.dispatcher === name)).toHaveLength(8)
      const replayed: number[] = []
      const again: current.SinkFunction = (batch) => void replayed.push(...batch.map(({ seq }) => seq))
      expect(await lockstep.outbox.replay({ sink: again, topic, key: 'a' })).toMatchObject({ events: 3 })
      expect(replayed).toEqual([1, 2, 3])
      await lockstep.outbox.replay({ sink: again, fromPosition: 0 })
      expect(await lockstep.outbox.erase({ topic, key: 'b' })).toEqual({ erased: 2 })
      await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })
      // More than one statement takes.
      await lockstep.transaction({}, (tx) => tx.enqueueMany(Array.from({ length: 5001 }, (_, n) => event('d', n))))
      await lockstep.outbox.rebase({ deliver: 'undelivered' })
      await lockstep.outbox.removeDispatcher(name, { reason: 'test' })
    })

    test('accepts events at the inbox, each once and in order', async () => {
      const { lockstep } = open(driver)
      const inbox = lockstep.inbox.consumer(fresh())
      const stream = { topic: fresh(), key: 'a' }
      const id = (seq: number): string => `00000000-0000-4000-8000-${String(seq).padStart(12, '0')}`
      const event = (seq: number): current.InboxEvent => ({ ...stream, seq, id: id(seq) })
      await lockstep.transaction({}, async (tx) => {
        expect(await inbox.startAt(tx, stream, 3)).toBe(true)
        expect(await inbox.accept(tx, event(3))).toBe('first')
        expect(await inbox.accept(tx, event(3))).toBe('duplicate')
        expect(await inbox.acceptMany(tx, [event(3), event(4), event(5)])).toEqual(['duplicate', 'first', 'first'])
      })
      expect(await inbox.handle(event(6), {}, (tx) => note(tx, 'six'))).toBe('first')
      expect(await inbox.position(stream)).toMatchObject({ seq: 6 })
      expect(await failureOf(inbox.handle(event(8), {}, (tx) => note(tx, 'gap')))).toBeInstanceOf(
        previous.InboxGapError,
      )
      expect(await bench.notes()).toEqual(['six'])
    })

    test('answers a repeated request with the first response', async () => {
      const { lockstep } = open(driver)
      const guard = http.idempotent(lockstep, { scope: () => driver })
      let runs = 0
      const handle = http.fetchHandler(guard, () => new Response(`run ${++runs}`))
      const send = (): Promise<Response> =>
        handle(new Request('http://localhost/', { method: 'POST', headers: { 'idempotency-key': 'one' }, body: '1' }))
      expect(await (await send()).text()).toBe('run 1')
      expect(await (await send()).text()).toBe('run 1')
    })

    test('finds nothing wrong with it, except that a newer version may have migrated it', async () => {
      const { lockstep } = open(driver)
      const wrong = (await lockstep.doctor()).filter(({ name }) => ['locks', 'schema', 'lock ids'].includes(name))
      expect(wrong.map(({ name }) => name)).toEqual(['locks', 'schema', 'lock ids'])
      for (const { name, level, advice } of wrong) {
        if (name === 'schema' && level === 'warn') expect(advice).toContain('A newer version migrated it')
        else expect({ name, level }).toEqual({ name, level: 'ok' })
      }
    })
  })

  test.each([
    { driver: 'pg', other: 'postgres.js' },
    { driver: 'postgres.js', other: 'pg' },
  ] as const)(
    'excludes processes of this release, and keeps the order with them, $driver',
    async ({ driver, other }) => {
      for (const id of COUNTERS) await bench.admin.query('INSERT INTO counters VALUES ($1, 0)', [id])
      await bench.admin.query(
        'TRUNCATE lockstep.outbox_events, lockstep.outbox_dispatchers, lockstep.outbox_cursors, lockstep.inbox',
      )
      const old = new OldProcess(driver)
      const beside = new Participant(current, { name: 'new', url: bench.url, driver: other })
      stops.push(
        () => old.end(),
        () => beside.stop(),
      )
      await old.does('startDispatching')
      beside.startDispatching()
      const owners = `SELECT DISTINCT holder FROM lockstep.leases WHERE name LIKE 'Outbox:${SHARED}:shard:%' AND token IS NOT NULL`
      await eventually(async () => (await bench.admin.query(owners)).rowCount === 2)
      await Promise.all([old.does('work'), beside.work()])
      const events = 2 * ROUNDS * (STREAMS + 1)
      await eventually(
        async () =>
          (await bench.admin.query<{ n: number }>('SELECT count(*)::int AS n FROM deliveries')).rows[0]?.n === events,
      )
      await old.does('stop')

      const { rows: counters } = await bench.admin.query('SELECT value FROM counters')
      expect(counters).toEqual(COUNTERS.map(() => ({ value: 2 * ROUNDS })))
      const { rows: holders } = await bench.admin.query<{ name: string; fence: number }>(
        'SELECT name, fence::float8 AS fence FROM holders ORDER BY place',
      )
      expect(holders).toHaveLength(2 * ROUNDS)
      const fences = holders.map(({ fence }) => fence)
      expect(fences).toEqual(fences.toSorted((a, b) => a - b))
      const { rows: deliveries } = await bench.admin.query<{ name: string; key: string; seq: number }>(
        'SELECT name, key, seq FROM deliveries ORDER BY place',
      )
      const byKey = new Map<string, number[]>()
      for (const { key, seq } of deliveries) byKey.set(key, [...(byKey.get(key) ?? []), seq])
      expect(byKey.size).toBe(STREAMS)
      for (const seqs of byKey.values()) expect(seqs).toEqual(seqs.map((_, place) => place + 1))
      expect(new Set(deliveries.map(({ name }) => name))).toEqual(new Set(['old', 'new']))
      expect(new Set(holders.map(({ name }) => name))).toEqual(new Set(['old', 'new']))
    },
  )

  test('changes nothing by migrate() in a schema of a newer version', async () => {
    const schema = 'beside'
    const { to } = await new current.Lockstep(bench.admin, { schema }).migrate()
    const functions = async (): Promise<unknown> =>
      (await bench.admin.query(`SELECT name, hash FROM ${schema}.functions ORDER BY name`)).rows
    const before = await functions()
    expect(await open('pg', { schema }).lockstep.migrate()).toEqual({ from: to, to, applied: [] })
    // With the same version it brings its own functions back. A release that changes one has a new version.
    if (to > readdirSync(join(library?.folder ?? '', 'sql/tables')).length) expect(await functions()).toEqual(before)
  })

  test('calls every function of the schema in these tests', async () => {
    const folder = library?.folder ?? ''
    const texts = readdirSync(join(folder, 'dist'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.js'))
      .map((name) => readFileSync(join(folder, 'dist', name), 'utf8'))
    const callable = readdirSync(join(folder, 'sql/functions'))
      .map((name) => name.replace('.sql', ''))
      .filter((name) => texts.some((text) => text.includes(`}.${name}(`)))
    expect(callable.length).toBeGreaterThan(40)
    const uncalled = async (): Promise<string[]> => {
      const { rows } = await bench.admin.query<{ name: string }>(
        `SELECT funcname AS name FROM pg_stat_user_functions WHERE schemaname = 'lockstep' AND calls > 0`,
      )
      return callable.filter((name) => !NOT_CALLED.has(name) && !rows.some((row) => row.name === name))
    }
    await expect.poll(uncalled).toEqual([])
  })
})
