import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import { LONGEST_TIMER_MS } from '../postgres/index.ts'

/**
 * The pauses between attempts. The one before the second attempt takes at most `first` milliseconds, each later one at most twice as long as
 * the one before, up to `longest`. How much of that is taken is random, so that callers that collided do not meet again.
 */
export interface RetryPause {
  readonly first?: number
  readonly longest?: number
}

/** How often a failed transaction is tried again, and after which pauses. */
export interface RetryOptions {
  /** The number of attempts, including the first. Default 10. */
  readonly attempts?: number
  /** The pauses after a conflict. Default `{ first: 4, longest: 250 }`. */
  readonly conflictPauseMs?: RetryPause
  /** The pauses after a lost connection. Default `{ first: 100, longest: 2000 }`. */
  readonly connectionPauseMs?: RetryPause
}

const RETRY_OPTIONS: OptionNames<RetryOptions> = { attempts: true, conflictPauseMs: true, connectionPauseMs: true }
const RETRY_PAUSE: OptionNames<RetryPause> = { first: true, longest: true }

/** Why another attempt is made. */
export type RetryReason = 'conflict' | 'connection'

/** The checked options. */
export interface RetryPlan {
  readonly attempts: number
  readonly pauses: Readonly<Record<RetryReason, Required<RetryPause>>>
}

const DEFAULTS: RetryPlan = {
  attempts: 10,
  pauses: { conflict: { first: 4, longest: 250 }, connection: { first: 100, longest: 2000 } },
}
const MAX_ATTEMPTS = 1000

/** What is not given is as in `otherwise`: the Lockstep's own, and for that the defaults. */
export function planRetry(retry: RetryOptions | undefined, otherwise: RetryPlan = DEFAULTS): RetryPlan {
  if (retry === undefined) return otherwise
  if (typeof retry !== 'object' || retry === null) {
    throw new InvalidOptionError(`retry is ${String(retry)}.`, {
      advice:
        'Use { attempts }; in a call also false. A Lockstep has no retry: false, because it is a choice of each call.',
    })
  }
  checkOptions('retry', retry, RETRY_OPTIONS)
  const { attempts = otherwise.attempts, conflictPauseMs, connectionPauseMs } = retry
  if (!Number.isInteger(attempts) || attempts < 1 || attempts > MAX_ATTEMPTS) {
    throw new InvalidOptionError(`retry.attempts is ${String(attempts)}.`, {
      advice: `Use 1 to ${MAX_ATTEMPTS}, or retry: false.`,
    })
  }
  if (conflictPauseMs === undefined && connectionPauseMs === undefined) {
    return { attempts, pauses: otherwise.pauses }
  }
  const { conflict, connection } = otherwise.pauses
  return {
    attempts,
    pauses: {
      conflict: checkPause('conflictPauseMs', conflictPauseMs, conflict),
      connection: checkPause('connectionPauseMs', connectionPauseMs, connection),
    },
  }
}

function checkPause(
  name: string,
  given: RetryPause | undefined,
  otherwise: Required<RetryPause>,
): Required<RetryPause> {
  if (given === undefined) return otherwise
  checkOptions(`retry.${name}`, given, RETRY_PAUSE)
  for (const [part, value] of Object.entries(given)) {
    if (value === undefined || (typeof value === 'number' && value >= 1 && value <= LONGEST_TIMER_MS)) continue
    throw new InvalidOptionError(`retry.${name}.${part} is ${String(value)}.`, {
      advice: `Use 1 to ${LONGEST_TIMER_MS} milliseconds.`,
    })
  }
  const { first = Math.min(otherwise.first, given.longest ?? Infinity), longest = Math.max(first, otherwise.longest) } =
    given
  if (first > longest) {
    throw new InvalidOptionError(`retry.${name}.first is ${first}, longer than ${longest}, the longest pause.`, {
      advice: 'Make `longest` at least as long as `first`.',
    })
  }
  return { first, longest }
}

/** The pause after attempt 1, 2, … */
export function retryPauseMs({ first, longest }: Required<RetryPause>, attempt: number): number {
  return Math.random() * Math.min(longest, first * 2 ** (attempt - 1))
}
