import { type Checked, checkOptions, type OptionNames } from '../checkOptions.ts'
import { JoinRefused, LocksIneffective, LockTimeout } from '../errors.ts'
import { type Keys, Patience } from '../locks/index.ts'
import { codeOf, NO_ACTIVE_TRANSACTION, standbyRefused } from '../postgres/index.ts'
import { noTransaction, wrapCallersClient } from './callersClient.ts'
import { patiently } from './connections.ts'
import type { Grounds } from './grounds.ts'
import { planTransaction, readsFresh, type TransactionPlan } from './options.ts'
import { OpenTransaction } from './transaction.ts'
import { beginJoin, type Isolation, joinLocks, releaseSavepoint, rollbackToSavepoint } from './transactions.sql.ts'

/** What `lockstep.join()` takes. */
export interface JoinOptions {
  readonly lock?: Keys
  readonly lockShared?: Keys
  /** As in `transaction()`, for the server's lock alone: the connection is already the caller's. */
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
  grounds: Grounds,
  client: unknown,
  options: JoinOptions,
): Promise<OpenTransaction> {
  checkOptions('join()', options, JOIN_OPTIONS)
  const plan = planTransaction(grounds, options)
  // Asking needs another connection, and the joiners may have them all.
  if (grounds.readiness === undefined && (grounds.driver.hasIdle() || grounds.driver.hasRoom()))
    await refuseIneffectiveLocks(grounds, plan)
  const checksConnections = grounds.readiness?.checksConnections ?? false
  const connection = wrapCallersClient(grounds, client, 'join()')
  try {
    const results = await connection.script(beginJoin(SAVEPOINT)).catch((error: unknown) => {
      throw codeOf(error) === NO_ACTIVE_TRANSACTION ? noTransaction('join()', error) : error
    })
    const row = results.at(-1)?.rows[0] as unknown
    const { isolation, standby } = row as { isolation: Isolation; standby: string }
    const { enqueuing } = grounds
    const { waitMs: turnMs, closing } = plan
    const joined = (): OpenTransaction =>
      new OpenTransaction(connection, { isolation, enqueuing, grounds, plan, waitMs: turnMs, closing, joined: true })
    const refusal = standby === 'true' ? standbyRefused() : refusalOf(isolation, plan)
    if (refusal !== undefined) {
      await connection.script(releaseSavepoint(SAVEPOINT))
      throw refusal
    }
    if (plan.locks.length === 0) {
      await connection.script(releaseSavepoint(SAVEPOINT))
      return joined()
    }
    const startedAt = performance.now()
    // lock_timeout 0 would mean: for ever.
    const waitMs = plan.waitMs === false ? MAX_LOCK_TIMEOUT_MS : plan.waitMs
    try {
      const answers = await connection.script(
        joinLocks(grounds.method, plan.locks, waitMs, checksConnections, SAVEPOINT),
      )
      if (answers.at(-1)?.rows[0]?.['joined'] !== 'true') throw timedOut(plan, performance.now() - startedAt)
    } catch (error) {
      if (!connection.lost && !(error instanceof LockTimeout)) await connection.script(rollbackToSavepoint(SAVEPOINT))
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
async function refuseIneffectiveLocks(grounds: Grounds, plan: TransactionPlan): Promise<void> {
  const patience = new Patience(TRIAL_MS, undefined, plan.closing)
  await patiently(grounds.ready(), patience, plan.locks).catch((error: unknown) => {
    if (error instanceof LocksIneffective) throw error
  })
}

const MAX_LOCK_TIMEOUT_MS = 2_147_483_647

function refusalOf(isolation: Isolation, plan: TransactionPlan): JoinRefused | undefined {
  if (plan.locks.length === 0 || readsFresh(isolation)) return undefined
  return new JoinRefused(
    `The joined transaction is ${isolation.toUpperCase()}: its snapshot is older than any lock taken now.`,
    {
      advice:
        'Open it with lockstep.transaction({ lock, isolation }), which takes the lock before the snapshot, or use READ COMMITTED.',
      keys: plan.allKeys,
    },
  )
}

function timedOut(plan: TransactionPlan, waitedMs: number): LockTimeout {
  const keys = plan.locks.map((lock) => lock.key)
  return new LockTimeout(`The lock on ${keys.join(', ')} was not granted within ${Math.round(waitedMs)} ms.`, {
    advice: 'Nothing of it is held, and the joined transaction is as it was.',
    keys,
    waitedMs,
    waitedFor: 'server',
    holders: [],
  })
}
