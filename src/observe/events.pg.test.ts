import { AsyncLocalStorage } from 'node:async_hooks'
import pg from 'pg'
import { afterAll, afterEach, expect, test, vi } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { LeaseHeldError, LockTimeoutError, QueueFullError } from '../errors.ts'
import { Lockstep } from '../lockstep.ts'
import { lockRows } from '../rows/index.ts'
import { type EventName, events, on } from './events.ts'

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url, max: 4 })
afterAll(() => pool.end())
afterEach(() => void vi.restoreAllMocks())

/** Runs a function as if it had been called from here: inside the transaction it would be refused as nested. */
const outside = AsyncLocalStorage.snapshot()

const names = Object.keys(events) as EventName[]

/** One of each: a migration, a lock, and a caller that does not get the lock. */
async function work(schema: string): Promise<void> {
  const lockstep = new Lockstep(pool, { schema })
  await lockstep.migrate()
  await lockstep.transaction({ lock: 'Observed:1', lockShared: 'Observed:2' }, async () => {
    const other = new Lockstep(pool, { schema })
    await expect(outside(() => other.transaction({ lock: 'Observed:1', waitMs: 600 }, async () => 1))).rejects.toThrow(
      LockTimeoutError,
    )
  })
}

/** Two calls of lockRows() in the wrong order, a batch of one, and a call that is not taken. */
async function rowsAndBatches(schema: string): Promise<void> {
  const lockstep = new Lockstep(pool, { schema })
  await lockstep.migrate()
  await pool.query(`CREATE TABLE ${schema}.numbers AS SELECT n AS id FROM generate_series(1, 2) AS n`)
  await lockstep.transaction({}, async (tx) => {
    await lockRows(tx, `${schema}.numbers`, [2])
    await lockRows(tx, `${schema}.numbers`, [1])
  })
  const combined = lockstep.combine<number, number>({
    key: () => 'Combined:1',
    run: async (_tx, items) => Promise.resolve(items),
    maxQueue: 1,
  })
  const taken = combined(1)
  await expect(combined(2)).rejects.toThrow(QueueFullError)
  expect(await taken).toBe(1)
}

/** A lease that is held, asked for in vain, renewed and released; and one that is lost. */
async function leases(schema: string): Promise<void> {
  const lockstep = new Lockstep(pool, { schema })
  await lockstep.migrate()
  const lease = await lockstep.leases.acquire('Leased:1', { holder: 'here', ttlMs: 1500 })
  await expect(lockstep.leases.acquire('Leased:1', { holder: 'there' })).rejects.toThrow(LeaseHeldError)
  // Without a heartbeat it only becomes less.
  let before = lease.trustedMs
  await expect.poll(() => -before + (before = lease.trustedMs)).toBeGreaterThan(0)
  await lease.release()
  await lockstep.leases.acquire('Leased:2', { holder: 'here' })
  await lockstep.close()
}

test('publishes nothing without a listener', async () => {
  const publishers = names.map((name) => vi.spyOn(events[name], 'publish'))
  await work('unobserved')
  await rowsAndBatches('unobserved_batches')
  await leases('unobserved_leases')
  for (const publish of publishers) expect(publish).not.toHaveBeenCalled()
})

test('publishes what happened, in order', async () => {
  const heard: [string, unknown][] = []
  const stops = names.map((name) => on(name, (message) => heard.push([name, message])))
  try {
    await work('observed')
  } finally {
    for (const stop of stops) stop()
  }
  const told = heard.map(([name]) => name)
  expect(told.filter((name) => name === 'migration.applied').length).toBeGreaterThan(0)
  // When a wait becomes slow depends on the machine.
  expect(told).toContain('lock.slow')
  const ours = told.filter((name) => name !== 'migration.applied' && name !== 'lock.slow')
  expect(ours).toEqual([
    'lock.requested',
    'lock.acquired',
    'lock.requested',
    'lock.contended',
    'lock.timedOut',
    'lock.released',
  ])
  const named = { schema: 'observed', keys: ['Observed:1'], sharedKeys: ['Observed:2'] }
  expect(heard.find(([name]) => name === 'lock.acquired')?.[1]).toMatchObject({
    ...named,
    contended: false,
    attempt: 1,
  })
  expect(heard.find(([name]) => name === 'lock.released')?.[1]).toMatchObject({ ...named, outcome: 'committed' })
  expect(heard.find(([name]) => name === 'lock.contended')?.[1]).toMatchObject({
    keys: ['Observed:1'],
    where: 'server',
  })
})

test('publishes rows out of order, batches and refused calls with all fields', async () => {
  const heard: [string, unknown][] = []
  const stops = (['rows.outOfOrder', 'combine.batch', 'combine.refused'] as const).map((name) =>
    on(name, (message) => heard.push([name, message])),
  )
  try {
    await rowsAndBatches('observed_batches')
  } finally {
    for (const stop of stops) stop()
  }
  const named = { schema: 'observed_batches', key: 'Combined:1' }
  const aTime = expect.closeTo(15_000, -4.5) as number
  const stack = expect.stringContaining('events.pg.test.ts') as string
  expect(heard).toEqual([
    [
      'rows.outOfOrder',
      {
        table: '"observed_batches"."numbers" ("id")',
        earlier: { id: ['2'], orderBy: ['"id"'], stack },
        later: { id: ['1'], orderBy: ['"id"'], stack },
      },
    ],
    ['combine.refused', { ...named, waiting: 1 }],
    ['combine.batch', { ...named, size: 1, waiting: 0, waitedMs: aTime, tookMs: aTime, outcome: 'committed' }],
  ])
})

test('publishes leases with all fields', async () => {
  const heard: [string, unknown][] = []
  const stops = names
    .filter((name) => name.startsWith('lease.'))
    .map((name) => on(name, (message) => heard.push([name, message])))
  try {
    await leases('observed_leases')
  } finally {
    for (const stop of stops) stop()
  }
  const named = { schema: 'observed_leases', key: 'Leased:1', holder: 'here' }
  const aTime = expect.closeTo(15_000, -4.5) as number
  const fence = expect.any(BigInt) as bigint
  // How many heartbeats there were depends on the machine.
  expect(heard.filter(([name]) => name === 'lease.renewed').length).toBeGreaterThan(0)
  for (const [name, message] of heard)
    if (name === 'lease.renewed') expect(message).toEqual({ ...named, fence, outcome: 'renewed' })
  expect(heard.filter(([name]) => name !== 'lease.renewed')).toEqual([
    ['lease.acquired', { ...named, fence, waitedMs: aTime }],
    ['lease.refused', { ...named, holder: 'there', heldBy: 'here', leftMs: aTime, waits: false }],
    ['lease.released', { ...named, fence, heldMs: aTime }],
    ['lease.acquired', { ...named, key: 'Leased:2', fence, waitedMs: aTime }],
    ['lease.lost', { ...named, key: 'Leased:2', fence, heldMs: aTime, reason: 'closed' }],
  ])
})
