import { ConnectionLostError, LocksIneffectiveError, LockstepError } from '../errors.ts'
import type { Closing, LockMethod } from '../locks/index.ts'
import {
  alreadyLost,
  checkReadiness,
  connectWithin,
  type Connection,
  type ConnectionKind,
  type Driver,
  forgetTrials,
  quoteIdentifier,
  type Readiness,
  readKnownServer,
  rememberTrial,
  type SilenceWatch,
  withGrowingTimeout,
} from '../postgres/index.ts'
import { type Trial, tryLocks, tryMore } from './lockTrial.ts'
import { transactionsRefused } from './statementMode.ts'

/** What a check works with. */
export interface CheckedPool {
  readonly driver: Driver
  readonly schema: string
  readonly method: LockMethod
  readonly silence: SilenceWatch
  readonly closing: Closing
}

/** How long an open pool may take to give the second connection of a trial. */
const SECOND_CONNECTION_MS = 1000
/** How many sessions of the pool the doctor looks at. */
const SESSIONS_TRIED = 5
/** How long until a trial that had no second connection is repeated: doubled each time. */
const FIRST_LATER_MS = 1000
const LONGEST_LATER_MS = 600_000
/** More server epochs than a process sees. */
const PAST_REMEMBERED = 1000

/**
 * What is known of the server, asked once for all transactions of a Lockstep: that it is a primary with the schema, and that locks
 * exclude there. What a trial has shown is remembered in the schema, for this server and this route; the message that asks for the
 * server epoch returns it. Otherwise the first call waits for a trial: with two connections where the pool has them to give, with
 * one where it has not, be it full at the moment or one in all. One that was made with one connection lets calls through, and is repeated
 * in the background with two, as soon as the pool has them.
 *
 * A trial that finds locks ineffective makes every call fail, until one on the same kind of connection finds otherwise. After the first
 * call nothing is asked again, unless an opening message shows a connection of a kind that was not tried (a balancer that shows as a
 * pooler in some sessions only), or another server epoch: `know()`. One of another server counts only after a trial with two
 * connections, whatever is remembered there: the pool may lead to both.
 */
export class ServerCheck {
  readonly #pool: CheckedPool
  readonly #quotedSchema: string
  #readiness: Readiness | undefined
  #asking: Promise<Readiness> | undefined
  /** What stops every call, by the kind of connection on which it was found. */
  readonly #refusals = new Map<ConnectionKind, LocksIneffectiveError>()
  /** Server epochs that have ended. */
  readonly #past = new Set<string>()
  #timer: NodeJS.Timeout | undefined
  #laterMs = FIRST_LATER_MS
  #background: Promise<void> | undefined

  constructor(pool: CheckedPool) {
    this.#pool = pool
    this.#quotedSchema = quoteIdentifier(pool.schema)
  }

  /** Undefined before the first question. */
  get readiness(): Readiness | undefined {
    return this.#readiness
  }

