import { AsyncLocalStorage } from 'node:async_hooks'
import pg from 'pg'
import { afterAll, afterEach, expect, test, vi } from 'vitest'
import { leakGuard, testDatabase } from '../../tools/server/testDatabase.ts'
import { LockTimeout } from '../errors.ts'
import { Lockstep } from '../lockstep.ts'
import { type EventName, events, on } from './events.ts'

const database = await testDatabase()
leakGuard(database)
const pool = new pg.Pool({ connectionString: database.url, max: 4 })
afterAll(() => pool.end())
afterEach(() => void vi.restoreAllMocks())

/** Runs a function as if it had been called from here: inside the transaction it would be refused as nested. */
const outside = AsyncLocalStorage.snapshot()

const names = Object.keys(events) as EventName[]

/** Something of everything: a migration, a lock, somebody who does not get it. */
async function work(schema: string): Promise<void> {
  const lockstep = new Lockstep(pool, { schema })
  await lockstep.migrate()
  await lockstep.transaction({ lock: 'Observed:1', lockShared: 'Observed:2' }, async () => {
    const other = new Lockstep(pool, { schema })
    await expect(outside(() => other.transaction({ lock: 'Observed:1', waitMs: 600 }, async () => 1))).rejects.toThrow(
      LockTimeout,
    )
  })
}

test('while nobody listens, no message is built: nothing is published', async () => {
  const publishers = names.map((name) => vi.spyOn(events[name], 'publish'))
  await work('unobserved')
  for (const publish of publishers) expect(publish).not.toHaveBeenCalled()
})

test('whoever listens hears what happened, in its order', async () => {
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
