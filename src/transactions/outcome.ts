import { setTimeout as sleep } from 'node:timers/promises'
import { PoolClosedError } from '../errors.ts'
import { Closing, WaitBudget } from '../locks/index.ts'
import { commitResolved } from '../observe/index.ts'
import { serverEpochExpression } from '../postgres/index.ts'
import { checkout } from './connections.ts'
import type { LockstepContext } from './lockstepContext.ts'
import type { Trace } from './open.ts'
import type { TransactionPlan } from './options.ts'
import { commitStatus, terminateTransaction } from './transactions.sql.ts'

/** The outcome of a transaction whose connection was lost. */
export type Outcome = 'committed' | 'rolledBack' | 'unknown'

/** A server that restarts is back within this time, or an operator is at work. */
const RESOLVE_MS = 30_000
const MIN_PAUSE_MS = 20
const MAX_PAUSE_MS = 500

/**
 * Asks the server for the outcome of a transaction. The answer is only valid in the same server epoch: after a crash its id
 * may be that of another transaction. Where it is still in progress, its session is ended first: an answer that is not final is none.
 */
export async function resolveOutcome(context: LockstepContext, trace: Trace, commitSent = false): Promise<Outcome> {
  const startedAt = performance.now()
  let pauseMs = MIN_PAUSE_MS
  while (performance.now() - startedAt < RESOLVE_MS) {
    const answer = await ask(context, trace, commitSent)
    if (answer !== 'later') return answer
    await sleep(pauseMs * (0.5 + Math.random() / 2))
    pauseMs = Math.min(MAX_PAUSE_MS, pauseMs * 2)
  }
  return 'unknown'
}

/** The same for a transaction whose COMMIT was sent; also emits the event. */
export async function resolveCommit(context: LockstepContext, plan: TransactionPlan, trace: Trace): Promise<Outcome> {
  const startedAt = performance.now()
  const outcome = await resolveOutcome(context, trace, true)
  if (commitResolved.hasSubscribers) {
    const tookMs = performance.now() - startedAt
    commitResolved.publish({ schema: context.schema, keys: plan.keys, xid: trace.xid, outcome, tookMs })
  }
  return outcome
}

async function ask(context: LockstepContext, trace: Trace, commitSent: boolean): Promise<Outcome | 'later'> {
  let connection
  try {
    // The library may be closing meanwhile: its running transactions are still seen to their end.
    connection = await checkout(context.driver, new WaitBudget(RESOLVE_MS, undefined, new Closing()), [])
  } catch (error) {
    // A closed pool will not open again; everything else may be over before the time is.
    return error instanceof PoolClosedError ? 'unknown' : 'later'
  }
  try {
    const expression = serverEpochExpression(context.quotedSchema)
    const [result] = await context.silence.script(connection, commitStatus(expression, trace.serverEpoch, trace.xid))
    const row = result?.rows[0] as unknown
    const { standby, status } = row as { standby: string; status: string | null }
    let answer: Outcome | 'later'
    if (standby === 'true') answer = 'later'
    else if (status === 'committed') answer = 'committed'
    else if (status === 'aborted') answer = 'rolledBack'
    else if (status === 'in progress') {
      await context.silence.script(connection, terminateTransaction(trace.pid, trace.xid, commitSent))
      answer = 'later'
    } else answer = 'unknown'
    connection.release()
    return answer
  } catch {
    connection.destroy()
    return 'later'
  }
}