  /** Asked once; a failure is asked again. */
  ready(): Promise<Readiness> {
    if (this.#readiness !== undefined) return Promise.resolve(this.#readiness)
    this.#asking ??= this.#check()
      .then((readiness) => (this.#readiness = readiness))
      .finally(() => (this.#asking = undefined))
    return this.#asking
  }

  /** After a migration: the next call asks again, and the locks are tried if that was not done. */
  async migrated(): Promise<void> {
    const { driver, schema, method } = this.#pool
    this.#readiness = undefined
    const prove = async (connection: Connection): Promise<void> => {
      const { kind, tried } = await readKnownServer(connection, schema, method.name)
      if (tried[kind] < Math.min(driver.poolSize, 2)) await this.#try(connection)
    }
    // Whatever else is in the way is in the way of the first call, too. The migration is done.
    await this.#lent(prove).catch((error: unknown) => {
      if (error instanceof LocksIneffectiveError) throw error
    })
    this.#throwRefusal()
  }

  /**
   * Tries the locks again, whatever is remembered, and on more connections than two: a balancer may treat each in its own way. Says
   * whether a second connection took part; throws where locks do not exclude.
   */
  async tryAgain(): Promise<boolean> {
    const { method, silence } = this.#pool
    return this.#lent(async (first) => {
      const second = await this.#another()
      const others: Connection[] = []
      try {
        while (others.length + 2 < SESSIONS_TRIED) {
          const other = await this.#another()
          if (other === undefined) break
          others.push(other)
        }
        const { excludes } = await this.#judge(first, second)
        this.#throwRefusal()
        for (const other of others) {
          const { refusal } = await tryMore(method, silence, other)
          if (refusal !== undefined) throw refusal
        }
        return excludes
      } finally {
        for (const connection of [second, ...others]) connection?.release()
      }
    })
  }

  /**
   * Looks at a connection on which an opening message has shown what is not known: another server epoch, or a kind of connection that was
   * not tried. It has no transaction open. Gives what is known from now on.
   */
  async know(connection: Connection, knownBefore: Readiness): Promise<Readiness> {
    const { driver, schema, method, silence } = this.#pool
    const pending = silence.start(connection)
    const here = await readKnownServer(connection, schema, method.name).finally(() => silence.stop(pending))
    const known = this.#readiness ?? knownBefore
    const { serverEpoch, kind, tried } = here
    // What the opening message showed, and what this one shows: a balancer need not treat them alike.
    const kinds: readonly ConnectionKind[] = [kind, connection.memory?.pooled === false ? 'direct' : 'pooled']
    // Another server behind the same pool: what was tried on each says nothing of the two together. A primary and a standby that was
    // promoted beside it have the same identifier: one of them shows a server epoch that had ended.
    const last = known.serverEpoch
    if (this.#past.size > PAST_REMEMBERED) this.#past.clear()
    if (serverEpoch.value !== last.value) this.#past.add(last.value)
    const same =
      serverEpoch.system === last.system &&
      serverEpoch.database === last.database &&
      !this.#past.delete(serverEpoch.value)
    const isTried = same && kinds.every((each) => known.tried[each] > 0 || tried[each] > 0)
    const shown = isTried || (await this.#try(connection)).excludes
    this.#throwRefusal()
    if (!same && !shown && driver.poolSize > 1) throw reachedAnotherServer()
    const readiness = { ...known, serverEpoch, kind, tried: withKinds(same ? known.tried : tried, kinds) }
    if (this.#readiness !== undefined) this.#readiness = readiness
    return readiness
  }

  /** Stops what goes on in the background. */
  async close(): Promise<void> {
    clearTimeout(this.#timer)
    await this.#background
  }

  async #check(): Promise<Readiness> {
    const { driver, schema, silence, method } = this.#pool
    const readiness = await withGrowingTimeout(silence, (within) => checkReadiness(driver, schema, within, method.name))
    const { kind, tried } = readiness
    let kinds: Iterable<ConnectionKind> = [kind]
    if (tried[kind] === 0 || this.#refusals.size > 0)
      ({ kinds } = await this.#lent((connection) => this.#try(connection)))
    else if (tried[kind] === 1) this.#tryLater()
    this.#throwRefusal()
    return { ...readiness, tried: withKinds(tried, kinds) }
  }

  async #try(first: Connection): Promise<Trial> {
    const second = await this.#another()
    try {
      return await this.#judge(first, second)
    } finally {
      second?.release()
    }
  }

  /** Makes the trial, and remembers what it showed. */
  async #judge(first: Connection, second: Connection | undefined): Promise<Trial> {
    const { driver, method, silence } = this.#pool
    const trial = await tryLocks(method, silence, first, second)
    // What two connections have shown one alone does not disprove.
    const clears = trial.excludes || driver.poolSize === 1
    for (const kind of trial.kinds) {
      if (trial.refusal !== undefined) this.#refusals.set(kind, trial.refusal)
      else if (clears) this.#refusals.delete(kind)
    }
    if (trial.refusal !== undefined) {
      this.#readiness = undefined
      await forgetTrials(first, this.#quotedSchema)
    } else {
      if (!trial.excludes) this.#tryLater()
      const connections = trial.excludes ? 2 : 1
      for (const kind of trial.kinds) await rememberTrial(first, this.#quotedSchema, method.name, kind, connections)
    }
    return trial
  }

  /** A second connection, where the pool has one to give now. */
  async #another(): Promise<Connection | undefined> {
    const { driver } = this.#pool
    if (driver.poolSize === 1 || !(driver.hasIdle() || driver.hasCapacity())) return undefined
    return connectWithin(driver, SECOND_CONNECTION_MS).catch(() => undefined)
  }

  async #lent<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    const { driver, silence } = this.#pool
    const connection = await connectWithin(driver, silence.silenceMs)
    try {
      return await work(connection)
    } catch (error) {
      const failure = connection.lost && !(error instanceof LockstepError) ? alreadyLost(error) : error
      if (!(error instanceof LockstepError)) connection.destroy()
      connection.release()
      throw (await transactionsRefused(driver, silence, error)) ?? failure
    } finally {
      connection.release()
    }
  }

  #throwRefusal(): void {
    for (const refusal of this.#refusals.values()) throw refusal
  }

  #tryLater(): void {
    const { driver, closing } = this.#pool
    if (driver.poolSize === 1 || this.#timer !== undefined || closing.closed) return
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      this.#background = this.#tryInBackground()
    }, this.#laterMs)
    this.#timer.unref()
    this.#laterMs = Math.min(this.#laterMs * 2, LONGEST_LATER_MS)
  }

  async #tryInBackground(): Promise<void> {
    const { driver, closing } = this.#pool
    if (closing.closed) return
    if (!(driver.hasIdle() || driver.hasCapacity())) return this.#tryLater()
    await this.#lent((connection) => this.#try(connection)).catch(() => this.#tryLater())
  }
}

/** Another attempt may find two connections: by then this one is back. */
function reachedAnotherServer(): ConnectionLostError {
  return new ConnectionLostError(
    'The connection leads to another server than those before it, and the pool had no second one to try it.',
    {
      advice: 'Nothing was written. If the address was moved to another server, it is tried again.',
    },
  )
}

function withKinds(tried: Readiness['tried'], kinds: Iterable<ConnectionKind>): Readiness['tried'] {
  const more: Partial<Record<ConnectionKind, number>> = {}
  for (const kind of kinds) more[kind] = Math.max(tried[kind], 1)
  return { ...tried, ...more }
}

/** Whether an opening message showed nothing new: the server epoch, and the kind of its connection. */
export function isKnown(
  { serverEpoch, tried }: Readiness,
  pooled: boolean | undefined,
  told: string | null | undefined,
): boolean {
  if (typeof told === 'string' && told !== serverEpoch.value) return false
  return pooled === undefined || (pooled ? tried.pooled : tried.direct) > 0
}
