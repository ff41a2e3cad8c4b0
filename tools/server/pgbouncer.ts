import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { findProgram } from './findProgram.ts'
import { freePort } from './freePort.ts'
import { type Guard, startGuard } from './guard.ts'
import { spawnGuarded } from './guardedProcess.ts'
import { signal } from './processes.ts'
import { giveTo, unprivileged } from './unprivileged.ts'

export interface PgBouncerOptions {
  readonly postgresPort: number
  /** Default 127.0.0.1. */
  readonly postgresHost?: string
  readonly poolMode: 'transaction' | 'session' | 'statement'
  /** Server connections for each pair of database and user. Default 20. */
  readonly defaultPoolSize?: number
  /** Users and the passwords PgBouncer gives to the server; clients need none. Default: postgres, without. */
  readonly users?: Readonly<Record<string, string>>
  readonly settings?: Readonly<Record<string, string>>
}

export interface PgBouncer {
  readonly port: number
  readonly logFile: string
  /** The special database `pgbouncer` is its administration console. */
  url(database: string): string
  stop(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

const startTimeoutMs = 10_000

export function pgBouncerAvailable(): boolean {
  return findProgram('pgbouncer') !== undefined
}

export async function startPgBouncer(options: PgBouncerOptions): Promise<PgBouncer> {
  const program = findProgram('pgbouncer')
  if (program === undefined) throw new Error('pgbouncer is not installed: see tools/prepare.ts')
  const directory = await mkdtemp(join(await realpath(tmpdir()), 'lockstep-pgbouncer-'))
  const guard = startGuard()
  guard.removeAfterwards(directory)
  try {
    // Between finding a port and binding it, someone else may take it.
    for (let attempt = 1; ; attempt++) {
      const port = await freePort()
      await writeConfiguration(directory, port, options)
      const user = Object.keys(options.users ?? defaultUsers)[0] ?? 'postgres'
      const started = await launch(program, directory, port, user, guard)
      if (started instanceof Error) {
        if (attempt === 5) throw started
        continue
      }
      return handle(started, directory, port, user, guard)
    }
  } catch (error) {
    guard.dismiss()
    await rm(directory, { recursive: true, force: true })
    throw error
  }
}

const defaultUsers: Readonly<Record<string, string>> = { postgres: '' }

async function writeConfiguration(directory: string, port: number, options: PgBouncerOptions): Promise<void> {
  const users = options.users ?? defaultUsers
  const quoted = (text: string) => `"${text.replaceAll('"', '""')}"`
  const userList = join(directory, 'users.txt')
  await writeFile(
    userList,
    Object.entries(users)
      .map((pair) => `${pair.map(quoted).join(' ')}\n`)
      .join(''),
  )
  const settings: Record<string, string> = {
    listen_addr: '127.0.0.1',
    listen_port: String(port),
    unix_socket_dir: '',
    auth_type: 'trust',
    auth_file: userList,
    admin_users: Object.keys(users).join(','),
    pool_mode: options.poolMode,
    default_pool_size: String(options.defaultPoolSize ?? 20),
    max_client_conn: '1000',
    ignore_startup_parameters: 'extra_float_digits',
    ...options.settings,
  }
  const lines = [
    '[databases]',
    `* = host=${options.postgresHost ?? '127.0.0.1'} port=${options.postgresPort}`,
    '[pgbouncer]',
    ...Object.entries(settings).map(([name, value]) => `${name} = ${value}`),
  ]
  await writeFile(join(directory, 'pgbouncer.ini'), `${lines.join('\n')}\n`)
}

/** An Error, not thrown, when the program ended by itself, as it does when its port is taken. */
async function launch(
  program: string,
  directory: string,
  port: number,
  adminUser: string,
  guard: Guard,
): Promise<ChildProcess | Error> {
  const user = await unprivileged([dirname(directory), program])
  await giveTo(user.owner, directory)
  const logFile = join(directory, 'pgbouncer.log')
  const { child, ending } = spawnGuarded(program, ['-q', join(directory, 'pgbouncer.ini')], { user, guard, logFile })
  const deadline = performance.now() + startTimeoutMs
  for (;;) {
    if (ending() !== undefined)
      return new Error(`pgbouncer did not start: ${ending()}\n${await readFile(logFile, 'utf8')}`)
    if (await answers(port, adminUser)) return child
    if (performance.now() > deadline) {
      if (child.pid !== undefined) signal(child.pid, 'SIGKILL')
      throw new Error(`pgbouncer did not answer\n${await readFile(logFile, 'utf8')}`)
    }
    await delay(15)
  }
}

/** Asks the console, which needs no server behind it. */
async function answers(port: number, user: string): Promise<boolean> {
  const client = new pg.Client({ host: '127.0.0.1', port, user, database: 'pgbouncer', connectionTimeoutMillis: 5_000 })
  client.on('error', () => {})
  try {
    await client.connect()
    await client.query('show version')
    return true
  } catch {
    return false
  } finally {
    await client.end().catch(() => {})
  }
}

function handle(child: ChildProcess, directory: string, port: number, user: string, guard: Guard): PgBouncer {
  const stop = async (): Promise<void> => {
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) {
      const gone = once(child, 'exit')
      // TERM drops its clients at once; INT would wait for their transactions.
      signal(child.pid, 'SIGTERM')
      signal(child.pid, 'SIGCONT')
      await gone
    }
    await rm(directory, { recursive: true, force: true })
    guard.dismiss()
  }
  return {
    port,
    logFile: join(directory, 'pgbouncer.log'),
    url: (database) => `postgres://${encodeURIComponent(user)}@127.0.0.1:${port}/${encodeURIComponent(database)}`,
    stop,
    [Symbol.asyncDispose]: stop,
  }
}
