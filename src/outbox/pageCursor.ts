import { InvalidOptionError } from '../errors.ts'

/** Where a list continues. Opaque to callers: only what a page returned is taken. */
export function encodeCursor(kind: string, parts: readonly string[]): string {
  return Buffer.from(JSON.stringify([kind, ...parts])).toString('base64url')
}

export function decodeCursor(call: string, kind: string, cursor: unknown, length: number): string[] {
  const parts = partsOf(cursor)
  if (parts?.[0] === kind && parts.length === length + 1) return parts.slice(1)
  throw new InvalidOptionError(`${call} was given a cursor that it did not return.`, {
    advice: 'Pass `next` of the page before, as it is.',
  })
}

function partsOf(cursor: unknown): string[] | undefined {
  if (typeof cursor !== 'string') return undefined
  try {
    const parts = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown
    return Array.isArray(parts) && parts.every((part) => typeof part === 'string') ? parts : undefined
  } catch {
    return undefined
  }
}
