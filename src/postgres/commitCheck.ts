import type { Commit } from './connection.ts'
import { ENDED_EARLY } from './postgres.sql.ts'
import { codeOf, IN_FAILED_TRANSACTION, UNDEFINED_OBJECT } from './sqlstate.ts'

/** What an error in answer to a message that began with a check says of COMMIT; undefined where COMMIT itself may have failed. */
export function refusalByCheck(failure: unknown): Commit | undefined {
  if (isEndedEarly(failure)) return { command: '', failure, endedEarly: true }
  return codeOf(failure) === IN_FAILED_TRANSACTION ? { command: '', failure } : undefined
}

/** Whether the check before COMMIT has failed. The name in the message is our own, in whatever language the rest is. */
export function isEndedEarly(error: unknown): boolean {
  return codeOf(error) === UNDEFINED_OBJECT && error instanceof Error && error.message.includes(ENDED_EARLY)
}
