import { setTimeout as sleep } from 'node:timers/promises'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import {
  type EventMap,
  InvalidOptionError,
  type Keys,
  type Leak,
  LeakError,
  type LeakKind,
  Lockstep,
  type LockstepOptions,
  type OutboxEvent,
} from '../index.ts'
import { drain, type DrainOptions } from './drain.ts'
import { hold, type Held } from './hold.ts'
import { assertNoLeaks, checkKinds, DEFAULT_GRACE_MS, findLeaks, leaksFound } from './leaks.ts'
import { advanceLeases } from './leaseClock.ts'
import { type Proxy, startProxy } from './proxy.ts'
import { conflictAtCommit, type FaultOptions, killAt, type KillOptions, type Step, type Strike } from './strikes.ts'
import {
  type ClosablePool,
  closePool,
  copyTemplate,
  dropCopy,
  named,
  newName,
  openPool,
  type TemplateOptions,
  withDatabase,
} from './template.ts'

/** Options of a test database. */
export interface TestDatabaseOptions<P extends ClosablePool = ClosablePool> extends TemplateOptions<P> {
  /** The name of a template that `createTemplate()` has made; then `prepare` is not called. Default: a template for this file. */
  readonly template?: string
  /** Whether each test has a database, or all tests of a file share one. Default `test`. */
  readonly per?: 'test' | 'file'
  /** What counts as a leak at the end of a test; `false`: nothing. Default: everything. */
  readonly leaks?: readonly LeakKind[] | false
  /** How long what is left behind has to go away by itself. Default 5,000. */
  readonly leakGraceMs?: number
}

export const TEST_DATABASE_OPTIONS: OptionNames<TestDatabaseOptions> = {
  pool: true,
  url: true,
  prepare: true,
  schema: true,
  template: true,
  per: true,
  leaks: true,
  leakGraceMs: true,
}

const ALL_KINDS: readonly LeakKind[] = ['lock', 'lease', 'transaction', 'connection', 'fault']

/** A Lockstep with a pool of its own, as another process has it. */
export interface Opened<P extends ClosablePool> {
  readonly lockstep: Lockstep<EventMap, P>
  readonly pool: P
}

/** What exists while there is a database. */
interface Current<P extends ClosablePool> {
  readonly name: string
  readonly serverUrl: string
  readonly proxy: Proxy
  readonly opened: Opened<P>[]
  readonly strikes: { readonly strike: Strike; readonly what: string }[]
  readonly held: Held[]
  readonly afters: (() => unknown)[]
  /** Straight to the server, for what the test does to it. */
  own: Opened<P> | undefined
  shared: Opened<P> | undefined
}

/** A database for a test, clients on it, and faults on the way to it. */
export class TestDatabase<P extends ClosablePool = ClosablePool> {
  readonly #options: TestDatabaseOptions<P>
  readonly #kinds: ReadonlySet<LeakKind>
  readonly #afterDrop: (() => Promise<void>) | undefined
  #current: Current<P> | undefined

  /** @internal Use `testDatabase()` or `createTestDatabase()`. */
  constructor(options: TestDatabaseOptions<P>, afterDrop?: () => Promise<void>) {
    this.#options = options
    this.#afterDrop = afterDrop
    this.#kinds = new Set(options.leaks === false ? [] : (options.leaks ?? ALL_KINDS))
  }

  /** The name of the database. */
  get name(): string {
    return this.#now().name
  }

  /** Leads to the database through the proxy in which faults strike: for your own pools, and for processes that the test starts. */
  get url(): string {
    const { proxy } = this.#now()
    return proxy.url(this.directUrl)
  }

  /** Straight to the database. */
  get directUrl(): string {
    const { serverUrl, name } = this.#now()
    return withDatabase(serverUrl, name)
  }

  /** The proxy in front of the database: it can also be slow, silent or refuse connections. */
  get proxy(): Proxy {
    return this.#now().proxy
  }

  /** A pool on `url`, opened when it is first used, closed with the database. */
  get pool(): P {
    return this.#shared().pool
  }

  /** A Lockstep on `pool`. */
  get lockstep(): Lockstep<EventMap, P> {
    return this.#shared().lockstep
  }

