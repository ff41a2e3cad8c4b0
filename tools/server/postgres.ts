import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, realpath, rm, stat, truncate } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { type PostgresBinaries, postgresBinaries } from './binaries.ts'
import { claim, evictOrphans, initialise, writeSettings } from './dataDirectory.ts'
import { fakeClock } from './fakeClock.ts'
import { freePort } from './freePort.ts'
import { type Guard, startGuard } from './guard.ts'
import { spawnGuarded } from './guardedProcess.ts'
import { childrenOf, signal, waitUntilGone } from './processes.ts'
import { giveTo, type Unprivileged, unprivileged } from './unprivileged.ts'

export interface PostgresOptions {
  /** Kept on stop, and used again by the next start. Absent: a temporary directory, removed on stop. */
  readonly dataDir?: string
  /** Absent: a free one. */
  readonly port?: number
  /** Go into a configuration file, so ALTER SYSTEM can override them. */
  readonly settings?: Readonly<Record<string, string>>
  /**
   * With `fsync`. Without it, the default, data outlives a crash of PostgreSQL but not one of the machine:
   * `synchronous_commit` stays on, or `crash()` would lose the last acknowledged commits.
   */
  readonly durable?: boolean
  readonly binaries?: PostgresBinaries
  /** An npm package that holds the binaries, such as `pg14-linux-x64`. Absent: LOCKSTEP_PG_BINARIES, then our own. */
  readonly binariesFrom?: string
  /** Its clock is so much ahead of the machine's; behind, where it is negative. Needs Debian's `faketime`. */
  readonly clockOffsetMs?: number
}

export type StopMode = 'fast' | 'immediate'

/** Enough for a recovery after a crash in the middle of a benchmark. */
const startTimeoutMs = 60_000
/** An orderly stop that takes longer than this waits for something that will not come, such as a frozen backend. */
const stopTimeoutMs = 15_000
const logLimitBytes = 16 * 1024 * 1024

/**
 * A PostgreSQL of our own, on 127.0.0.1, superuser `postgres`, no password.
 *
 * It does not outlive this program, however that ends (see guard.ts).
 *
 * @example
 * const server = await startPostgres({ settings: { max_connections: '300' } })
 * const client = new pg.Client(server.url())
 */
export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const binaries = options.binaries ?? (await postgresBinaries(options.binariesFrom))
  const temporary = options.dataDir === undefined
  const parent = temporary
    ? await mkdtemp(join(await realpath(tmpdir()), 'lockstep-postgres-'))
    : dirname(resolve(options.dataDir))
  const guard = startGuard()
  try {
    if (temporary) guard.removeAfterwards(parent)
    const user = await enter(parent, temporary, binaries)
    const server = new PostgresServer({
      // The real path: it is compared with what the kernel and the server say.
      dataDir: join(await realpath(parent), temporary ? 'data' : basename(resolve(options.dataDir))),
      temporary,
      port: options.port,
      settings: { ...defaults(options.durable ?? false), ...options.settings },
      durable: options.durable ?? false,
      binaries,
      user,
      clockOffsetMs: options.clockOffsetMs,
    })
    await server.begin(guard)
    return server
  } catch (error) {
    guard.dismiss()
    if (temporary) await rm(parent, { recursive: true, force: true })
    throw error
  }
}

async function enter(parent: string, temporary: boolean, binaries: PostgresBinaries): Promise<Unprivileged> {
  await mkdir(parent, { recursive: true })
  const programs = [binaries.initdb, binaries.postgres]
  if (!temporary) return unprivileged([parent, ...programs])
  // mkdtemp makes it private to us: it is handed over, so only the way to it has to be open.
  const user = await unprivileged([dirname(parent), ...programs])
  await giveTo(user.owner, parent)
  return user
}

function defaults(durable: boolean): Record<string, string> {
  return durable ? {} : { fsync: 'off', full_page_writes: 'off' }
}

interface ServerPlan {
  readonly dataDir: string
  readonly temporary: boolean
  readonly port: number | undefined
  readonly settings: Readonly<Record<string, string>>
  readonly durable: boolean
  readonly binaries: PostgresBinaries
  readonly user: Unprivileged
  readonly clockOffsetMs: number | undefined
}

export class PostgresServer {
  readonly #plan: ServerPlan
  #guard: Guard | undefined
  #postmaster: ChildProcess | undefined
  #port = 0

  /** Use {@link startPostgres}. */
  constructor(plan: ServerPlan) {
    this.#plan = plan
  }

  get binaries(): PostgresBinaries {
    return this.#plan.binaries
  }

  get dataDir(): string {
    return this.#plan.dataDir
  }

  /** What the server has written to its standard error, over all its starts. */
  get logFile(): string {
    return join(this.dataDir, 'server.log')
  }

  get port(): number {
    return this.#port
  }

  /** The postmaster's process id; undefined while the server is down. */
  get pid(): number | undefined {
    return this.#postmaster?.pid
  }

  url(database = 'postgres'): string {
    return `postgres://postgres@127.0.0.1:${this.#port}/${encodeURIComponent(database)}`
  }

