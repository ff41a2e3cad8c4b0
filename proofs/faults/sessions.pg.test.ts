import pg from 'pg'
import { afterEach, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { countSessions, endSessions, strikeSessions } from './sessions.ts'

const { url } = await testDatabase()
const opened: pg.Client[] = []

async function session(application: string, ...statements: string[]): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: application })
  client.on('error', () => undefined)
  await client.connect()
  opened.push(client)
  for (const statement of statements) await client.query(statement)
  return client
}

afterEach(async () => {
  await Promise.all(opened.splice(0).map((client) => client.end().catch(() => undefined)))
})

const WRITTEN = 'SELECT pg_current_xact_id()'
const LOCK = 'SELECT pg_advisory_xact_lock(7)'

test('distinguishes sessions by their application and by what they are in the middle of', async () => {
  const admin = await session('the admin')
  await session('victim one')
  await session('victim two', 'BEGIN')
  await session('victim three', 'BEGIN', WRITTEN)
  await session('victim four', 'BEGIN', LOCK)
  const waiting = (await session('victim five', 'BEGIN')).query(LOCK).catch(() => undefined)
  await session('somebody else', 'BEGIN', WRITTEN)
  const count = (middleOf: Parameters<typeof countSessions>[1]['middleOf']): Promise<number> =>
    countSessions(admin, { application: 'victim %', ...(middleOf && { middleOf }) })
  await expect.poll(() => count('waiting for a lock')).toBe(1)
  expect(await count('anything')).toBe(5)
  expect(await count('a transaction')).toBe(4)
  expect(await count('a transaction that has written')).toBe(1)
  expect(await count('holding a lock')).toBe(1)
  expect(await countSessions(admin, { application: 'victim %', most: 2 })).toBe(2)
  expect(await endSessions(admin, { middleOf: 'waiting for a lock' })).toBe(1)
  expect(await count('anything')).toBe(4)
  await waiting
})

test('ends sessions, and cancels what they run', async () => {
  const admin = await session('the admin')
  const victim = await session('victim')
  const sleeping = victim.query('SELECT pg_sleep(600)').catch((error: { code?: string }) => error.code)
  await expect.poll(() => countSessions(admin, { application: 'victim', middleOf: 'a transaction' })).toBe(1)
  expect(await strikeSessions(admin, 'cancel', { application: 'victim' })).toBe(1)
  expect(await sleeping).toBe('57014')
  // The error reaches the client before the server process is idle.
  await expect.poll(() => countSessions(admin, { application: 'victim', middleOf: 'a transaction' })).toBe(0)
  expect(await strikeSessions(admin, 'terminate', { application: 'victim', middleOf: 'a transaction' })).toBe(0)
  expect(await strikeSessions(admin, 'terminate', { application: 'victim' })).toBe(1)
  await expect.poll(() => countSessions(admin, { application: 'victim' })).toBe(0)
})
