import { CommitOutcomeUnknownError, LockstepError, RetriesExhaustedError, StandbyRefusedError } from '../errors.ts'
import { closedError, WaitBudget } from '../locks/index.ts'
import { transactionRetried } from '../observe/index.ts'
import { codeOf, meansSessionTimedOut } from '../postgres/index.ts'
import { attemptOnce, type Body } from './attempt.ts'
import type { Attempt } from './attemptResult.ts'
import { connectionLost, endedEarly } from './ending.ts'
import { isInsideTransaction } from './frames.ts'
import type { LockstepContext } from './lockstepContext.ts'
import { refuseInside, refuseWaitingForSelf } from './nesting.ts'
import type { TransactionPlan } from './options.ts'
import { resolveCommit, resolveOutcome } from './outcome.ts'
import { classifyError } from './retry.ts'
import { retryPauseMs } from './retryOptions.ts'

/** Runs the function in a transaction with its locks, and again where that can help. */
export function runTransaction<T>(context: LockstepContext, declared: TransactionPlan, fn: Body<T>): Promise<T> {
  refuseInside(context, declared.allKeys)
  const budget = budgetOf(declared, declared.firstWaitMs)
  const { around } = context.parts
  if (around === undefined) return runAttempts(context, declared, fn, budget)
  return around(declared, budget, (plan) => runAttempts(context, plan, fn, budget))
}

/** `first` is the wait budget of the first attempt, and of those after it until the function has run. */
function runAttempts<T>(context: LockstepContext, plan: TransactionPlan, fn: Body<T>, first: WaitBudget): Promise<T> {
  if (plan.closing.closed) return Promise.reject(closedError(plan.allKeys))
  if (isInsideTransaction()) return runInside(context, plan, fn, first)
  return runFirst(context, plan, fn, first)
}

async function runInside<T>(
  context: LockstepContext,
  plan: TransactionPlan,
  fn: Body<T>,
  first: WaitBudget,
): Promise<T> {
  await refuseWaitingForSelf(context, plan)
  return runFirst(context, plan, fn, first)
}

/** Nearly every transaction commits at the first attempt. Without an async function, that one costs a promise less. */
function runFirst<T>(context: LockstepContext, plan: TransactionPlan, fn: Body<T>, budget: WaitBudget): Promise<T> {
  return attemptOnce(context, plan, fn, 1, budget).then((result) =>
    result.end === 'committed' ? result.value : runOthers(context, plan, fn, budget, result),
  )
}

async function runOthers<T>(
  context: LockstepContext,
  plan: TransactionPlan,
  fn: Body<T>,
  first: WaitBudget,
  ofFirst: Unfinished<T>,
): Promise<T> {
  let budget = first
  let result = ofFirst
  for (let attempt = 1; ; attempt++) {
    const neverRan = result.end === 'failed' && result.neverRan === true
    const committed = await beforeNextAttempt(context, plan, result, attempt, neverRan ? budget : undefined)
    if (committed !== undefined) return committed.value
    if (!neverRan) budget = budgetOf(plan, plan.waitMs)
    const next = await attemptOnce(context, plan, fn, attempt + 1, budget)
    if (next.end === 'committed') return next.value
    result = next
  }
}

type Unfinished<T> = Exclude<Attempt<T>, { end: 'committed' }>

/**
 * Finds the outcome of an attempt that did not end well, and waits until there can be another. Throws where there is none: after the
 * last attempt, and where `budget`, which an attempt that never ran has begun to use up, does not last for the pause.
 */
