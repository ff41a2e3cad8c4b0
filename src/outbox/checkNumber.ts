import { InvalidOptionError } from '../errors.ts'

/** A whole number within bounds; it may become part of a statement. */
export function checkNumber(name: string, value: unknown, least: number, most = Number.MAX_SAFE_INTEGER): number {
  if (Number.isInteger(value) && (value as number) >= least && (value as number) <= most) return value as number
  throw new InvalidOptionError(`${name} is ${String(value)}.`, {
    advice: `Use a whole number from ${least}${most === Number.MAX_SAFE_INTEGER ? ' on' : ` to ${most}`}.`,
  })
}
