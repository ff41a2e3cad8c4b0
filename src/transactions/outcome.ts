import { setTimeout as sleep } from 'node:timers/promises'
import { LockstepError } from '../errors.ts'
import { commitResolved } from '../observe/index.ts'
import { incarnationExpression } from '../postgres/index.ts'
import { answered } from './connections.ts'
import type { Grounds } from './grounds.ts'
import type { Trace } from './open.ts'
import type { TransactionPlan } from './options.ts'
import { commitStatus, terminateTransaction } from './transactions.sql.ts'

/** What became of a transaction whose connection was lost. */
export type Outcome = 'committed' | 'rolledBack' | 'unknown'

/** A server that restarts is back within this time, or an operator is at work. */
const RESOLVE_MS = 30_000
const MIN_PAUSE_MS = 20
const MAX_PAUSE_MS = 500

/**
 * Asks the server what became of a transaction. The answer is only taken from the same life of the server: after a crash its id
 * may be somebody else's. Where it is still in progress, its session is ended first: an answer that is not final is none.
 */
export async function resolveOutcome(grounds: Grounds, plan: TransactionPlan, trace: Trace): Promise<Outcome> {
  const startedAt = performance.now()
  let pauseMs = MIN_PAUSE_MS
  let outcome: Outcome = 'unknown'
  while (performance.now() - startedAt < RESOLVE_MS) {
    const answer = await ask(grounds, trace)
    if (answer !== 'later') {
      outcome = answer
      break
    }
    await sleep(pauseMs * (0.5 + Math.random() / 2))
    pauseMs = Math.min(MAX_PAUSE_MS, pauseMs * 2)
  }
  if (commitResolved.hasSubscribers) {
    const tookMs = performance.now() - startedAt
    commitResolved.publish({ schema: grounds.schema, keys: plan.keys, xid: trace.xid, outcome, tookMs })
  }
  return outcome
}

async function ask(grounds: Grounds, trace: Trace): Promise<Outcome | 'later'> {
  let connection
  try {
    connection = await grounds.driver.connect()
  } catch (error) {
    // A closed pool will not open again; a server that is down may.
    return error instanceof LockstepError ? 'unknown' : 'later'
  }
  try {
    const expression = incarnationExpression(grounds.quotedSchema)
    const [result] = await answered(
      connection.script(commitStatus(expression, trace.incarnation, trace.xid)),
      grounds.silenceMs,
    )
    const { standby, status } = result?.rows[0] as { standby: string; status: string | null }
    let answer: Outcome | 'later'
    if (standby === 'true') answer = 'later'
    else if (status === 'committed') answer = 'committed'
    else if (status === 'aborted') answer = 'rolledBack'
    else if (status === 'in progress') {
      await answered(connection.script(terminateTransaction(trace.pid, trace.xid)), grounds.silenceMs)
      answer = 'later'
    } else answer = 'unknown'
    connection.release()
    return answer
  } catch {
    connection.destroy()
    return 'later'
  }
}