  /** Another pool on `url`, and a Lockstep on it: a second process, as far as locks are concerned. Closed with the database. */
  open(options: LockstepOptions = {}): Opened<P> {
    const { opened } = this.#now()
    const each = this.#open(this.url, options)
    opened.push(each)
    return each
  }

  /** Runs the function at the end of the test, before the leaks are looked for; the last one first. */
  after(end: () => unknown): void {
    this.#now().afters.push(end)
  }

  /**
   * Holds locks until they are released, as another process would. See `hold()`.
   *
   * @example
   * const held = await db.hold(key`Order:${id}`)
   */
  async hold(lock: Keys): Promise<Held> {
    const held = await hold(this.#own().lockstep, lock)
    this.#now().held.push(held)
    return held
  }

  /**
   * The next transaction fails at its COMMIT with a serialization failure of the server (40001), once. Lockstep then runs its function
   * again.
   *
   * @example
   * const { struck } = db.conflictOnce()
   * await placeOrder(id)
   * await struck
   */
  conflictOnce(options: FaultOptions = {}): Strike {
    return this.#armed('conflictOnce()', conflictAtCommit(this.proxy, options))
  }

  /** The next transaction commits, and the answer is lost with its connection: Lockstep has to find out. */
  loseCommit(options: FaultOptions = {}): Strike {
    return this.#armed('loseCommit()', killAt(this.proxy, 'committed', options))
  }

  /**
   * The connection of the next transaction dies at the step; with `process`, that process is killed with SIGKILL.
   *
   * @example
   * const child = fork('worker.ts', { env: { ...process.env, DATABASE_URL: db.url } })
   * await db.killAt({ before: 'UPDATE orders' }, { process: child }).struck
   */
  killAt(step: Step, options: KillOptions = {}): Strike {
    return this.#armed(`killAt(${JSON.stringify(step)})`, killAt(this.proxy, step, options))
  }

  /** Delivers what is in the outbox, and returns it in order. See `drain()`. */
  drain(options?: DrainOptions): Promise<OutboxEvent[]> {
    return drain(this.#own().lockstep, options)
  }

  /** Lets time pass for all leases of the database. See `advanceLeases()`. */
  advanceLeases(ms: number): Promise<void> {
    const { schema } = this.#options
    return advanceLeases(this.#own().pool, ms, schema === undefined ? {} : { schema })
  }

  /** What is held or open now: locks, leases, transactions. */
  leaks(): Promise<Leak[]> {
    return findLeaks(this.#own().pool, this.#leakOptions(['lock', 'lease', 'transaction']))
  }

  /** @internal Copies the template. */
  async begin(serverUrl: string, template: string): Promise<void> {
    if (this.#current !== undefined) {
      throw new InvalidOptionError('Two tests use the test database at the same time.', {
        advice: "Run the tests of the file one after the other, or use per: 'file'.",
      })
    }
    const name = newName('test')
    const { hostname, port } = new URL(serverUrl)
    await copyTemplate(this.#options.pool, serverUrl, template, name)
    const proxy = await startProxy({
      targetHost: hostname === '' ? 'localhost' : hostname.replaceAll(/[[\]]/g, ''),
      targetPort: Number(port || 5432),
      lingerMs: 20,
    })
    this.#current = {
      name,
      serverUrl,
      proxy,
      opened: [],
      strikes: [],
      held: [],
      afters: [],
      own: undefined,
      shared: undefined,
    }
  }

  /** @internal Between two tests of a file that share the database: runs what `after()` was given, and looks for leaks. */
  async endTest(): Promise<void> {
    const current = this.#now()
    const failures = await this.#finish(current)
    rethrow(failures)
  }

  /** Looks for leaks, closes everything and drops the database. */
  async drop(): Promise<void> {
    const current = this.#current
    if (current === undefined) return
    const failures = await this.#finish(current)
    this.#current = undefined
    const opened = [...current.opened, ...(current.shared ? [current.shared] : [])]
    const closed = await closedWithin(opened, this.#options.leakGraceMs ?? DEFAULT_GRACE_MS)
    const own = current.own ?? this.#open(named(withDatabase(current.serverUrl, current.name)), {})
    // Before the proxy goes: it would cut what was left open. What could not be closed was reported as what keeps it open.
    if (closed && this.#kinds.has('connection'))
      await collect(failures, () => assertNoLeaks(own.pool, this.#leakOptions(['connection'])))
    await own.lockstep.close()
    await closePool(own.pool)
    await current.proxy.close()
    await dropCopy(this.#options.pool, current.serverUrl, current.name)
    await this.#afterDrop?.()
    rethrow(failures)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.drop()
  }

  /** The end of a test: gives what went wrong. Goes on after a failure, so that the next test starts clean. */
  async #finish(current: Current<P>): Promise<unknown[]> {
    const failures: unknown[] = []
    for (const end of current.afters.splice(0).toReversed()) await collect(failures, async () => end())
    for (const held of current.held.splice(0)) await collect(failures, () => held.release())
    const unused = current.strikes.splice(0).filter(({ strike }) => !strike.done)
    for (const { strike } of unused) strike.disarm()
    const kinds = (['lock', 'lease', 'transaction'] as const).filter((kind) => this.#kinds.has(kind))
    if (kinds.length > 0) await collect(failures, () => assertNoLeaks(this.#own().pool, this.#leakOptions(kinds)))
    if (unused.length > 0 && this.#kinds.has('fault')) failures.push(leaksFound(unusedFaults(unused, current.proxy)))
    return failures
  }

  #leakOptions(kinds: readonly LeakKind[]): Parameters<typeof findLeaks>[1] {
    const { leakGraceMs, schema } = this.#options
    return {
      kinds,
      ...(leakGraceMs !== undefined && { graceMs: leakGraceMs }),
      ...(schema !== undefined && { schema }),
    }
  }

  #armed(what: string, strike: Strike): Strike {
    this.#now().strikes.push({ strike, what })
    return strike
  }

  #shared(): Opened<P> {
    const current = this.#now()
    current.shared ??= this.#open(this.url, {})
    return current.shared
  }

  #own(): Opened<P> {
    const current = this.#now()
    current.own ??= this.#open(named(this.directUrl), {})
    return current.own
  }

  #open(url: string, options: LockstepOptions): Opened<P> {
    const { schema } = this.#options
    const pool = openPool(this.#options.pool, url)
    return { pool, lockstep: new Lockstep<EventMap, P>(pool, { ...(schema !== undefined && { schema }), ...options }) }
  }

  #now(): Current<P> {
    if (this.#current !== undefined) return this.#current
    throw new InvalidOptionError('There is no test database now.', {
      advice: 'Use it in a test, or in a hook that is registered after testDatabase().',
    })
  }
}

/** Closes everything. A transaction that never ends would keep it from closing: says whether all is closed. */
async function closedWithin(opened: readonly Opened<ClosablePool>[], ms: number): Promise<boolean> {
  const closing = Promise.all(
    opened.map(async ({ lockstep, pool }) => {
      await lockstep.close()
      await closePool(pool)
    }),
  )
  // There is no caller left to receive a later error.
  const closed = closing.then(
    () => true,
    () => false,
  )
  return Promise.race([closed, sleep(ms, false, { ref: false })])
}

function unusedFaults(unused: readonly { readonly what: string }[], proxy: Proxy): Leak[] {
  const why = proxy.encrypted ? ': the connections are encrypted, use sslmode=disable' : ''
  return unused.map(({ what }) => ({ kind: 'fault', detail: `${what} has not struck${why}` }))
}

async function collect(failures: unknown[], work: () => Promise<unknown>): Promise<void> {
  try {
    await work()
  } catch (error) {
    failures.push(error)
  }
}

/** Leaks of several kinds are one error. */
function rethrow(failures: readonly unknown[]): void {
  const leaks = failures.filter((failure) => failure instanceof LeakError).flatMap((failure) => failure.leaks)
  const others = failures.filter((failure) => !(failure instanceof LeakError))
  if (others.length > 0) throw others[0]
  if (leaks.length > 0) throw leaksFound(leaks)
}

export function checkTestDatabaseOptions(options: Pick<TestDatabaseOptions, 'per' | 'leaks'>): void {
  checkOptions('testDatabase()', options, TEST_DATABASE_OPTIONS)
  const { per = 'test', leaks = [] } = options
  if (leaks !== false) checkKinds('leaks', leaks, ALL_KINDS)
  if (per === 'test' || per === 'file') return
  throw new InvalidOptionError(`Unknown value ${JSON.stringify(per)} of \`per\`.`, { advice: 'Use test or file.' })
}
