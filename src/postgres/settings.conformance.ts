import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { failureOf, signal } from '../../tools/server/testing/workbench.ts'
import { LeaseHeldError, LockTimeoutError } from '../errors.ts'
import { fetchHandler, idempotent } from '../http/index.ts'
import type { Lease } from '../leases/index.ts'
import { key } from '../locks/index.ts'
import { Lockstep } from '../lockstep.ts'
import { on } from '../observe/index.ts'
import type { OutboxEvent } from '../outbox/index.ts'
import { lockRows } from '../rows/index.ts'
import type { Pool } from './driver.ts'
import { quoteIdentifier } from './identifiers.ts'
import { hold } from '../testing/index.ts'

/** A pool as its owner has configured it. */
export interface OwnersPool {
  readonly pool: Pool
  /** Runs the function in a transaction as the driver's own users open it. */
  begin<T>(work: (client: object) => Promise<T>): Promise<T>
  end(): Promise<void>
}

/** One way to configure a driver. */
export interface OwnersSetting {
  readonly name: string
  open(): OwnersPool
  /** How the owner's settings show `SELECT 12::bigint AS big_number, 'ü' AS some_text` in `tx.query()`: as they always do. */
  readonly shows: unknown
}

let schemas = 0

/** All that Lockstep reads by itself, under settings of the pool's owner that change what rows look like. */
export function describeOwnersSetting(setting: OwnersSetting): void {
  describe(setting.name, () => {
    let owned: OwnersPool
    let lockstep: Lockstep
    let schema: string
    let lease: Lease
    let suiteBegan: number
    const renewed = signal()

    /** However long the tests take: a time that was read wrong is hours off. */
    function expectRecent(at: unknown): void {
      expect(Number(at)).toBeGreaterThan(suiteBegan - 60_000)
      expect(Number(at)).toBeLessThan(Date.now() + 60_000)
    }

    // One pool for all: there are many settings, and to open and to try one takes longer than most of the tests.
    beforeAll(async () => {
      suiteBegan = Date.now()
      schema = `settings_${++schemas}`
      owned = setting.open()
      lockstep = new Lockstep(owned.pool, { schema })
      await lockstep.migrate()
      // Renewed for the first time while the other tests run.
      const stop = on('lease.renewed', (event) => {
        if (event.key !== key`Instance:1` || event.outcome !== 'renewed') return
        stop()
        renewed.give()
      })
      lease = await lockstep.leases.acquire(key`Instance:1`, { ttlMs: 3000, holder: 'me', metadata: { a: [1] } })
    })
    afterAll(async () => {
      await lockstep.close()
      await new Lockstep(owned.pool).transaction({}, (tx) => tx.query(`DROP SCHEMA ${schema} CASCADE`))
      await owned.end()
    })

    test('migrates, and recognizes what is applied', async () => {
      const again = await lockstep.migrate()
      expect(again.applied).toEqual([])
      expect((await lockstep.doctor()).filter(({ level }) => level === 'fail')).toEqual([])
    })

    test('rejects a second holder of a lock, and names the first', async () => {
      const { release: letGo } = await hold(lockstep, key`Account:7`)
      const refused = await failureOf(
        lockstep.transaction({ lock: key`Account:7`, waitMs: 50 }, () => Promise.resolve()),
      )
      expect(refused).toBeInstanceOf(LockTimeoutError)
      const { locks } = await lockstep.locks.list()
      const listed = locks.find(({ id }) => id === lockstep.lockId(key`Account:7`))
      expect(listed).toMatchObject({ holders: [{ pid: expect.any(Number) as number }] })
      await letGo()
      for (const isolation of ['read committed', 'repeatable read', 'serializable'] as const) {
        expect(await lockstep.transaction({ lock: key`Account:7`, isolation }, () => Promise.resolve(isolation))).toBe(
          isolation,
        )
      }
    })

    test('ends a wait at the server with the lock', async () => {
      const other = new Lockstep(owned.pool, { schema }) as unknown as Lockstep
      for (const isolation of ['read committed', 'serializable'] as const) {
        const { release: letGo } = await hold(other, key`Account:8`)
        const waited: boolean[] = []
        const stop = on('lock.acquired', ({ contended }) => void waited.push(contended))
        const [contended, contention] = [signal(), on('lock.contended', () => contended.give())]
        const second = lockstep.transaction({ lock: key`Account:8`, isolation, waitMs: 20_000 }, () =>
          Promise.resolve('granted'),
        )
        await contended.given
        await letGo()
        expect(await second).toBe('granted')
        expect(waited).toEqual([true])
        stop()
        contention()
      }
      await other.close()
    })

    test('joins a transaction of the caller', async () => {
      await owned.begin(async (client) => {
        const tx = await lockstep.join(client, { lock: key`Joined:1` })
        expect(tx.isolation).toBe('read committed')
        const refused = lockstep.transaction({ lock: key`Joined:1`, waitMs: 50 }, () => Promise.resolve())
        expect(await failureOf(refused)).toBeInstanceOf(LockTimeoutError)
        await tx.enqueue({ topic: 'joined', key: 'a', payload: 1 })
        expect(await lockstep.outbox.enqueue(client, { topic: 'joined', key: 'a', payload: 2 })).toEqual({ seq: 2 })
        const event = { topic: 'theirs', key: 'a', seq: 1, id: '00000000-0000-4000-8000-000000000001' }
        expect(await lockstep.inbox.consumer('joiner').accept(tx, event)).toBe('first')
      })
    })

    test('runs an idempotent request once, and replays its answer', async () => {
      let runs = 0
      const handle = fetchHandler(idempotent(lockstep, { scope: () => 'acme' }), async (request) => {
        return new Response(`${await request.text()} ${++runs} ü`, { status: 201, headers: { location: '/1' } })
      })
      const post = (body: string): Promise<Response> =>
        handle(new Request('http://localhost/pay', { method: 'POST', headers: { 'idempotency-key': 'k' }, body }))
      expect(await (await post('pay')).text()).toBe('pay 1 ü')
      const replayed = await post('pay')
      expect([replayed.status, replayed.headers.get('location')]).toEqual([201, '/1'])
      expect(await replayed.text()).toBe('pay 1 ü')
      expect((await post('other')).status).toBe(422)
    })

    test('numbers, delivers, counts, parks and replays events', async () => {
      const trade = (payload: unknown): { topic: string; key: string; payload: unknown } => {
        return { topic: 'trades', key: 'a', payload }
      }
      await lockstep.transaction({}, (tx) => tx.enqueue({ ...trade({ deep: [1, 'ü'] }), headers: { h: 'v' } }))
      await lockstep.transaction({}, (tx) => tx.enqueueMany([trade('text'), trade(Buffer.from([0, 255]))]))
      const streams = [{ topic: 'trades', key: 'a' }]
      await lockstep.transaction({ isolation: 'serializable', streams }, (tx) => tx.enqueue(trade(null)))
      const payloads = [{ deep: [1, 'ü'] }, 'text', Buffer.from([0, 255]), null]
      const run = dispatching(lockstep, { name: 'd', shards: 2 })
      // Another test may have left events of another topic.
      const trades = (): OutboxEvent[] => run.events.filter(({ topic }) => topic === 'trades')
      await eventually(() => trades().length === 4)
      expect(trades().map(({ seq, payload }) => [seq, payload])).toEqual(payloads.map((each, n) => [n + 1, each]))
      expect(trades()[0]?.headers).toEqual({ h: 'v' })
      expectRecent(trades()[0]?.enqueuedAt)
      const { shards, segments } = await lockstep.outbox.status()
      expect(shards.map(({ shard, dispatcher }) => [dispatcher, shard])).toEqual([
        ['d', 0],
        ['d', 1],
      ])
      expect(shards.every(({ fence, owner }) => typeof fence === 'bigint' && owner !== undefined)).toBe(true)
      expectRecent(segments[0]?.openedAt)
      expect(segments[0]?.bytes).toBeGreaterThan(0)
      await run.stop()

      await lockstep.outbox.pause({ dispatcher: 'd', topic: 'trades', key: 'a' }, { reason: 'test' })
      await lockstep.transaction({}, (tx) => tx.enqueue(trade('held back')))
      const paused = dispatching(lockstep, { name: 'd', shards: 2 })
      await expect
        .poll(async () => (await lockstep.outbox.parked()).map(({ state, events, head }) => [state, events, head]))
        .toEqual([['paused', 1, 5]])
      const [parked] = await lockstep.outbox.parked()
      expectRecent(parked?.since)
      await lockstep.outbox.resume({ dispatcher: 'd', topic: 'trades', key: 'a' })
      await paused.until(1)
      await paused.stop()
      expect(paused.delivered).toEqual(['trades/a#5'])

      const seen: unknown[] = []
      const replayed = await lockstep.outbox.replay({
        topic: 'trades',
        key: 'a',
        toSeq: 4,
        sink: (events) => Promise.resolve(events.map(({ payload }) => (seen.push(payload), 'sent' as const))),
      })
      expect([replayed.events, seen]).toEqual([4, payloads])
      expect(await lockstep.outbox.erase({ topic: 'trades', key: 'a' })).toEqual({ erased: 5 })
      expect(await lockstep.outbox.retain({ olderThanMs: 0 })).toMatchObject({ dropped: 0 })
      await lockstep.outbox.removeDispatcher('d', { reason: 'test' })
    })

    test('writes lists of events in any order of types', async () => {
      const [bytes, json] = [Buffer.from([0, 255]), { n: 1 }]
      const lists = [
        [bytes, json],
        [json, bytes],
        [bytes, bytes],
        [bytes, json, null, 'ü', bytes],
      ]
      for (const [list, payloads] of lists.entries()) {
        const stream = { topic: 'lists', key: `list ${list}` }
        const events = payloads.map((payload, n) => ({ ...stream, payload, headers: { n: String(n) } }))
        await lockstep.transaction({}, (tx) => tx.enqueueMany(events))
        await owned.begin(async (client) => (await lockstep.join(client)).enqueueMany(events))
        const sent: unknown[] = []
        const sink = (batch: readonly OutboxEvent[]): void =>
          void sent.push(...batch.map(({ payload, headers }) => [headers['n'], payload]))
        await lockstep.outbox.replay({ ...stream, sink })
        const once = payloads.map((payload, n) => [String(n), payload])
        expect(sent).toEqual([...once, ...once])
      }
    })

    test('accepts an event once in the inbox', async () => {
      const inbox = lockstep.inbox.consumer('consumer')
      const event = (seq: number): { topic: string; key: string; seq: number; id: string } => {
        return { topic: 'trades', key: 'a', seq, id: `00000000-0000-4000-8000-00000000000${seq}` }
      }
      expect(await inbox.handle(event(1), {}, () => Promise.resolve())).toBe('first')
      expect(await inbox.handle(event(1), {}, () => Promise.resolve())).toBe('duplicate')
      const verdicts = await lockstep.transaction({}, (tx) => inbox.acceptMany(tx, [event(1), event(2), event(3)]))
      expect(verdicts).toEqual(['duplicate', 'first', 'first'])
      expect(await inbox.position(event(1))).toEqual({ seq: 3, id: event(3).id })
      expect(await failureOf(inbox.handle(event(5), {}, () => Promise.resolve()))).toMatchObject({
        expected: 4,
        seq: 5,
      })
      const begun = { topic: 'trades', key: 'b' }
      expect(await lockstep.transaction({}, (tx) => inbox.startAt(tx, begun, 10))).toBe(true)
      expect(await lockstep.transaction({}, (tx) => inbox.startAt(tx, begun, 11))).toBe(false)
      expect(await inbox.position(begun)).toEqual({ seq: 9, id: undefined })
    })

    test('stores and reads rules of the rollout', async () => {
      await lockstep.rollout.set('Transfer:', { percent: 30 }, { reason: 'try it' })
      await lockstep.rollout.set('Other:', 'observe')
      const rules = await lockstep.rollout.list()
      expect(rules.map(({ prefix, mode, reason }) => [prefix, mode, reason])).toEqual([
        ['Other:', 'observe', ''],
        ['Transfer:', { percent: 30 }, 'try it'],
      ])
      expectRecent(rules[0]?.changedAt)
      expect(await lockstep.rollout.unset('Transfer:')).toBe(true)
      expect(await lockstep.rollout.unset('Transfer:')).toBe(false)
      await lockstep.rollout.unset('Other:')
    })

    test('locks rows and finds them by id, formatted by the settings of the owner', async () => {
      const table = `${schema}_rows`
      await lockstep.transaction({}, async (tx) => {
        await tx.query(`CREATE TABLE ${quoteIdentifier(table)} (id int PRIMARY KEY, big_number bigint, some_text text)`)
        await tx.query(`INSERT INTO ${quoteIdentifier(table)} SELECT n, 12, 'ü' FROM generate_series(1, 3) n`)
      })
      const late: unknown[] = []
      for (const listens of [false, true]) {
        const stop = listens ? on('rows.outOfOrder', (event) => void late.push(event.later.id)) : undefined
        await lockstep.transaction({}, async (tx) => {
          const columns = ['big_number', 'some_text']
          const rows = await lockRows(tx, table, [3, 2], { columns })
          expect([...rows]).toEqual([setting.shows, setting.shows])
          expect(rows.get(2)).toBe(rows[0])
          expect(rows.get(3)).toBe(rows[1])
          const first = await lockRows(tx, table, [1, 9], { columns, allowMissing: true })
          expect([first.get(1), first.missing]).toEqual([setting.shows, [9]])
          const free = await lockRows(tx, table, [1, 9], { columns, allowMissing: true, skipLocked: true })
          expect([free.get(1), free.missing, free.skipped]).toEqual([setting.shows, [9], []])
        })
        stop?.()
      }
      expect(late).toEqual([['1']])
      await lockstep.transaction({}, (tx) => tx.query(`DROP TABLE ${quoteIdentifier(table)}`))
    })

    test('formats results of the caller’s statements by the settings of the owner', async () => {
      await lockstep.transaction({}, async (tx) => {
        const { rows } = await tx.query(`SELECT 12::bigint AS big_number, 'ü' AS some_text`)
        expect(rows).toEqual([setting.shows])
        const again = await tx.savepoint((inner) => inner.query(`SELECT 12::bigint AS big_number, 'ü' AS some_text`))
        expect(again.rows).toEqual([setting.shows])
      })
    })

    test('holds, lists, renews, waits for and records a lease', async () => {
      expect(await failureOf(lockstep.leases.acquire(key`Instance:1`))).toMatchObject({
        constructor: LeaseHeldError,
        holder: 'me',
      })
      await renewed.given
      const waiting = lockstep.leases.acquire(key`Instance:1`, { holder: 'next', waitMs: 20_000 })
      await expect
        .poll(async () => (await lockstep.leases.inspect(key`Instance:1`)).waiters.map(({ holder }) => holder))
        .toEqual(['next'])
      const { held, holders } = await lockstep.leases.inspect(key`Instance:1`)
      expect(held).toBe(true)
      expect(holders).toMatchObject([{ holder: 'me', slot: 0, fence: lease.fence, metadata: { a: [1] } }])
      expectRecent(holders[0]?.since)
      await lease.transaction({}, (tx) => tx.query('SELECT 1'))
      await lease.release()
      const next = await waiting
      await next.release()
      const history = await lockstep.leases.history(key`Instance:1`)
      expect(history.map(({ holder, ending }) => [holder, ending])).toEqual([
        ['next', 'released'],
        ['me', 'released'],
      ])
      expect(history[1]).toMatchObject({ metadata: { a: [1] }, slot: 0, fence: lease.fence })
      const taken = await lockstep.leases.acquire(key`Instance:1`)
      const forced = await lockstep.leases.forceRelease(key`Instance:1`, { by: 'ops', reason: 'test' })
      expect(forced).toEqual({ released: 1 })
      expect((await lockstep.leases.history(key`Instance:1`, { limit: 1 }))[0]).toMatchObject({
        ending: 'forced',
        by: 'ops',
        reason: 'test',
      })
      await taken.release()
    })
  })
}
