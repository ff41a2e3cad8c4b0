import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import pg from 'pg'
import { describe, expect, inject, test } from 'vitest'
import { type Balanced, missingOfBalanced, startBalanced } from '../../tools/server/balanced.ts'
import { startIneffectiveLocks } from '../../tools/server/ineffectiveLocks.ts'
import { nodeArguments } from '../../tools/server/nodeArguments.ts'
import { pgBouncerAvailable, startPgBouncer } from '../../tools/server/pgbouncer.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { type Finding, Lockstep, LocksIneffectiveError, StandbyRefusedError } from '../index.ts'

/** The verdict of the doctor in each setting, as the command gives it; and that the first call comes to the same. */

const main = nodeArguments(new URL('main.ts', import.meta.url))
const database = await testDatabase({ leakGuard: false })
const DRIVERS = ['pg', 'postgres'] as const

interface Verdict {
  readonly code: number
  readonly findings: ReadonlyMap<string, Finding>
  readonly failed: readonly string[]
}

async function doctor(driver: string, url: string): Promise<Verdict> {
  const args = [...main, 'doctor', '--json', '--driver', driver, '--url', url]
  const ran = promisify(execFile)(process.execPath, args)
  const { code, stdout } = await ran.then(
    (done) => ({ code: 0, stdout: done.stdout }),
    (error: { code: number; stdout: string }) => error,
  )
  const { findings } = JSON.parse(stdout) as { findings: Finding[] }
  const failed = findings.filter(({ level }) => level === 'fail').map(({ name }) => name)
  return { code, findings: new Map(findings.map((each) => [each.name, each])), failed }
}

/** What the first call says. */
async function firstCall(url: string, max = 3): Promise<unknown> {
  const pool = new pg.Pool({ connectionString: url, max })
  pool.on('error', () => undefined)
  const lockstep = new Lockstep(pool)
  try {
    return await lockstep.transaction({ lock: 'Doctor:call' }, async () => 'inside').catch((error: unknown) => error)
  } finally {
    await lockstep.close()
    await pool.end()
  }
}

describe.each(DRIVERS)('with %s', (driver) => {
  test('passes a direct connection', async () => {
    const { code, failed, findings } = await doctor(driver, database.url)
    expect({ code, failed }).toEqual({ code: 0, failed: [] })
    expect(findings.get('locks')).toMatchObject({
      level: 'ok',
      found: expect.stringContaining('two connections') as string,
    })
    expect(await firstCall(database.url)).toBe('inside')
  })

  test('fails a server whose locks do nothing', async () => {
    await using stub = await startIneffectiveLocks(database.url)
    const { code, failed, findings } = await doctor(driver, stub.url(database.url))
    expect({ code, failed }).toEqual({ code: 1, failed: ['locks'] })
    expect(findings.get('locks')).toMatchObject({
      found: expect.stringContaining('accepts locks and ignores them') as string,
    })
    expect(await firstCall(stub.url(database.url))).toBeInstanceOf(LocksIneffectiveError)
  })

  describe.skipIf(!pgBouncerAvailable())('PgBouncer', () => {
    test('passes in transaction mode', async () => {
      const url = database.pooledUrl ?? ''
      const { code, failed, findings } = await doctor(driver, url)
      expect({ code, failed }).toEqual({ code: 0, failed: [] })
      expect(findings.get('locks')).toMatchObject({ level: 'ok' })
      expect(findings.get('pooler')).toMatchObject({ level: 'warn', found: 'a pooler in transaction mode' })
      expect(await firstCall(url)).toBe('inside')
    })

    test('passes in session mode', async () => {
      await using bouncer = await startBouncer('session')
      const { failed, findings } = await doctor(driver, bouncer.url(database.name))
      expect(failed).toEqual([])
      expect(findings.get('locks')).toMatchObject({ level: 'ok' })
      expect(await firstCall(bouncer.url(database.name))).toBe('inside')
    })

    test('tries what it can in transaction mode with one connection', async () => {
      await using bouncer = await startBouncer('transaction', 1)
      expect((await doctor(driver, bouncer.url(database.name))).findings.get('locks')).toMatchObject({ level: 'warn' })
      expect(await firstCall(bouncer.url(database.name))).toBe('inside')
    })

    test('fails in statement mode, and so does the first call', async () => {
      await using bouncer = await startBouncer('statement')
      const { code, failed, findings } = await doctor(driver, bouncer.url(database.name))
      expect({ code, failed }).toEqual({ code: 1, failed: ['locks', 'pooler'] })
      expect(findings.get('pooler')).toMatchObject({ found: 'a pooler in statement mode' })
      expect(await firstCall(bouncer.url(database.name))).toMatchObject({
        code: 'LOCKSTEP_LOCKS_INEFFECTIVE',
        reason: 'transactions refused',
      })
    })
  })
})