  /** The server's way back after `stop` or `crash`, on the same port. */
  async start(): Promise<void> {
    if (this.#postmaster !== undefined) throw new Error('the server is already running')
    if (this.#guard !== undefined) return this.#launch(this.#guard)
    if (this.#plan.temporary) {
      throw new Error('stop() has removed the temporary data directory: use restart(), or give a dataDir')
    }
    const guard = startGuard()
    try {
      await this.begin(guard)
    } catch (error) {
      guard.dismiss()
      throw error
    }
  }

  /** @internal Makes what is missing of the data directory and starts for the first time under this guard. */
  async begin(guard: Guard): Promise<void> {
    const { dataDir, temporary, binaries, durable, user } = this.#plan
    await initialise({ dataDir, temporary, binaries, durable, user, guard })
    await giveTo(user.owner, dataDir)
    await evictOrphans(dataDir)
    await claim(dataDir)
    await writeSettings(dataDir, this.#plan.settings)
    this.#guard = guard
    try {
      await this.#launchOnFreePort(guard)
    } catch (error) {
      this.#guard = undefined
      throw error
    }
  }

  /** Idempotent. A temporary data directory is gone afterwards. */
  async stop(mode: StopMode = 'fast'): Promise<void> {
    await this.#shutDown(mode)
    if (this.#plan.temporary) {
      await rm(dirname(this.dataDir), { recursive: true, force: true, maxRetries: 5 })
    }
    this.#guard?.dismiss()
    this.#guard = undefined
  }

  async restart(mode: StopMode = 'fast'): Promise<void> {
    await this.#shutDown(mode)
    await this.start()
  }

  /**
   * The server's sudden death: every one of its processes is killed at the same instant, and with the last of them its
   * shared memory goes, as in a loss of power but for the disk. Follow with `start`.
   */
  async crash(): Promise<void> {
    const postmaster = this.#postmaster
    const pid = postmaster?.pid
    if (postmaster === undefined || pid === undefined) throw new Error('the server is not running')
    const gone = once(postmaster, 'exit')
    // Frozen first: a postmaster that sees a child die would begin to clean up, and could still fork others.
    signal(pid, 'SIGSTOP')
    const children = childrenOf(pid)
    for (const each of [...children, pid]) signal(each, 'SIGKILL')
    await gone
    if (!(await waitUntilGone(children, 5_000))) throw new Error('processes of the crashed server are still there')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
  }

  async #launchOnFreePort(guard: Guard): Promise<void> {
    // Between finding a port and binding it, someone else may take it.
    for (let attempt = 1; ; attempt++) {
      this.#port = this.#plan.port ?? (this.#port || (await freePort()))
      try {
        return await this.#launch(guard)
      } catch (error) {
        const taken = error instanceof Error && error.message.includes('could not create any TCP/IP sockets')
        if (!taken || this.#plan.port !== undefined || attempt === 5) throw error
        this.#port = 0
      }
    }
  }

  async #launch(guard: Guard): Promise<void> {
    const { binaries, user, clockOffsetMs } = this.#plan
    const env = clockOffsetMs === undefined ? {} : fakeClock(clockOffsetMs)
    const logStart = await this.#logSize()
    const settings = [`port=${this.#port}`, 'listen_addresses=127.0.0.1', 'unix_socket_directories=']
    const args = ['-D', this.dataDir, ...settings.flatMap((setting) => ['-c', setting])]
    const { child, ending } = spawnGuarded(binaries.postgres, args, { user, guard, logFile: this.logFile, env })
    this.#postmaster = child
    child.once('exit', () => {
      if (this.#postmaster === child) this.#postmaster = undefined
    })
    try {
      await this.#waitUntilReady(ending)
    } catch (error) {
      if (ending() === undefined) await this.#shutDown('immediate')
      this.#postmaster = undefined
      const log = await readFile(this.logFile).catch(() => Buffer.alloc(0))
      const said = log.subarray(logStart).toString()
      throw new Error(`PostgreSQL did not start: ${(error as Error).message}\n${said.slice(-4_000)}`, { cause: error })
    }
  }

  async #logSize(): Promise<number> {
    const size = await stat(this.logFile).then(
      (found) => found.size,
      () => 0,
    )
    if (size <= logLimitBytes) return size
    await truncate(this.logFile)
    return 0
  }

  async #waitUntilReady(ending: () => string | undefined): Promise<void> {
    const deadline = performance.now() + startTimeoutMs
    let reason: unknown
    for (;;) {
      const ended = ending()
      if (ended !== undefined) throw new Error(ended)
      const client = new pg.Client({ connectionString: this.url(), connectionTimeoutMillis: 5_000 })
      client.on('error', () => {})
      try {
        await client.connect()
        const { rows } = await client.query<{ data_directory: string }>('show data_directory')
        // Another server that was faster on this port must not be mistaken for ours.
        if (rows[0]?.data_directory === this.dataDir) return
        reason = new Error(`another server answers on port ${this.#port}`)
      } catch (error) {
        reason = error
      } finally {
        await client.end().catch(() => {})
      }
      if (performance.now() > deadline) throw reason
      await delay(15)
    }
  }

  async #shutDown(mode: StopMode): Promise<void> {
    const postmaster = this.#postmaster
    if (postmaster?.pid === undefined || postmaster.exitCode !== null || postmaster.signalCode !== null) return
    const gone = once(postmaster, 'exit').then(() => true)
    const steps = mode === 'fast' ? (['SIGINT', 'SIGQUIT'] as const) : (['SIGQUIT'] as const)
    for (const step of steps) {
      signal(postmaster.pid, step)
      signal(postmaster.pid, 'SIGCONT')
      if (await Promise.race([gone, delay(stopTimeoutMs, false, { ref: false })])) return
    }
    await this.crash()
  }
}
