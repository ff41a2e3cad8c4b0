import type { OptionName } from './command.ts'
import { UsageError } from './usageError.ts'

/** A whole number that an option was given. */
export function parseNumber(option: OptionName, text: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text)
  throw new UsageError(`--${option} cannot be ${JSON.stringify(text)}.`, 'Use a whole number, such as 100.')
}

/** A number or a position of an event: larger than others get. */
export function parsePosition(option: OptionName, text: string): number {
  const place = Number(text)
  if (/^\d{1,16}$/.test(text) && Number.isSafeInteger(place)) return place
  throw new UsageError(`--${option} cannot be ${JSON.stringify(text)}.`, 'Use a whole number, such as 1000.')
}

const UNIT_MS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** A time that an option was given, in milliseconds. */
export function parseDuration(option: OptionName, text: string): number {
  const [, amount, unit = ''] = /^(\d{1,5})([smhd])$/.exec(text) ?? []
  const unitMs = UNIT_MS[unit]
  if (amount !== undefined && unitMs !== undefined) return Number(amount) * unitMs
  throw new UsageError(
    `--${option} cannot be ${JSON.stringify(text)}.`,
    'Use a whole number and its unit: 30s, 15m, 12h or 7d.',
  )
}
