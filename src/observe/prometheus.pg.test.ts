import * as client from 'prom-client'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { LeaseHeldError, LockAbortedError, LockTimeoutError, QueueFullError } from '../errors.ts'
import { perEvent } from '../outbox/index.ts'
import { lockstepMetrics } from './prometheus.ts'

const bench = await testBench()

let register = new client.Registry()
let stop = (): void => undefined

beforeEach(() => {
  register = new client.Registry()
  stop = lockstepMetrics(client, { register })
})
afterEach(() => stop())

/** The value of one series, as Prometheus would read it; undefined where there is none. */
async function value(series: string): Promise<number | undefined> {
  const line = (await register.metrics()).split('\n').find((each) => each.startsWith(`${series} `))
  return line === undefined ? undefined : Number(line.slice(series.length + 1))
}

/** How often things happened to orders. */
async function counted(): Promise<Record<string, number | undefined>> {
  const order = '{operation="Order"}'
  return {
    acquired: await value(`lockstep_lock_acquired_total${order}`),
    waits: await value(`lockstep_lock_wait_seconds_count${order}`),
    holds: await value(`lockstep_lock_hold_seconds_count${order}`),
    contendedInProcess: await value('lockstep_lock_contention_total{operation="Order",where="process"}'),
    contendedAtServer: await value('lockstep_lock_contention_total{operation="Order",where="server"}'),
    timeouts: await value(`lockstep_lock_timeout_total${order}`),
    abandoned: await value(`lockstep_lock_abandoned_total${order}`),
  }
}

const nothing = { contendedInProcess: 0, contendedAtServer: 0, timeouts: 0, abandoned: 0 }
const once = { acquired: 1, waits: 1, holds: 1, ...nothing }
const twice = { acquired: 2, waits: 2, holds: 2, ...nothing }

test('reads what guards have counted, and whether they are active', async () => {
  stop()
  const { lockstep } = bench.open('pg')
  await bench.admin.query('CREATE TABLE guarded (id integer)')
  await lockstep.guards.add('guarded', { key: 'Account:{id}' })
  await bench.admin.query('INSERT INTO guarded VALUES (1), (2)')
  await bench.admin.query('ALTER TABLE guarded DISABLE TRIGGER ALL')
  stop = lockstepMetrics(client, { register: (register = new client.Registry()), guards: lockstep.guards })
  expect(await value('lockstep_guard_writes{table="public.guarded",key="Account:{id}",result="unlocked"}')).toBe(2)
  expect(await value('lockstep_guard_writes{table="public.guarded",key="Account:{id}",result="refused"}')).toBe(0)
  expect(await value('lockstep_guard_inactive{table="public.guarded",key="Account:{id}"}')).toBe(1)
})

test.each(['read committed', 'serializable'] as const)('counts an uncontended lock, %s', async (isolation) => {
  const { lockstep } = bench.open('pg')
  const from = performance.now()
  await lockstep.transaction({ lock: ['Order:1', 'Order:2'], lockShared: 'Ledger:open', isolation }, async (tx) => {
    await tx.query('SELECT pg_sleep(0.02)')
  })
  const tookSeconds = (performance.now() - from) / 1000
  expect(await counted()).toEqual(once)
  expect(await value('lockstep_lock_acquired_total{operation="Ledger"}')).toBe(1)
  const held = await value('lockstep_lock_hold_seconds_sum{operation="Order"}')
  expect(held).toBeGreaterThan(0.019)
  // Two locks, each no longer than the call.
  expect(held).toBeLessThanOrEqual(2 * tookSeconds)
  expect(await value('lockstep_lock_wait_seconds_sum{operation="Order"}')).toBeGreaterThan(0)
})

test('counts contention in the process', async () => {
  const { lockstep } = bench.open('pg')
  const [held, leave] = [signal(), signal()]
  const first = lockstep.transaction({ lock: 'Order:1' }, () => (held.give(), leave.given))
  await held.given
  const second = lockstep.transaction({ lock: 'Order:1' }, async () => undefined)
  await expect.poll(counted).toMatchObject({ contendedInProcess: 1 })
  leave.give()
  await Promise.all([first, second])
  expect(await counted()).toEqual({ ...twice, contendedInProcess: 1 })
})

test.each(['read committed', 'serializable'] as const)('counts contention at the server, %s', async (isolation) => {
  const [holder, waiter] = [bench.open('pg'), bench.open('pg')]
  const [held, leave] = [signal(), signal()]
  const first = holder.lockstep.transaction({ lock: 'Order:1' }, () => (held.give(), leave.given))
  await held.given
  const second = waiter.lockstep.transaction({ lock: 'Order:1', isolation }, async () => undefined)
  await bench.waiters(1)
  leave.give()
  await Promise.all([first, second])
  expect(await counted()).toEqual({ ...twice, contendedAtServer: 1 })
})

