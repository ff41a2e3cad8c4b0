import { InvalidOptionError } from '../errors.ts'
import type { LockMethod, Strategy } from './lockMethod.ts'
import { advisoryMethod } from './locks.sql.ts'
import { rowMethod } from './rowLocks.sql.ts'

/** Every strategy, one line each. */
const METHODS: Readonly<Record<Strategy, (quotedSchema: string) => LockMethod>> = {
  advisory: () => advisoryMethod,
  table: rowMethod,
}

/** The method that the option `strategy` names. */
export function lockMethod(strategy: unknown = 'advisory', quotedSchema: string): LockMethod {
  if (typeof strategy === 'string' && Object.hasOwn(METHODS, strategy))
    return METHODS[strategy as Strategy](quotedSchema)
  throw new InvalidOptionError(`Unknown strategy ${String(strategy)}.`, { advice: "Use 'advisory' or 'table'." })
}
