import { randomBytes } from 'node:crypto'
import { LocksIneffectiveError, type LocksIneffectiveReason, LockstepError } from '../errors.ts'
import { listedLocks, type LockMethod, type LockSet } from '../locks/index.ts'
import {
  alreadyLost,
  codeOf,
  type Connection,
  type ConnectionKind,
  FEATURE_NOT_SUPPORTED,
  isSqlState,
  kindOf,
  LOCK_NOT_AVAILABLE,
  READ_ONLY_TRANSACTION,
  type SilenceWatch,
  standbyRefused,
  StatementForgottenError,
  type StatementResult,
} from '../postgres/index.ts'
import {
  CITUS_CATALOG,
  CITUS_GROUP,
  DESCRIBE_SERVER,
  PGPOOL_BALANCES,
  PGPOOL_NODES,
  PLAIN_READ,
} from './lockTrial.sql.ts'
import type { Isolation } from './isolation.ts'
import {
  beginKept,
  beginTrying,
  beginWaiting,
  cleanUpHandOver,
  handOver,
  handOverKept,
  handOverTrying,
  KEPT_COLUMNS,
  leaveForgotten,
  type Opening,
  type OpeningRow,
  ROLLBACK,
} from './transactions.sql.ts'
import { NO_PARTS } from './plannedPart.ts'

/**
 * A trial of the locks: does the second of two connections get what the first one holds? Both come from the caller's pool, by the
 * route that its transactions take, and open their transactions with the messages that these send, in every way and at every isolation
 * level that there is. Each way has a key of its own, made by chance, so that trials of several processes do not meet.
 *
 * 1. The first connection opens a transaction with the lock. Refused: `never granted`.
 * 2. It reads as an application does. Another server process answers than the one that holds the lock: `statements split`.
 * 3. The second connection asks for the lock without waiting. Granted, and the first is still there: `granted twice`. If the first has
 *    lost its connection in the meantime, nothing is shown, and the trial fails with that.
 * 4. The first rolls back, and the second asks again. Refused: `never granted`. It reads, too.
 *
 * Last, two places are asked what they are, because a trial cannot tell: Pgpool-II, which balances some sessions and not others, and a
 * worker of a Citus cluster.
 *
 * Where there is no second connection, or the server side has none for it, the server's list of locks must show the one of the first
 * (`not listed`); that other connections are excluded is then not shown.
 */
export interface Trial {
  /** Whether a second connection was refused what the first one held. */
  readonly excludes: boolean
  /** Which kinds of connections were tried. */
  readonly kinds: ReadonlySet<ConnectionKind>
  /** What was found instead. */
  readonly refusal: LocksIneffectiveError | undefined
}

/** How long the first connection may wait for a lock that no other session uses. */
const FREE_LOCK_MS = 1000
/**
 * Behind a pooler that has no second connection to the server, the second message is not answered while the first one's transaction is
 * open, and neither is another one.
 */
const SECOND_ANSWER_MS = 1000

const BOTH_KINDS: ReadonlySet<ConnectionKind> = new Set(['direct', 'pooled'])

/** An engine that has not even the functions: undefined function, syntax error, feature not supported. */
const UNSUPPORTED: ReadonlySet<string> = new Set(['42883', '42601', FEATURE_NOT_SUPPORTED])

/** One of the forms in which transactions get their locks. */
interface LockPath {
  readonly isolation: Isolation
  readonly form: 'message' | 'kept statements' | 'waiting' | 'hand-over'
}

const ALL_WAYS: readonly LockPath[] = [
  { isolation: 'read committed', form: 'message' },
  { isolation: 'read committed', form: 'kept statements' },
  { isolation: 'repeatable read', form: 'hand-over' },
  { isolation: 'repeatable read', form: 'message' },
  { isolation: 'serializable', form: 'hand-over' },
  { isolation: 'serializable', form: 'kept statements' },
]

/** Of locks that no session holds beside its transaction. One that has yet to be made is made while one waits. */
const TRANSACTION_WAYS: readonly LockPath[] = [{ isolation: 'read committed', form: 'waiting' }]

/** Tries the locks on one connection or two. Both are left without a transaction, or destroyed. */
export async function tryLocks(
  method: LockMethod,
  silence: SilenceWatch,
  first: Connection,
  second: Connection | undefined,
): Promise<Trial> {
  return new LockTrial(method, silence, first, second).run(true)
}

/** The same on one more connection, of a route that was asked what it is. */
export async function tryMore(method: LockMethod, silence: SilenceWatch, connection: Connection): Promise<Trial> {
  return new LockTrial(method, silence, connection, undefined).run(false)
}

/** What a step of the trial found. */
class TrialFindingError extends Error {
  override readonly name = 'Found'
  readonly refusal: LocksIneffectiveError
  readonly kind: ConnectionKind

  constructor(kind: ConnectionKind, refusal: LocksIneffectiveError) {
    super(refusal.message)
    this.kind = kind
    this.refusal = refusal
  }
}