test('counts a timeout, and a wait that its caller gives up', async () => {
  const [holder, waiter] = [bench.open('pg'), bench.open('pg')]
  await holder.lockstep.transaction({ lock: 'Order:1' }, async () => undefined)
  const [held, leave] = [signal(), signal()]
  const first = holder.lockstep.transaction({ lock: 'Order:1' }, () => (held.give(), leave.given))
  await held.given
  // Warm, so that the time is spent at the server and not on connecting.
  await waiter.lockstep.transaction({}, async () => undefined)
  const late = failureOf(waiter.lockstep.transaction({ lock: 'Order:1', waitMs: 50 }, async () => undefined))
  expect(await late).toBeInstanceOf(LockTimeoutError)
  expect(await counted()).toMatchObject({ contendedAtServer: 1, timeouts: 1, abandoned: 0 })
  const abort = new AbortController()
  const given = { lock: 'Order:1', signal: abort.signal } as const
  const impatient = failureOf(waiter.lockstep.transaction(given, async () => undefined))
  await bench.waiters(1)
  abort.abort()
  expect(await impatient).toBeInstanceOf(LockAbortedError)
  leave.give()
  await first
  expect(await counted()).toEqual({ ...twice, contendedAtServer: 2, timeouts: 1, abandoned: 1 })
})

test.each([
  { route: 'in this process', from: 0 },
  { route: 'at the server', from: 1 },
])('counts a taken lock that was only tried as a conflict, not a timeout, $route', async ({ from }) => {
  const clients = [bench.open('pg'), bench.open('pg')]
  const [held, leave] = [signal(), signal()]
  const first = clients[0]?.lockstep.transaction({ lock: 'Order:1' }, () => (held.give(), leave.given))
  await held.given
  const tried = clients[from]?.lockstep.transaction({ lock: 'Order:1', noWait: true }, async () => undefined)
  expect(await failureOf(tried as Promise<unknown>)).toBeInstanceOf(LockTimeoutError)
  leave.give()
  await first
  expect(await counted()).toMatchObject({ acquired: 1, timeouts: 0 })
  expect(await value('lockstep_lock_busy_total{operation="Order"}')).toBe(1)
})

test('reports a lag of the outbox that grows until events are delivered', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  stop()
  register = new client.Registry()
  stop = lockstepMetrics(client, { register, outbox: lockstep.outbox })
  let down = true
  const ending = new AbortController()
  const sink = perEvent({}, async () => {
    if (down) throw new Error('away')
  })
  const running = lockstep.outbox.dispatcher({ name: 'lagging', sink }).run({ signal: ending.signal })
  await lockstep.transaction({}, async (tx) => {
    await tx.enqueue({ topic: 'lagging', key: 'a', payload: 1 })
    await tx.enqueue({ topic: 'lagging', key: 'a', payload: 2 })
  })
  const of = (name: string): Promise<number | undefined> => value(`lockstep_outbox_${name}{dispatcher="lagging"}`)
  await expect.poll(() => of('lag_events')).toBe(2)
  await expect.poll(() => of('lag_seconds')).toBeGreaterThan(0)
  expect(await of('parked_streams')).toBe(0)
  down = false
  await expect.poll(() => of('lag_events')).toBe(0)
  expect(await of('lag_seconds')).toBe(0)
  ending.abort()
  await running
})

test('counts the locks of every attempt', async () => {
  const { lockstep } = bench.open('pg')
  await bench.admin.query(`INSERT INTO notes VALUES ('a')`)
  let attempts = 0
  await lockstep.transaction({ lock: 'Order:1', isolation: 'serializable' }, async (tx) => {
    await tx.query('SELECT count(*) FROM notes')
    // Changed by another session after the snapshot: 40001.
    if (++attempts === 1) await bench.admin.query(`UPDATE notes SET id = 'b'`)
    await tx.query(`UPDATE notes SET id = 'c'`)
  })
  expect(attempts).toBe(2)
  expect(await counted()).toEqual(twice)
  expect(await value('lockstep_transaction_retry_total{operation="Order",reason="40001"}')).toBe(1)
})

test('counts a COMMIT whose answer is lost', async () => {
  const proxy = await bench.proxy()
  const { lockstep } = bench.open('pg', { url: proxy.url(bench.url) })
  await lockstep.transaction({ lock: 'Order:1' }, async () => {
    proxy.onServerData((chunk) => {
      if (!chunk.includes('COMMIT\0')) return 'forward'
      proxy.onServerData(undefined)
      return 'cut-before'
    })
  })
  expect(await counted()).toEqual(once)
  expect(await value('lockstep_commit_resolved_total{operation="Order",outcome="committed"}')).toBe(1)
})

