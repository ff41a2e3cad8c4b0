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

export interface PgpoolOptions {
  readonly primaryPort: number
  readonly standbyPort: number
  /** How the reads are spread. Default: all of them go to the standby, so that every session shows what balancing does. */
  readonly weights?: { readonly primary: number; readonly standby: number }
  readonly settings?: Readonly<Record<string, string>>
}

export interface Pgpool {
  readonly port: number
  readonly logFile: string
  url(database: string): string
  stop(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

const startTimeoutMs = 60_000

export function pgpoolAvailable(): boolean {
  return findProgram('pgpool') !== undefined
}

/** Pgpool-II in front of a primary and its streaming standby, on 127.0.0.1, with load balancing on. */
export async function startPgpool(options: PgpoolOptions): Promise<Pgpool> {
  const program = findProgram('pgpool')
  if (program === undefined) throw new Error('pgpool2 is not installed: see tools/prepare.ts')
  const directory = await mkdtemp(join(await realpath(tmpdir()), 'lockstep-pgpool-'))
  const guard = startGuard()
  guard.removeAfterwards(directory)
  try {
    // Between finding a port and binding it, another program may take it.
    for (let attempt = 1; ; attempt++) {
      const port = await freePort()
      await writeConfiguration(directory, port, options)
      const started = await launch(program, directory, port, guard)
      if (started instanceof Error) {
        if (attempt === 5) throw started
        continue
      }
      return handle(started, directory, port, guard)
    }
  } catch (error) {
    guard.dismiss()
    await rm(directory, { recursive: true, force: true })
    throw error
  }
}

async function writeConfiguration(directory: string, port: number, options: PgpoolOptions): Promise<void> {
  const { primary, standby } = options.weights ?? { primary: 0, standby: 1 }
  const settings: Record<string, string> = {
    backend_clustering_mode: 'streaming_replication',
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: directory,
    // Its administration port is not used, and cannot be turned off.
    pcp_listen_addresses: '127.0.0.1',
    pcp_port: String(await freePort()),
    pcp_socket_dir: directory,
    pid_file_name: join(directory, 'pgpool.pid'),
    logdir: directory,
    backend_hostname0: '127.0.0.1',
    backend_port0: String(options.primaryPort),
    backend_weight0: String(primary),
    backend_hostname1: '127.0.0.1',
    backend_port1: String(options.standbyPort),
    backend_weight1: String(standby),
    load_balance_mode: 'on',
    sr_check_period: '1',
    sr_check_user: 'postgres',
    health_check_period: '0',
    enable_pool_hba: 'off',
    pool_passwd: '',
    num_init_children: '16',
    max_pool: '1',
    ...options.settings,
  }
  const lines = Object.entries(settings).map(([name, value]) => `${name} = '${value}'`)
  await writeFile(join(directory, 'pgpool.conf'), `${lines.join('\n')}\n`)
  await writeFile(join(directory, 'pcp.conf'), '')
}

/** An Error, not thrown, when the program ended by itself, as it does when a port is taken. */
async function launch(program: string, directory: string, port: number, guard: Guard): Promise<ChildProcess | Error> {
  const user = await unprivileged([dirname(directory), program])
  await giveTo(user.owner, directory)
  const logFile = join(directory, 'pgpool.log')
  const args = ['-n', '-D', '-f', join(directory, 'pgpool.conf'), '-F', join(directory, 'pcp.conf')]
  const { child, ending } = spawnGuarded(program, args, { user, guard, logFile })
  const deadline = performance.now() + startTimeoutMs
  for (;;) {
    if (ending() !== undefined)
      return new Error(`pgpool did not start: ${ending()}\n${await readFile(logFile, 'utf8')}`)
    if (await knowsBoth(port)) return child
    if (performance.now() > deadline) {
      if (child.pid !== undefined) signal(child.pid, 'SIGKILL')
      throw new Error(`pgpool did not find its servers\n${await readFile(logFile, 'utf8')}`)
    }
    await delay(50)
  }
}

/** Whether it has found out which of the two is the primary. */
async function knowsBoth(port: number): Promise<boolean> {
  const client = new pg.Client({
    host: '127.0.0.1',
    port,
    user: 'postgres',
    database: 'postgres',
    connectionTimeoutMillis: 5_000,
  })
  client.on('error', () => {})
  try {
    await client.connect()
    const { rows } = await client.query<{ role: string; status: string }>('show pool_nodes')
    return rows.every(({ status }) => status === 'up') && rows.map(({ role }) => role).join() === 'primary,standby'
  } catch {
    return false
  } finally {
    await client.end().catch(() => {})
  }
}

function handle(child: ChildProcess, directory: string, port: number, guard: Guard): Pgpool {
  const stop = async (): Promise<void> => {
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) {
      const gone = once(child, 'exit')
      // INT drops its clients at once; TERM would wait for them to leave.
      signal(child.pid, 'SIGINT')
      await gone
    }
    await rm(directory, { recursive: true, force: true })
    guard.dismiss()
  }
  return {
    port,
    logFile: join(directory, 'pgpool.log'),
    url: (database) => `postgres://postgres@127.0.0.1:${port}/${encodeURIComponent(database)}`,
    stop,
    [Symbol.asyncDispose]: stop,
  }
}
