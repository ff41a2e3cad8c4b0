import type { OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { Audited } from './outbox.sql.ts'

/** Who does something to the outbox, and why. Both are written into the audit. */
export interface OperatorOptions {
  /**
   * The name of the operator, up to 255 characters. Lockstep does not check it, and records it with the role, the address and the reason.
   */
  readonly by?: string
  readonly reason?: string
}

export const OPERATOR_OPTIONS: OptionNames<OperatorOptions> = { by: true, reason: true }

const LONGEST_BY = 255

export function audited({ reason, by }: OperatorOptions): Audited {
  if (by === undefined || (typeof by === 'string' && by.length <= LONGEST_BY && by.trim() !== '')) return { reason, by }
  throw new InvalidOptionError('`by` is not a text of 1 to 255 characters.', { advice: 'Pass the operator’s name.' })
}

export function checkReason(verb: string, reason: unknown): void {
  if (typeof reason === 'string' && reason.trim() !== '') return
  throw new InvalidOptionError(`${verb}() was given no reason.`, {
    advice: 'Pass the reason: it is recorded with the operator.',
  })
}