async function beforeNextAttempt<T>(
  context: LockstepContext,
  plan: TransactionPlan,
  result: Unfinished<T>,
  attempt: number,
  budget: WaitBudget | undefined,
): Promise<{ value: T } | undefined> {
  if (result.end === 'uncertain') {
    const outcome = result.trace === undefined ? 'unknown' : await resolveCommit(context, plan, result.trace)
    // A hint: with an unknown outcome it can be of nothing.
    if (outcome !== 'rolledBack') for (const each of result.work ?? []) each.committed()
    if (outcome === 'committed') return result
    if (outcome === 'unknown') throw outcomeUnknown(plan, result.error)
  } else if (result.lost && result.trace !== undefined && attempt < plan.attempts) {
    // The server might not have noticed yet, and its dead transaction would hold the lock against the next attempt.
    const outcome = await resolveOutcome(context, result.trace)
    // COMMIT was not sent by us.
    if (outcome === 'committed') throw endedEarly(plan, outcome, result.error)
  }
  const lost = result.end === 'uncertain' || result.lost
  // It has known a primary: after a failover the next connection may lead to the new one. A process that begins on a standby is refused at once.
  const leftPrimary = result.error instanceof StandbyRefusedError && context.readiness !== undefined
  const { verdict, reason } =
    leftPrimary || (result.end === 'uncertain' && !meansSessionTimedOut(result.error))
      ? { verdict: 'connection' as const, reason: codeOf(result.error) }
      : classifyError(result.error, lost)
  if (verdict === 'final') throw context.parts.explain(result.error)
  if (attempt >= plan.attempts || plan.closing.closed) throw exhausted(plan, attempt, result.error, verdict, reason)
  await plan.source?.leave()
  const leftMs = budget?.leftMs ?? Infinity
  if (leftMs < LEAST_LEFT_MS) throw exhausted(plan, attempt, result.error, verdict, reason)
  const delayMs = Math.min(retryPauseMs(plan.pauses[verdict], attempt), leftMs / 2)
  if (transactionRetried.hasSubscribers) {
    const { schema } = context
    const { keys } = plan
    transactionRetried.publish({ schema, keys, attempt, delayMs, reason, error: result.error })
  }
  await pauseUnlessAborted(plan, delayMs)
  return undefined
}

/** With less than this left of the wait budget, another attempt could not be made before its end. */
const LEAST_LEFT_MS = 10

/** A pause that the caller's signal and the closing end: the next attempt reports that. */
function pauseUnlessAborted(plan: TransactionPlan, delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      forget()
      resolve()
    }, delayMs)
    const forget = budgetOf(plan, false).onAbort(() => {
      clearTimeout(timer)
      resolve()
    })
  })
}

function budgetOf({ signal, closing, noWait }: TransactionPlan, waitMs: number | false): WaitBudget {
  return new WaitBudget(waitMs, signal, closing, noWait)
}

function outcomeUnknown(plan: TransactionPlan, cause: unknown): LockstepError {
  return new CommitOutcomeUnknownError(
    'The connection was lost in COMMIT, and the server can no longer say whether it committed.',
    {
      advice: 'Look for the effect in the data before doing it again.',
      keys: plan.allKeys,
      cause,
    },
  )
}

function adviceOnConflict({ isolation, sharedKeys }: TransactionPlan): string {
  if (isolation === 'read committed' || sharedKeys.length === 0)
    return 'Declare a lock for what the transactions compete for, or make them shorter.'
  return 'Holders of a shared lock run in parallel: a caller that writes what the others read needs `lock` in place of `lockShared`.'
}

function exhausted(
  plan: TransactionPlan,
  attempts: number,
  cause: unknown,
  verdict: 'conflict' | 'connection',
  reason: string | undefined,
): unknown {
  if (attempts === 1)
    return verdict === 'connection' && !(cause instanceof LockstepError) ? connectionLost(plan, cause) : cause
  return new RetriesExhaustedError(`${attempts} attempts failed, the last with ${reason ?? 'a lost connection'}.`, {
    advice: `Nothing was written. ${verdict === 'conflict' ? adviceOnConflict(plan) : 'Look at the connection to the server.'}`,
    keys: plan.allKeys,
    cause,
    attempts,
  })
}
