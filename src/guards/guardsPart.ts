import { WriteWithoutLockError } from '../errors.ts'
import { guardRefused } from '../observe/index.ts'
import { codeOf, findCause } from '../postgres/index.ts'
import type { Part, PartHooks } from '../transactions/index.ts'
import { Guards } from './guards.ts'

/** With which the trigger of a guard fails. */
const REFUSED_BY_GUARD = 'LS002'

interface InstalledGuards extends PartHooks {
  readonly guards: Guards
}

/** Reports a write that a guard refused as a `WriteWithoutLockError`. */
export const guardsPart: Part<InstalledGuards> = {
  install: (setup) => ({
    guards: new Guards(setup),
    explain: (error) => explain(setup.schema, error),
  }),
}

/** What the drivers have of the server's report: pg and postgres.js name the table differently. */
interface ServerReport {
  readonly message: string
  readonly detail?: string
  readonly hint?: string
  readonly table?: string
  readonly table_name?: string
}

function explain(schema: string, error: unknown): unknown {
  if (findCause(error, (each) => each instanceof WriteWithoutLockError) !== undefined) return error
  const cause = findCause(error, (each) => codeOf(each) === REFUSED_BY_GUARD) as ServerReport | undefined
  if (cause === undefined) return error
  const table = cause.table ?? cause.table_name ?? ''
  const key = cause.detail
  if (guardRefused.hasSubscribers) guardRefused.publish({ schema, table, key })
  return new WriteWithoutLockError(`A guard refused a write: ${cause.message}.`, {
    advice: cause.hint ?? 'Lock the key before it is written.',
    keys: key === undefined ? [] : [key],
    table,
    cause: error,
  })
}
