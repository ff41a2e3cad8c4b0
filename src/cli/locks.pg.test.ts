import { spawn } from 'node:child_process'
import { once } from 'node:events'
import pg from 'pg'
import { afterAll, afterEach, describe, expect, test } from 'vitest'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { Lockstep } from '../lockstep.ts'

const main = nodeArguments(new URL('main.ts', import.meta.url))

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url, application_name: 'the api' })
const lockstep = new Lockstep(pool)
afterAll(async () => {
  await lockstep.close()
  await pool.end()
})

const sessions: pg.Client[] = []
afterEach(async () => {
  for (const each of sessions.splice(0).toReversed()) await each.end()
})

async function session(application: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: database.url, application_name: application })
  await client.connect()
  sessions.push(client)
  await client.query('BEGIN')
  return client
}

function take(client: pg.Client, lock: string): Promise<unknown> {
  return client.query(`SELECT pg_advisory_xact_lock(lockstep.lock_id('lock', $1))`, [lock])
}

async function waiters(count: number): Promise<void> {
  const waiting = `SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND waitstart IS NOT NULL
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
  await expect.poll(async () => (await pool.query(waiting)).rowCount).toBe(count)
}

function start(args: readonly string[]) {
  const child = spawn(process.execPath, [...main, ...args], {
    env: { ...process.env, DATABASE_URL: database.url },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const said = { stdout: '', stderr: '' }
  child.stdout.on('data', (chunk: Buffer) => (said.stdout += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (said.stderr += chunk.toString()))
  return { child, said }
}

async function run(...args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const { child, said } = start(args)
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, ...said }
}

/** A chain of three: the api holds Transfer:42, a worker holds Ledger:1 and waits for it, a job waits for the worker. */
async function chain(): Promise<{ api: pg.Client }> {
  await lockstep.transaction({ lock: ['Transfer:42', 'Ledger:1'] }, async () => undefined)
  const names = 'SELECT FROM lockstep.lock_names'
  await expect.poll(async () => (await pool.query(names)).rowCount).toBe(2)
  const [api, worker, job] = [await session('api'), await session('worker'), await session('job')]
  await take(api, 'Transfer:42')
  await take(worker, 'Ledger:1')
  // They may end with their sessions, before they are granted.
  void Promise.allSettled([take(worker, 'Transfer:42'), take(job, 'Ledger:1')])
  await waiters(2)
  return { api }
}

describe.each(['pg', 'postgres'])('with %s', (driver) => {
  test('reports that nothing is locked', async () => {
    const [text, json] = await Promise.all([
      run('locks', '--driver', driver),
      run('locks', '--json', '--driver', driver),
    ])
    expect(text).toEqual({
      code: 0,
      stdout: 'No advisory lock is held or waited for in this database.\n',
      stderr: '',
    })
    expect(JSON.parse(json.stdout)).toMatchObject({ ok: true, command: 'locks', driver, locks: [], tree: [] })
  })

  test('prints the table, and who blocks whom', async () => {
    const { api } = await chain()
    const { code, stdout, stderr } = await run('locks', '--driver', driver)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toMatch(/^KEY +MODE +PID +APPLICATION +STATE +FOR +WAITERS\n/)
    expect(stdout).toMatch(
      /^Transfer:42 +exclusive +\d+ +api +idle in transaction +held [\d.]+ m?s +1\n +exclusive +\d+ +worker +active +waits [\d.]+ m?s\n/m,
    )
    expect(stdout).toMatch(/^Ledger:1 +exclusive +\d+ +worker +active +held/m)
    expect(stdout).toMatch(
      /Who blocks whom\n\d+ {2}api {2}idle in transaction {2}open for [\d.]+ m?s\n└─ \d+ {2}worker {2}active {2}waits for Transfer:42\n {3}└─ \d+ {2}job {2}active {2}waits for Ledger:1\n\n2 locks, 2 waiters\.\n$/,
    )
    expect(stdout).not.toContain('pg_advisory')
    const told = await run('locks', '--statements', '--driver', driver)
    expect(told.stdout).toContain('STATEMENT')
    expect(told.stdout).toContain(`SELECT pg_advisory_xact_lock(lockstep.lock_id('lock', $1))`)
    await api.query('ROLLBACK')
  })

  test('prints 64-bit numbers as text and unknown values as null in JSON', async () => {
    const foreign = await session('somebody')
    await foreign.query('SELECT pg_advisory_xact_lock(-9223372036854775807)')
    const { stdout } = await run('locks', '--json', '--driver', driver)
    expect(stdout.split('\n')).toHaveLength(2)
    const { locks } = JSON.parse(stdout) as { locks: Record<string, unknown>[] }
    expect(locks).toEqual([
      {
        id: '-9223372036854775807',
        key: null,
        operation: null,
        holders: [expect.objectContaining({ application: 'somebody', mode: 'exclusive' })],
        waiters: [],
      },
    ])
  })

  test('refreshes with --watch until an interrupt, and exits with 0', async () => {
    const holder = await session('holder')
    await holder.query('SELECT pg_advisory_xact_lock(5)')
    const { child, said } = start(['locks', '--watch', '--driver', driver])
    const frames = (): string[] => said.stdout.split(/^(?=\d{4}-\d\d-\d\dT)/m).filter((frame) => frame !== '')
    await expect.poll(() => frames()[0]).toMatch(/^5 +exclusive/m)
    await holder.query('ROLLBACK')
    await expect.poll(() => frames().at(-1)).toContain('No advisory lock')
    expect(said.stdout).not.toContain('\u001B')
    child.kill('SIGINT')
    expect(await once(child, 'close')).toEqual([0, null])
    expect(said.stderr).toBe('')
  })

  test('prints one object per line with --watch --json', async () => {
    const { child, said } = start(['locks', '--watch', '--json', '--driver', driver])
    const lines = (): string[] => said.stdout.split('\n').filter((line) => line !== '')
    await expect.poll(() => lines().length).toBeGreaterThan(1)
    child.kill('SIGINT')
    await once(child, 'close')
    for (const line of lines()) expect(JSON.parse(line)).toMatchObject({ ok: true, command: 'locks', locks: [] })
  })
})