function startBouncer(
  poolMode: 'session' | 'transaction' | 'statement',
  defaultPoolSize = 5,
): ReturnType<typeof startPgBouncer> {
  const server = new URL(inject('adminUrl'))
  return startPgBouncer({
    postgresHost: server.hostname,
    postgresPort: Number(server.port || 5432),
    users: { [decodeURIComponent(server.username)]: decodeURIComponent(server.password) },
    poolMode,
    defaultPoolSize,
  })
}

describe.skipIf(missingOfBalanced() !== undefined)('a primary and its standby', () => {
  async function migrated(options?: Parameters<typeof startBalanced>[0]): Promise<Balanced> {
    const servers = await startBalanced(options)
    const pool = new pg.Pool({ connectionString: servers.primary.url(), max: 2 })
    await new Lockstep(pool).migrate()
    await pool.end()
    await servers.caughtUp()
    return servers
  }

  test('fail the standby, and Pgpool that balances reads inside transactions', async () => {
    await using servers = await migrated()
    for (const driver of DRIVERS) {
      expect((await doctor(driver, servers.primary.url())).failed).toEqual([])
      expect((await doctor(driver, servers.standby.url())).failed).toEqual(['standby'])
      const { code, failed, findings } = await doctor(driver, servers.pgpool.url('postgres'))
      expect({ code, failed }).toEqual({ code: 1, failed: ['locks', 'pooler'] })
      expect(findings.get('locks')).toMatchObject({
        found: expect.stringContaining('answered by another server process') as string,
      })
    }
    expect(await firstCall(servers.standby.url())).toBeInstanceOf(StandbyRefusedError)
    for (const max of [1, 3]) {
      expect(await firstCall(servers.pgpool.url('postgres'), max)).toMatchObject({
        code: 'LOCKSTEP_LOCKS_INEFFECTIVE',
        reason: 'statements split',
      })
    }
  })

  test.each([
    ['without load balancing', { settings: { load_balance_mode: 'off' } }],
    ['with a weight of 0 for the standby', { weights: { primary: 1, standby: 0 } }],
  ])('pass Pgpool %s', async (_, options) => {
    await using servers = await migrated(options)
    for (const driver of DRIVERS) expect((await doctor(driver, servers.pgpool.url('postgres'))).failed).toEqual([])
    expect(await firstCall(servers.pgpool.url('postgres'))).toBe('inside')
  })

  test('pass Pgpool that balances some sessions only', async () => {
    await using servers = await migrated({ weights: { primary: 1, standby: 1 } })
    const pool = new pg.Pool({ connectionString: servers.pgpool.url('postgres'), max: 2 })
    pool.on('error', () => undefined)
    const lockstep = new Lockstep(pool)
    try {
      let refused = 0
      // Each session is balanced by chance: as many as it takes to meet both kinds.
      for (let session = 0; session < 40; session++) {
        const read = lockstep.transaction({ lock: 'Doctor:call' }, async (tx) => {
          const { rows } = await tx.query<{ port: number }>('SELECT inet_server_port() AS port')
          return rows[0]?.port
        })
        const port = await read.catch((error: unknown) => {
          expect(error).toMatchObject({ reason: 'statements split' })
          refused++
          return servers.primary.port
        })
        expect(port).toBe(servers.primary.port)
        ;(await pool.connect()).release(true)
      }
      expect(refused).toBeGreaterThan(0)
    } finally {
      await lockstep.close()
      await pool.end()
    }
  })
})
