import type { PostgresJs } from './postgresJsClient.ts'
import { codeOf } from './sqlstate.ts'

/** A value with a type, from `sql.typed()` and its like. */
interface TypedValue {
  readonly value: unknown
  readonly type: number
}

/** The parts of its options by which postgres.js writes values. */
interface WritingOptions {
  readonly serializers?: Readonly<Record<number, (value: unknown) => unknown>>
  readonly transform?: { readonly undefined?: unknown }
}

/** More parameters than a message can have. */
const MAX_PARAMETERS = 65_534

/**
 * The error for an undefined value, where postgres.js would refuse it; otherwise undefined. To be asked first: postgres.js itself
 * rejects whatever is on its way then, and forgets the one that has the value.
 */
export function undefinedAmong(sql: PostgresJs, values: readonly unknown[]): Error | undefined {
  if (!values.some((each) => plainOf(each) === undefined) || allowsUndefined(sql)) return undefined
  const error = new Error('UNDEFINED_VALUE: Undefined values are not allowed')
  return Object.assign(error, { code: UNDEFINED_VALUE })
}

const UNDEFINED_VALUE = 'UNDEFINED_VALUE'

function allowsUndefined(sql: PostgresJs): boolean {
  return (sql.options as WritingOptions).transform?.undefined !== undefined
}

/**
 * Whether postgres.js refused a statement before it sent it, because of its own values. Its word alone is not enough: where another
 * statement is on its way, postgres.js rejects that one with the error of the one that comes after it.
 */
export function neverSent(sql: PostgresJs, error: unknown, values: readonly unknown[]): boolean {
  const { serializers } = sql.options as WritingOptions
  switch (codeOf(error)) {
    case UNDEFINED_VALUE:
      return undefinedAmong(sql, values) !== undefined
    case 'MAX_PARAMETERS_EXCEEDED':
      return values.length >= MAX_PARAMETERS
    case undefined: {
      const { types = [] } = error as { types?: readonly number[] }
      return values.some((each, place) => throws(serializers?.[types[place] ?? 0], plainOf(each)))
    }
    default:
      return false
  }
}

function plainOf(value: unknown): unknown {
  return isTyped(value) ? value.value : value
}

/** Known by its shape: a minifier may have renamed its class. Only its class makes it look like a promise. */
function isTyped(value: unknown): value is TypedValue {
  return (
    typeof value === 'object' && value !== null && ['value', 'type', 'array', 'then'].every((name) => name in value)
  )
}

function throws(write: ((value: unknown) => unknown) | undefined, value: unknown): boolean {
  try {
    write?.(value)
    return false
  } catch {
    return true
  }
}
