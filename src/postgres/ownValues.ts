import type { OwnValue } from './connection.ts'

/** A value of ours as the server reads it. */
export function textOf(value: OwnValue): string | null {
  if (value === null || value === undefined) return null
  if (typeof value === 'string') return value
  if (value instanceof Uint8Array) return `\\x${Buffer.from(value).toString('hex')}`
  return Array.isArray(value) ? listOf(value as readonly OwnValue[]) : String(value)
}

function listOf(values: readonly OwnValue[]): string {
  return `{${values.map(elementOf).join(',')}}`
}

function elementOf(value: OwnValue): string {
  const text = textOf(value)
  return text === null ? 'NULL' : `"${text.replaceAll(/["\\]/g, '\\$&')}"`
}
