import { type Checked, checkOptions, type OptionNames } from '../checkOptions.ts'
import { ConnectionLostError, JoinRefusedError, LocksIneffectiveError, LockTimeoutError } from '../errors.ts'
import { AFTER_END_MS, type Keys, WaitBudget } from '../locks/index.ts'
import { codeOf, GRACE_MS, NO_ACTIVE_TRANSACTION, standbyRefused, type StatementResult } from '../postgres/index.ts'
import { noTransaction, wrapCallersClient } from './callersClient.ts'
import { withinBudget } from './connections.ts'
import type { LockstepContext } from './lockstepContext.ts'
import { type Isolation, readsFresh } from './isolation.ts'
import { planTransaction, type TransactionPlan } from './options.ts'
import { OpenTransaction } from './transaction.ts'
import { beginJoin, joinLocks, releaseSavepoint, rollbackToSavepoint } from './transactions.sql.ts'

/** What `lockstep.join()` takes. */
export interface JoinOptions {
  readonly lock?: Keys
  readonly lockShared?: Keys
  /** As in `transaction()`, but only for the server’s lock: you already have the connection. */
  readonly waitMs?: number | false
}

const JOIN_OPTIONS: OptionNames<JoinOptions> = { lock: 'never undefined', lockShared: 'never undefined', waitMs: true }

/** The same as the compiler checks it: no unknown name, and no key that may be undefined. */
export type CheckedJoin<Given extends JoinOptions> = Checked<Given, JoinOptions, 'lock' | 'lockShared'>

const SAVEPOINT = 'lockstep_join'

/**
 * Works inside a transaction that the caller opened, on the caller's client. What is read after it is guarded by the locks; what
 * the caller read before is not. Whatever fails here leaves the caller's transaction as it was.
 */
export async function joinTransaction(
  context: LockstepContext,
  client: unknown,
  options: JoinOptions,
): Promise<OpenTransaction> {
  checkOptions('join()', options, JOIN_OPTIONS)
  const plan = planTransaction(context, options)
  // Asking needs another connection, and the joiners may have them all.
  if (context.readiness === undefined && (context.driver.hasIdle() || context.driver.hasCapacity()))
    await refuseIneffectiveLocks(context, plan)
  const budget = new WaitBudget(plan.waitMs, undefined, context.closing)
  const checksConnections = context.readiness?.checksConnections ?? false
  const connection = wrapCallersClient(context, client, 'join()', 'tx.query() or tx.transaction()')
  /** Sends one message. The client is the caller's: one that does not answer is left alone, and nothing more is sent through it. */
  const send = async (text: string, withinMs: number): Promise<StatementResult[]> => {
    const answer = connection.script(text)
    if (await isAnswered(answer, withinMs)) return answer
    connection.destroy()
    throw clientSilent(plan, budget.waitedMs)
  }
  const { silenceMs } = context.silence
  const budgetMs = (): number => (budget.leftMs > 0 ? budget.leftMs + GRACE_MS : AFTER_END_MS)
  const soon = (): number => Math.min(silenceMs, budgetMs())
  try {
    const results = await send(beginJoin(SAVEPOINT), soon()).catch((error: unknown) => {
      throw codeOf(error) === NO_ACTIVE_TRANSACTION ? noTransaction('join()', error) : error
    })
    const row = results.at(-1)?.rows[0] as unknown
    const { isolation, standby } = row as { isolation: Isolation; standby: string }
    const { waitMs: turnMs, closing } = plan
    const joined = (): OpenTransaction =>
      new OpenTransaction(connection, { isolation, context, plan, answers: [], waitMs: turnMs, closing, joined: true })
    const refusal = standby === 'true' ? standbyRefused() : refusalOf(isolation, plan)
    if (refusal !== undefined) {
      await send(releaseSavepoint(SAVEPOINT), soon())
      throw refusal
    }
    if (plan.locks.length === 0) {
      await send(releaseSavepoint(SAVEPOINT), soon())
      return joined()
    }
    // lock_timeout 0 would mean: forever.
    const waitMs = plan.waitMs === false ? MAX_LOCK_TIMEOUT_MS : Math.max(0, Math.ceil(budget.remainingMs()))
    try {
      const text = joinLocks(context.method, plan.locks, waitMs, checksConnections, SAVEPOINT)
      const answers = await send(text, budgetMs())
      if (answers.at(-1)?.rows[0]?.['joined'] !== 'true') throw timedOut(plan, budget.waitedMs)
    } catch (error) {
      if (!connection.lost && !(error instanceof LockTimeoutError)) await send(rollbackToSavepoint(SAVEPOINT), soon())
      throw error
    }
    return joined()
  } finally {
    // Only our listeners: the client stays the caller's.
    connection.release()
  }
}

/** How long the first joiners wait for that: postgres.js does not tell that it has no connection left. */
const TRIAL_MS = 1000

/** Whatever else is wrong with the server shows on the caller's own connection. */
async function refuseIneffectiveLocks(context: LockstepContext, plan: TransactionPlan): Promise<void> {
  const budget = new WaitBudget(TRIAL_MS, undefined, plan.closing)
  await withinBudget(context.ready(), budget, plan.locks).catch((error: unknown) => {
    if (error instanceof LocksIneffectiveError) throw error
  })
}

const MAX_LOCK_TIMEOUT_MS = 2_147_483_647

function refusalOf(isolation: Isolation, plan: TransactionPlan): JoinRefusedError | undefined {
  if (plan.locks.length === 0 || readsFresh(isolation)) return undefined
  return new JoinRefusedError(
    `The joined transaction is ${isolation.toUpperCase()}: its snapshot is older than any lock taken now.`,
    {
      advice:
        'Open it with lockstep.transaction({ lock, isolation }), which takes the lock before the snapshot, or use READ COMMITTED.',
      keys: plan.allKeys,
    },
  )
}

/** Whether the answer, or an error, comes in time. */
function isAnswered(answer: Promise<unknown>, withinMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = withinMs === Infinity ? undefined : setTimeout(() => resolve(false), withinMs)
    const settle = (): void => {
      clearTimeout(timer)
      resolve(true)
    }
    answer.then(settle, settle)
  })
}

function clientSilent(plan: TransactionPlan, waitedMs: number): ConnectionLostError {
  return new ConnectionLostError(`The client given to join() did not answer within ${Math.round(waitedMs)} ms.`, {
    advice: 'The outcome of its transaction is unknown. Destroy the client, with release(true), and begin again.',
    keys: plan.allKeys,
  })
}

function timedOut(plan: TransactionPlan, waitedMs: number): LockTimeoutError {
  const keys = plan.locks.map((lock) => lock.key)
  return new LockTimeoutError(`The lock on ${keys.join(', ')} was not granted within ${Math.round(waitedMs)} ms.`, {
    advice: 'Nothing of it is held, and the joined transaction is as it was.',
    keys,
    waitedMs,
    waitedFor: 'server',
    holders: [],
  })
}