test('counts a batch of combined calls, and a rejected call', async () => {
  const [holder, { lockstep }] = [bench.open('pg'), bench.open('pg')]
  const call = lockstep.combine<number, number>({
    key: () => 'Order:1',
    run: async (_tx, items) => Promise.resolve(items),
    maxQueue: 3,
  })
  const [held, leave] = [signal(), signal()]
  const first = holder.lockstep.transaction({ lock: 'Order:1' }, () => (held.give(), leave.given))
  await held.given
  const calls = [1, 2, 3].map((number) => call(number))
  expect(await failureOf(call(4))).toBeInstanceOf(QueueFullError)
  await bench.waiters(1)
  leave.give()
  await Promise.all([first, ...calls])
  expect(await counted()).toEqual({ ...twice, contendedAtServer: 1 })
  expect(await value('lockstep_combine_batch_size_count{operation="Order"}')).toBe(1)
  expect(await value('lockstep_combine_batch_size_sum{operation="Order"}')).toBe(3)
  expect(await value('lockstep_combine_wait_seconds_sum{operation="Order"}')).toBeGreaterThan(0)
  expect(await value('lockstep_combine_refused_total{operation="Order"}')).toBe(1)
})

test('counts leases: granted, refused, renewed, released, released by force', async () => {
  const [one, other] = [bench.open('pg').lockstep, bench.open('pg').lockstep]
  const lease = await one.leases.acquire('Instance:1', { ttlMs: 3000 })
  expect(await failureOf(other.leases.acquire('Instance:1'))).toBeInstanceOf(LeaseHeldError)
  const renewed = 'lockstep_lease_renewed_total{operation="Instance",outcome="renewed"}'
  await expect.poll(() => value(renewed)).toBeGreaterThan(0)
  await other.leases.forceRelease('Instance:1', { by: 'the test', reason: 'to see it counted' })
  const lost = 'lockstep_lease_lost_total{operation="Instance",reason="taken away"}'
  await expect.poll(() => value(lost)).toBe(1)
  await lease.release()
  await other.lease('Instance:1', {}, async () => Promise.resolve())
  const instance = '{operation="Instance"}'
  expect(await value(`lockstep_lease_acquired_total${instance}`)).toBe(2)
  expect(await value(`lockstep_lease_refused_total${instance}`)).toBe(1)
  expect(await value(`lockstep_lease_hold_seconds_count${instance}`)).toBe(2)
  expect(await value(`lockstep_lease_wait_seconds_count${instance}`)).toBe(2)
  expect(await value('lockstep_lease_lost_total{operation="Instance",reason="closed"}')).toBe(0)
})

test('counts the outbox: delivered, refused and blocked events, shards taken and left', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const event = { topic: 'trades', key: 'a', payload: 1 }
  await lockstep.transaction({}, async (tx) => tx.enqueueMany([event, event, { ...event, key: 'b' }]))
  const stopping = new AbortController()
  const sink = perEvent({}, ({ key }) => {
    if (key === 'b') throw new Error('not this one')
  })
  const options = { sink, shards: 2, attempts: 2, backoffMs: { first: 5 } }
  const run = lockstep.outbox.dispatcher(options).run({ signal: stopping.signal })
  const labels = 'dispatcher="default",topic="trades"'
  await expect.poll(() => value(`lockstep_outbox_parked_total{${labels},state="blocked"}`)).toBe(1)
  await expect.poll(() => value(`lockstep_outbox_delivered_total{${labels}}`)).toBe(2)
  expect(await value(`lockstep_outbox_parked_total{${labels},state="parked"}`)).toBe(1)
  expect(await value(`lockstep_outbox_latency_seconds_count{${labels}}`)).toBe(2)
  expect(await value('lockstep_outbox_delivery_seconds_count{dispatcher="default"}')).toBeGreaterThan(0)
  expect(await value('lockstep_outbox_sink_down{dispatcher="default"}')).toBe(0)
  expect(await value('lockstep_outbox_failures_total{dispatcher="default"}')).toBe(0)
  await expect.poll(() => value('lockstep_outbox_shards{dispatcher="default"}')).toBe(2)
  stopping.abort()
  await run
  expect(await value('lockstep_outbox_shards{dispatcher="default"}')).toBe(0)
})

test('reports a sink that is down, and one that is back', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const stopping = new AbortController()
  let down = true
  const sink = (): void => {
    if (down) throw new Error('no route')
  }
  const run = lockstep.outbox.dispatcher({ name: 'second', sink, shards: 1 }).run({ signal: stopping.signal })
  await lockstep.transaction({}, async (tx) => tx.enqueue({ topic: 'mails', key: 'a', payload: 1 }))
  await expect.poll(() => value('lockstep_outbox_sink_down{dispatcher="second"}')).toBe(1)
  down = false
  await expect.poll(() => value('lockstep_outbox_sink_down{dispatcher="second"}')).toBe(0)
  const mails = '{dispatcher="second",topic="mails"}'
  await expect.poll(() => value(`lockstep_outbox_delivered_total${mails}`)).toBe(1)
  expect(await value('lockstep_outbox_parked_total{dispatcher="second",topic="mails",state="parked"}')).toBe(0)
  stopping.abort()
  await run
})
