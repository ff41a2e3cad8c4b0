import { InvalidOptionError } from '../errors.ts'

/** A value of one key column. */
export type RowIdPart = string | number | bigint | boolean | Date | Uint8Array

/** What names a row: one value, or one for each column of the key, in their order. */
export type RowId = RowIdPart | readonly RowIdPart[]

/** The ids of one call, as the server gets them. */
export interface GivenIds {
  /** Each different id once, under its name. */
  readonly unique: readonly RowId[]
  /** Their names, in the same order. */
  readonly names: readonly string[]
  /** One array literal for each column of the key. */
  readonly columns: readonly string[]
}

/** Checks the ids and turns them around: from a list of rows into a list for each column. */
export function givenIds(ids: readonly RowId[], width: number): GivenIds {
  if (!Array.isArray(ids)) {
    throw new InvalidOptionError('lockRows() was given no list of ids.', { advice: 'Pass [id], or [] for none.' })
  }
  const unique = new Map<string, RowId>()
  const columns = Array.from({ length: width }, (): string[] => [])
  for (const id of ids as readonly RowId[]) {
    const parts = partsOf(id, width)
    const name = parts.join(',')
    if (unique.has(name)) continue
    unique.set(name, id)
    parts.forEach((part, index) => columns[index]?.push(part))
  }
  return {
    unique: [...unique.values()],
    names: [...unique.keys()],
    columns: columns.map((parts) => `{${parts.join(',')}}`),
  }
}

/** The text by which an id is found again, equal for `1`, `1n` and `'1'`. */
export function nameOf(id: RowId, width: number): string {
  return partsOf(id, width).join(',')
}

/** An id as people read it. */
export function shownId(id: RowId): string {
  return isComposite(id) ? `(${id.map((part) => textOf(part)).join(', ')})` : textOf(id)
}

function isComposite(id: RowId): id is readonly RowIdPart[] {
  return Array.isArray(id)
}

function partsOf(id: RowId, width: number): string[] {
  const parts = isComposite(id) ? id : [id]
  if (parts.length !== width) {
    throw new InvalidOptionError(`An id has ${parts.length} parts, and the key has ${width} columns.`, {
      advice: 'Pass one value for each column of `key`, in their order.',
    })
  }
  return parts.map((part) => `"${textOf(part).replaceAll(/["\\]/g, '\\$&')}"`)
}

function textOf(part: unknown): string {
  if (typeof part === 'string') {
    if (part.includes('\0')) throw wrong('has a NUL byte, which PostgreSQL cannot store')
    return part
  }
  if (typeof part === 'number') {
    if (!Number.isFinite(part)) throw wrong(`is ${part}`)
    if (Number.isInteger(part) && !Number.isSafeInteger(part)) {
      throw wrong(`is ${part}, which has lost its last digits as a number: use a bigint or a string`)
    }
    return String(part)
  }
  if (typeof part === 'bigint' || typeof part === 'boolean') return String(part)
  if (part instanceof Date && !Number.isNaN(part.getTime())) return part.toISOString()
  if (part instanceof Uint8Array) return `\\x${Buffer.from(part).toString('hex')}`
  throw wrong(part === null ? 'is null' : `is ${part instanceof Date ? 'no date' : `of type ${typeof part}`}`)
}

function wrong(complaint: string): InvalidOptionError {
  return new InvalidOptionError(`An id given to lockRows() ${complaint}.`, {
    advice: 'Pass the value of the key column: a string, a number, a bigint, a Date or bytes.',
  })
}