class LockTrial {
  readonly #method: LockMethod
  readonly #silence: SilenceWatch
  readonly #first: Connection
  #second: Connection | undefined
  readonly #kinds = new Set<ConnectionKind>()
  /** What ends the transactions that are open. */
  readonly #endings = new Map<Connection, string>()

  constructor(method: LockMethod, silence: SilenceWatch, first: Connection, second: Connection | undefined) {
    this.#method = method
    this.#silence = silence
    this.#first = first
    this.#second = second
  }

  async run(asks: boolean): Promise<Trial> {
    try {
      for (const way of this.#method.heldBySession ? ALL_WAYS : TRANSACTION_WAYS) await this.#try(way)
      if (asks) await this.#refusePgpoolBalancing()
      if (asks) await this.#refuseCitusWorker()
      return { excludes: this.#second !== undefined, kinds: this.#kinds, refusal: undefined }
    } catch (error) {
      if (error instanceof TrialFindingError)
        return { excludes: false, kinds: new Set([error.kind]), refusal: error.refusal }
      const code = codeOf(error) ?? ''
      if (code === READ_ONLY_TRANSACTION) throw standbyRefused()
      if (this.#second?.lost === true && !(error instanceof LockstepError)) throw alreadyLost(error)
      if (!UNSUPPORTED.has(code)) throw error
      const refusal = ineffective(
        'not supported',
        `The server does not know the statements that take locks (${code}).`,
        'Lockstep needs PostgreSQL 14 or newer.',
        error,
      )
      return { excludes: false, kinds: BOTH_KINDS, refusal }
    }
  }

  async #try(way: LockPath): Promise<void> {
    const locks: LockSet = [{ id: randomBytes(8).readBigInt64BE(), key: 'Lockstep:trial', shared: false }]
    try {
      const pid = await this.#take(this.#first, way, locks)
      const answer = this.#second && (await soon(this.#open(this.#second, way, locks, 1)))
      if (answer === NO_ANSWER) this.#dropSecond()
      if (this.#second === undefined) return await this.#mustBeListed(way, locks, pid)
      if (answer !== undefined) {
        await this.#mustReadAt(this.#first, pid, way)
        throw new TrialFindingError(kindOf(this.#first, pid), await this.#grantedTwice(this.#second, way))
      }
      await this.#end(this.#first)
      await this.#end(this.#second)
      await this.#take(this.#second, way, locks)
    } finally {
      for (const connection of this.#endings.keys()) await this.#end(connection).catch(() => connection.destroy())
    }
  }

  /** Takes locks that are free, and reads under them. Gives the server process that has them. */
  async #take(connection: Connection, way: LockPath, locks: LockSet): Promise<string> {
    const pid = await this.#open(connection, way, locks, FREE_LOCK_MS)
    if (pid === undefined) {
      throw new TrialFindingError(
        this.#kind(connection),
        ineffective(
          'never granted',
          `A lock that no session holds was not granted, at ${way.isolation}.`,
          'Use a PostgreSQL server, and connect to it without a balancer on the way.',
        ),
      )
    }
    this.#kinds.add(kindOf(connection, pid))
    await this.#mustReadAt(connection, pid, way)
    return pid
  }

  /** Opens a transaction with the locks. Gives the server process that has them; undefined where they were not granted. */
  async #open(connection: Connection, way: LockPath, locks: LockSet, waitMs: number): Promise<string | undefined> {
    this.#endings.set(connection, way.isolation === 'read committed' ? ROLLBACK : cleanUpHandOver(locks))
    const pending = this.#silence.start(connection, waitMs)
    try {
      const results = await send(connection, way, openingOf(this.#method, way.isolation, locks), waitMs)
      const row = results.at(-1)?.rows[0] as unknown
      const { held, pid } = row as OpeningRow
      // As a transaction would: what is known of the connection decides how the next one is opened.
      if (connection.memory !== undefined) connection.memory.pooled = kindOf(connection, pid) === 'pooled'
      return held === null ? undefined : pid
    } catch (error) {
      if (codeOf(error) !== LOCK_NOT_AVAILABLE) throw error
      return undefined
    } finally {
      this.#silence.stop(pending)
    }
  }

  async #end(connection: Connection): Promise<void> {
    const text = this.#endings.get(connection)
    this.#endings.delete(connection)
    if (text !== undefined && !connection.lost) await this.#silence.script(connection, text)
  }

  /** Its message is still on the way: if it is answered later, no code rolls back. */
  #dropSecond(): void {
    if (this.#second === undefined) return
    this.#endings.delete(this.#second)
    this.#second.destroy()
    this.#second = undefined
  }

  async #mustReadAt(connection: Connection, pid: string, { isolation }: LockPath): Promise<void> {
    const { pid: reader } = await this.#ask<{ pid: string }>(connection, PLAIN_READ)
    if (reader === pid) return
    throw new TrialFindingError(
      kindOf(connection, pid),
      ineffective(
        'statements split',
        `At ${isolation}, a read inside the transaction was answered by another server process than the one that holds its lock.`,
        BALANCER_ADVICE,
      ),
    )
  }

  async #mustBeListed({ isolation }: LockPath, locks: LockSet, pid: string): Promise<void> {
    if (!this.#method.heldBySession) return
    const { listed } = await this.#ask<{ listed: string }>(this.#first, listedLocks(locks))
    if (Number(listed) === 1) return
    const { version } = await this.#describe(this.#first)
    throw new TrialFindingError(
      kindOf(this.#first, pid),
      ineffective(
        'not listed',
        `A lock was granted, and the list of locks does not show it, at ${isolation}, on ${version}.`,
        ENGINE_ADVICE,
      ),
    )
  }

  async #grantedTwice(second: Connection, { isolation }: LockPath): Promise<LocksIneffectiveError> {
    const [one, other] = [await this.#describe(this.#first), await this.#describe(second)]
    const what = `Two connections held the lock on one key at the same time, at ${isolation}`
    if (one.address !== other.address || one.started !== other.started) {
      return ineffective(
        'granted twice',
        `${what}: one reached ${one.address}, the other ${other.address}.`,
        'Connect every process to one and the same primary.',
      )
    }
    return ineffective(
      'granted twice',
      `${what}: ${one.version} at ${one.address} accepts locks and ignores them.`,
      ENGINE_ADVICE,
    )
  }

  /** Pgpool chooses at random which sessions it balances: those of a trial might not be among them. */
  async #refusePgpoolBalancing(): Promise<void> {
    const balancing = await this.#silence.script(this.#first, PGPOOL_BALANCES).catch((error: unknown) => {
      if (!isSqlState(error) || this.#first.lost) throw error
      return []
    })
    if (balancing[0]?.rows[0]?.['load_balance_mode'] !== 'on') return
    const [nodes] = await this.#silence.script(this.#first, PGPOOL_NODES)
    const readers = (nodes?.rows ?? []).filter((row) => row['role'] !== 'primary' && Number(row['lb_weight']) > 0)
    if (readers.length === 0) return
    throw new TrialFindingError(
      this.#kind(this.#first),
      ineffective(
        'statements split',
        'Pgpool-II balances reads, also inside transactions: its load_balance_mode is on, and a standby has a weight.',
        BALANCER_ADVICE,
      ),
    )
  }

  #kind({ memory }: Connection): ConnectionKind {
    return memory?.pooled === false ? 'direct' : 'pooled'
  }

  async #refuseCitusWorker(): Promise<void> {
    const { citus } = await this.#ask<{ citus: string | null }>(this.#first, CITUS_CATALOG)
    if (citus === null) return
    const { own } = await this.#ask<{ own: string }>(this.#first, CITUS_GROUP)
    if (own === '0') return
    throw new TrialFindingError(
      this.#kind(this.#first),
      ineffective(
        'Citus worker',
        `The server is a worker of a Citus cluster (group ${own}): locks taken there do not exclude those on other nodes.`,
        'Connect to the coordinator.',
      ),
    )
  }

  async #describe(connection: Connection): Promise<{ version: string; address: string; started: string }> {
    const unknown = { version: 'the server', address: 'an unknown address', started: '' }
    return this.#ask<typeof unknown>(connection, DESCRIBE_SERVER).catch(() => unknown)
  }

