import { setTimeout as sleep } from 'node:timers/promises'
import { PoolClosedError } from '../errors.ts'
import { type LockSet, terminateHolder, type WaitBudget } from '../locks/index.ts'
import {
  type Commit,
  type Connection,
  type Driver,
  type OwnStatement,
  type OwnValue,
  type QueryListener,
  type Statement,
  type StatementResult,
  type TextRow,
  type VirtualSession,
  withConnection,
} from '../postgres/index.ts'
import { checkout, type ConnectionSource, type LockstepContext, type TransactionPlan } from '../transactions/index.ts'
import { releaseRetainedLocks, retainLocks, unretainLocks } from './lockRetention.sql.ts'

/** How long others wait at most because a session keeps its locks: a few commits' time. */
const RETENTION_MS = 25
/** How often it is looked whether a session is gone. */
const MIN_LOOK_MS = 20
const MAX_LOOK_MS = 2000

/**
 * Runs several transactions with the same locks, one after the other, and no other session gets the locks in between. It is for a process
 * that has the next transaction ready when the last one ends, while other processes wait. Handing the locks to another process takes longer
 * than a short transaction, because that process has to be woken first. So the session keeps them for up to `RETENTION_MS`; then the next
 * waiter gets them.
 *
 * Taken with the COMMIT of the first transaction, under its own locks; released with the COMMIT of the last one, before those. A session
 * that ends, however it does, has nothing left. A connection of which it is not certain whether its session has them is destroyed, and the
 * session ended from elsewhere where the server does not notice. Only on direct connections: behind a pooler a session is shared.
 */
export class LockRetention implements ConnectionSource {
  readonly #context: LockstepContext
  #kept: RetainingConnection | undefined

  constructor(context: LockstepContext) {
    this.#context = context
  }

  /** Whether it would be of use. Levels above READ COMMITTED hand their locks from one transaction to the next by themselves. */
  suits({ isolation, locks }: TransactionPlan): boolean {
    return this.holds || (isolation === 'read committed' && this.#context.contention.expects(locks))
  }

  /** Whether the next transaction has its locks already. */
  get holds(): boolean {
    return this.#kept !== undefined
  }

  /** Whether others have waited long enough. A transaction that fails gives nothing back by itself. */
  get overdue(): boolean {
    return this.#kept?.overdue === true
  }

  /** The connection whose session has the locks, or a new one. */
  async connect(driver: Driver, budget: WaitBudget, locks: LockSet): Promise<Connection> {
    const kept = this.#kept
    this.#kept = undefined
    if (kept?.lost === false) return kept
    kept?.destroy()
    return new RetainingConnection(await checkout(driver, budget, locks), this.#context, locks, (c) => (this.#kept = c))
  }

  /** Releases what is kept. To be called before every wait, and at the end. */
  async leave(): Promise<void> {
    const kept = this.#kept
    this.#kept = undefined
    await kept?.leave()
  }
}

class RetainingConnection implements Connection {
  readonly #inner: Connection
  readonly #context: LockstepContext
  readonly #locks: LockSet
  readonly #keep: (connection: RetainingConnection) => void
  /** Whether the session has the locks. */
  #locked: 'no' | 'yes' | 'unknown' = 'no'
  #until = 0

  constructor(
    inner: Connection,
    context: LockstepContext,
    locks: LockSet,
    keep: (connection: RetainingConnection) => void,
  ) {
    this.#inner = inner
    this.#context = context
    this.#locks = locks
    this.#keep = keep
  }

  get overdue(): boolean {
    return performance.now() >= this.#until
  }

  get lost(): boolean {
    return this.#inner.lost
  }

  get onLost(): Connection['onLost'] {
    return this.#inner.onLost
  }

  set onLost(listener: Connection['onLost']) {
    this.#inner.onLost = listener
  }

  get protocolPid(): Connection['protocolPid'] {
    return this.#inner.protocolPid
  }

  get memory(): Connection['memory'] {
    return this.#inner.memory
  }

  get client(): unknown {
    return this.#inner.client
  }

  virtualClient(session: VirtualSession): unknown {
    return this.#inner.virtualClient(session)
  }

  neverSent(error: unknown, values: readonly unknown[]): boolean {
    return this.#inner.neverSent(error, values)
  }

  script(text: string): Promise<StatementResult<TextRow>[]> {
    return this.#inner.script(text)
  }

  read(text: string, values?: readonly OwnValue[]): Promise<StatementResult<TextRow>> {
    return this.#inner.read(text, values)
  }

  ownValues(values: readonly OwnValue[]): unknown[] {
    return this.#inner.ownValues(values)
  }

  query<Row>(text: string, values?: readonly unknown[], listener?: QueryListener): Promise<StatementResult<Row>> {
    return this.#inner.query<Row>(text, values, listener)
  }

  ask(
    statements: readonly OwnStatement[],
    columns: readonly string[],
  ): Promise<StatementResult<TextRow>[]> | undefined {
    return this.#inner.ask(statements, columns)
  }

  async commit(closing: readonly Statement[], check?: string): Promise<Commit> {
    const changes = this.#locked === 'no' ? this.#wants() : this.overdue
    if (!changes) return this.#inner.commit(closing, check)
    const [change, becomes] = this.#locked === 'no' ? ([retainLocks, 'yes'] as const) : ([unretainLocks, 'no'] as const)
    this.#locked = 'unknown'
    this.#until = performance.now() + RETENTION_MS
    const answer = await this.#inner.commit([...closing, change(this.#locks)], check)
    if (answer.command === 'COMMIT') this.#locked = becomes
    return answer
  }

  /** Whether other callers held the lock just now, and whether no caller waits for a connection that is kept. */
  #wants(): boolean {
    const { contention, driver, method } = this.#context
    const direct = this.#inner.memory?.pooled === false && method.heldBySession
    return direct && contention.expects(this.#locks) && (driver.hasIdle() || driver.hasCapacity())
  }

  release(): void {
    if (this.#locked === 'no') this.#inner.release()
    else if (this.#locked === 'yes' && !this.#inner.lost) this.#keep(this)
    else this.destroy()
  }

  destroy(silent?: boolean): void {
    const pid = this.#inner.protocolPid
    this.#inner.destroy(silent)
    if (this.#locked === 'no' || pid === undefined) return
    this.#locked = 'no'
    void endSession(this.#context, pid, this.#locks)
  }

  async leave(): Promise<void> {
    try {
      await this.#context.silence.script(this, releaseRetainedLocks(this.#locks))
      this.#locked = 'no'
      this.release()
    } catch {
      this.destroy()
    }
  }
}

/** Sees to it that a session is gone. Where the network is silent, the server would not notice for hours that the client is gone. */
async function endSession({ driver, silence, closing }: LockstepContext, pid: number, locks: LockSet): Promise<void> {
  for (let pauseMs = MIN_LOOK_MS; ; pauseMs = Math.min(MAX_LOOK_MS, pauseMs * 2)) {
    await sleep(pauseMs, undefined, { ref: false })
    const last = closing.closed
    const isGone = await withConnection(driver, (other) => other.script(terminateHolder(pid, locks)), silence).then(
      ([result]) => result?.rowCount === 0,
      (error: unknown) => error instanceof PoolClosedError,
    )
    if (isGone || last) return
  }
}
