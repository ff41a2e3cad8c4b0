import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { pgBouncerAvailable } from './pgbouncer.ts'
import { type PostgresServer, startPostgres } from './postgres.ts'
import { childrenOf, isAlive, processesWorkingIn, signal } from './processes.ts'
import { withClient } from './withClient.ts'

let place: string
const cleanups: (() => Promise<unknown>)[] = []

beforeEach(async () => {
  place = await mkdtemp(join(tmpdir(), 'lockstep-servertest-'))
  // As a checkout is: open for others to enter.
  await chmod(place, 0o755)
})

afterEach(async () => {
  vi.unstubAllEnvs()
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup()
  await rm(place, { recursive: true, force: true, maxRetries: 5 })
})

async function start(options: Parameters<typeof startPostgres>[0]): Promise<PostgresServer> {
  const server = await startPostgres(options)
  cleanups.push(() => server.stop('immediate'))
  return server
}

async function query<Row extends pg.QueryResultRow>(server: PostgresServer, sql: string): Promise<Row[]> {
  return withClient(server.url(), async (client) => (await client.query<Row>(sql)).rows)
}

/** Not through the tsx command, which would be a process between us and the program. */
function program(...args: string[]): ChildProcess & { stdout: NonNullable<ChildProcess['stdout']> } {
  const file = fileURLToPath(new URL('testing/startAndWait.ts', import.meta.url))
  const child = spawn(process.execPath, ['--import', 'tsx', file, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, TMPDIR: place },
  })
  cleanups.push(async () => child.kill('SIGKILL'))
  return child
}

async function started(child: ReturnType<typeof program>): Promise<{ pid: number; dataDir: string }> {
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string]
  return JSON.parse(line) as { pid: number; dataDir: string }
}

/** What is left in the place where these tests have their temporary directories made. */
async function temporaryDirectories(): Promise<string[]> {
  return (await readdir(place)).filter((name) => /^lockstep-(postgres|pgbouncer)-/.test(name))
}

describe('a test server', () => {
  test('keeps its data over stop, restart and crash, and takes settings', async () => {
    const dataDir = join(place, 'data')
    const server = await start({ dataDir, settings: { application_name: "it's", max_connections: '17' } })
    expect(await query(server, 'show application_name')).toEqual([{ application_name: "it's" }])
    expect(await query(server, 'show max_connections')).toEqual([{ max_connections: '17' }])
    await query(server, 'create table kept (step text)')
    const { port } = server

    await server.restart()
    await query(server, "insert into kept values ('restart')")
    await server.restart('immediate')
    await query(server, "insert into kept values ('immediate')")
    const processes = [server.pid ?? 0, ...childrenOf(server.pid ?? 0)]
    expect(processes.length).toBeGreaterThan(3)
    await server.crash()
    expect(processes.filter(isAlive)).toEqual([])
    expect(server.pid).toBeUndefined()
    await server.start()
    await query(server, "insert into kept values ('crash')")
    expect(server.port).toBe(port)
    await server.stop()
    await server.stop()
    expect(processesWorkingIn(server.dataDir)).toEqual([])

    const second = await start({ dataDir })
    expect(await query(second, 'select step from kept')).toEqual([
      { step: 'restart' },
      { step: 'immediate' },
      { step: 'crash' },
    ])
    expect(await readdir(place)).toEqual(['data'])
  })

  test('is copied from a template if there is a folder for one, with a new system identifier', async () => {
    vi.stubEnv('LOCKSTEP_DATA_TEMPLATES', join(place, 'templates'))
    const servers = await Promise.all([start({}), start({})])
    servers.push(await start({ durable: true }))
    expect(await readdir(join(place, 'templates'))).toHaveLength(1)
    const identifiers = new Set<string>()
    for (const server of servers) {
      const [row] = await query<{ id: string }>(server, 'select system_identifier::text as id from pg_control_system()')
      identifiers.add(row?.id ?? '')
    }
    expect(identifiers.size).toBe(servers.length)
    await query(servers[0], 'create table kept as select 1 as one')
    await servers[0].crash()
    await servers[0].start()
    expect(await query(servers[0], 'select one from kept')).toEqual([{ one: 1 }])
  })

  test('rejects a data directory that a running program uses, and leaves its server alone', async () => {
    const dataDir = join(place, 'data')
    const server = await start({ dataDir })
    await expect(startPostgres({ dataDir })).rejects.toThrow(/is in use by process \d+/)
    expect(await query(server, 'select 1 as one')).toEqual([{ one: 1 }])
  })

  test('reports the message of PostgreSQL when it does not start, and leaves nothing behind', async () => {
    vi.stubEnv('TMPDIR', place)
    await expect(startPostgres({ settings: { max_connections: 'many' } })).rejects.toThrow(/"max_connections": "many"/)
    expect(await temporaryDirectories()).toEqual([])
  })

  test('crashes and recovers though a backend is frozen', async () => {
    const server = await start({})
    const client = new pg.Client(server.url())
    client.on('error', () => {})
    await client.connect()
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
    signal(rows[0]?.pid ?? 0, 'SIGSTOP')
    await server.crash()
    await server.start()
    expect(await query(server, 'select 1 as one')).toEqual([{ one: 1 }])
  })

  test.runIf(process.getuid?.() === 0)('runs as root in a folder that other users cannot enter', async () => {
    const closed = join(place, 'closed')
    await mkdir(closed, { mode: 0o700 })
    const server = await start({ dataDir: join(closed, 'data') })
    expect(await query(server, 'select 1 as one')).toEqual([{ one: 1 }])
  })
})