  async #ask<Row>(connection: Connection, text: string): Promise<Row> {
    const results = await this.#silence.script(connection, text)
    return results[0]?.rows[0] as Row
  }
}

const BALANCER_ADVICE =
  'Connect to the primary, or turn balancing off for this application (Pgpool-II: load_balance_mode).'
const ENGINE_ADVICE = 'Use PostgreSQL: nothing can be kept exclusive on this server.'

function ineffective(
  reason: LocksIneffectiveReason,
  message: string,
  advice: string,
  cause?: unknown,
): LocksIneffectiveError {
  return new LocksIneffectiveError(message, { reason, advice, cause })
}

function openingOf(method: LockMethod, isolation: Isolation, locks: LockSet): Opening {
  return {
    isolation,
    method,
    locks,
    parts: NO_PARTS,
    withXid: true,
    serverEpoch: undefined,
    checksConnections: false,
  }
}

function send(
  connection: Connection,
  { form }: LockPath,
  opening: Opening,
  waitMs: number,
): Promise<StatementResult[]> {
  if (form === 'waiting') return connection.script(beginWaiting(opening, waitMs, false))
  if (form === 'hand-over') return connection.script(handOver(opening, waitMs, false))
  const byHandOver = opening.isolation !== 'read committed'
  const message = byHandOver ? handOverTrying(opening) : beginTrying(opening)
  if (form === 'message') return connection.script(message)
  const kept = byHandOver ? handOverKept(opening) : beginKept(opening)
  return (
    (kept && connection.ask(kept, KEPT_COLUMNS))?.catch(async (error: unknown) => {
      if (!(error instanceof StatementForgottenError)) throw error
      await connection.script(leaveForgotten(opening.locks, byHandOver))
      return connection.script(message)
    }) ?? connection.script(message)
  )
}

const NO_ANSWER = Symbol('no answer')

/** The answer, or that there was none for too long. */
function soon<T>(answer: Promise<T>): Promise<T | typeof NO_ANSWER> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => resolve(NO_ANSWER), SECOND_ANSWER_MS)
    answer.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
