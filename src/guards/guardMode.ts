import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'

/**
 * What a guard does about a write without the lock. `observe`: it counts, and records who wrote. `enforce`: the statement fails.
 * `{ percent }`: it fails for that part of the keys and is counted for the rest; by the key's hash, as the rollout has it.
 */
export type GuardMode = 'observe' | 'enforce' | { readonly percent: number }

const PERCENT_OPTIONS: OptionNames<Exclude<GuardMode, string>> = { percent: true }

/** A mode as the database has it. */
export interface StoredMode {
  readonly mode: 'observe' | 'enforce' | 'percent'
  readonly percent: number | null
}

export function checkGuardMode(mode: unknown): StoredMode {
  if (mode === 'observe' || mode === 'enforce') return { mode, percent: null }
  if (typeof mode === 'object' && mode !== null && 'percent' in mode) {
    checkOptions('a guard by percentage', mode, PERCENT_OPTIONS)
    const { percent } = mode
    if (typeof percent === 'number' && Number.isInteger(percent) && percent >= 0 && percent <= 100)
      return { mode: 'percent', percent }
  }
  throw new InvalidOptionError(`Unknown guard mode ${JSON.stringify(mode)}.`, {
    advice: "Use 'observe', 'enforce' or { percent: 0 to 100 }, a whole number.",
  })
}

export function readGuardMode(mode: string, percent: string | null): GuardMode {
  return mode === 'percent' ? { percent: Number(percent) } : (mode as 'observe' | 'enforce')
}