describe('a program that is killed', () => {
  test('while initdb runs leaves no data directory, and nothing beside it', async () => {
    const child = program(join(place, 'data'))
    const sibling = await vi.waitFor(
      async () => {
        const entry = (await readdir(place)).find((name) => name.startsWith('data'))
        expect(existsSync(join(place, entry ?? '', 'PG_VERSION'))).toBe(true)
        return entry
      },
      { timeout: 60_000, interval: 5 },
    )
    expect(sibling).toMatch(/^data\.init-/)
    child.kill('SIGKILL')
    const left = async (): Promise<string[]> => (await readdir(place)).filter((name) => name.startsWith('data'))
    await expect.poll(() => left()).toEqual([])
  })

  test('together with its guard leaves an incomplete directory that the next start removes', async () => {
    await mkdir(join(place, 'data.init-4194999-abc'))
    await start({ dataDir: join(place, 'data') })
    expect(await readdir(place)).toEqual(['data'])
  })

  test('leaves no process and no temporary directory of PostgreSQL or PgBouncer', async () => {
    const child = program('', 'crashed-before', ...(pgBouncerAvailable() ? ['pgbouncer'] : []))
    const { pid, dataDir } = await started(child)
    const servers = childrenOf(child.pid ?? 0)
    expect(servers).toContain(pid)
    expect(await temporaryDirectories()).toHaveLength(pgBouncerAvailable() ? 2 : 1)
    const all = [...servers, ...processesWorkingIn(dataDir)]
    child.kill('SIGKILL')
    await expect.poll(() => all.filter(isAlive)).toEqual([])
    await expect.poll(() => temporaryDirectories()).toEqual([])
  })

  test.runIf(process.platform === 'linux')(
    'and its guard leaves a server that the next start on its directory replaces',
    async () => {
      const dataDir = join(place, 'data')
      const child = program(dataDir)
      const { pid } = await started(child)
      // Without its guard, the server is an orphan for good.
      const others = childrenOf(child.pid ?? 0).filter((each) => each !== pid)
      const commands = await Promise.all(others.map((each) => readFile(`/proc/${each}/cmdline`, 'utf8')))
      const guards = others.filter((_, index) => commands[index]?.includes('lockstep-guard'))
      expect(guards).toHaveLength(1)
      for (const each of guards) signal(each, 'SIGKILL')
      child.kill('SIGKILL')
      await once(child, 'exit')
      expect(isAlive(pid)).toBe(true)
      const server = await start({ dataDir })
      expect(isAlive(pid)).toBe(false)
      expect(await query(server, 'select 1 as one')).toEqual([{ one: 1 }])
    },
  )
})
