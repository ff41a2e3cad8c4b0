import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { Key, LockRequest } from '../locks/index.ts'

/**
 * What is done about a key: `on`: it is locked. `off`: it is not. `observe`: it is not, but what would have waited is counted.
 * `{ percent }`: that part of the keys is locked and the rest observed; by the key's hash, so that a key never changes sides when
 * the percentage grows.
 */
export type RolloutMode = 'off' | 'observe' | 'on' | { readonly percent: number }

const PERCENT_OPTIONS: OptionNames<Exclude<RolloutMode, string>> = { percent: true }

/** What becomes of one key in the end. */
export type RolloutDecision = 'off' | 'observe' | 'on'

/**
 * How locking is switched on: one mode for all keys, a mode for each prefix (the longest that fits; keys that fit none are
 * locked), a function, or the rules in the database, which all processes follow.
 */
export type Rollout = RolloutMode | Readonly<Record<string, RolloutMode>> | ((key: Key) => RolloutMode) | 'database'

/** One rule: the mode of the keys that begin with the prefix. */
export interface RolloutRule {
  readonly prefix: string
  readonly mode: RolloutMode
}

/** Where the rules come from. */
export interface RolloutSource {
  /** The rule for a key. */
  ruleFor(key: Key): RolloutRule
  /** Puts the keys of a prefix back to `observe`. */
  switchBack(prefix: string, reason: string): Promise<void>
  /** Resolves when the rules are young enough to be used; undefined: they are. */
  freshen(): Promise<void> | undefined
}

const MODES: readonly unknown[] = ['off', 'observe', 'on']
/** The hash is cut into as many parts, so that half a percent is one as well. */
const PARTS = 10_000n

/** Refuses a mode that is none. */
export function checkMode(mode: unknown): RolloutMode {
  if (MODES.includes(mode)) return mode as RolloutMode
  if (isPercent(mode) && mode.percent >= 0 && mode.percent <= 100) {
    // Beside it, a rule for a prefix would be ignored.
    checkOptions('a rollout by percentage', mode, PERCENT_OPTIONS)
    return mode
  }
  throw new InvalidOptionError(`There is no rollout mode ${JSON.stringify(mode)}.`, {
    advice: "Use 'off', 'observe', 'on' or { percent: 0 to 100 }.",
  })
}

function isPercent(mode: unknown): mode is { percent: number } {
  return typeof mode === 'object' && mode !== null && 'percent' in mode && typeof mode.percent === 'number'
}

/** Decides on one key. */
export function decide(mode: RolloutMode, lock: LockRequest): RolloutDecision {
  if (typeof mode === 'string') return mode
  const part = Number(BigInt.asUintN(64, lock.id) % PARTS) / (Number(PARTS) / 100)
  return part < mode.percent ? 'on' : 'observe'
}

/** The longest prefix that a key begins with wins. */
export function longestRule(rules: readonly RolloutRule[], key: string): RolloutRule | undefined {
  let best: RolloutRule | undefined
  for (const rule of rules) {
    if (key.startsWith(rule.prefix) && (best === undefined || rule.prefix.length > best.prefix.length)) best = rule
  }
  return best
}

/** The prefix of a key's operation: what is switched back where the rule itself is for all keys. */
export function operationPrefix(key: string): string {
  return key.slice(0, key.indexOf(':') + 1)
}

/** Rules that live in this process alone. */
export function rolloutInProcess(rollout: Exclude<Rollout, 'database'>): RolloutSource {
  const switchedBack: RolloutRule[] = []
  const find = ruleFinder(rollout)
  return {
    ruleFor: (key) => longestRule(switchedBack, key) ?? find(key),
    switchBack: async (prefix) => void switchedBack.push({ prefix, mode: 'observe' }),
    freshen: () => undefined,
  }
}

function ruleFinder(rollout: Exclude<Rollout, 'database'>): (key: Key) => RolloutRule {
  if (typeof rollout === 'function') return (key) => ({ prefix: operationPrefix(key), mode: checkMode(rollout(key)) })
  if (typeof rollout === 'string' || isPercent(rollout)) {
    const rule = { prefix: '', mode: checkMode(rollout) }
    return () => rule
  }
  if (typeof rollout !== 'object' || rollout === null) checkMode(rollout)
  const rules = Object.entries(rollout).map(([prefix, mode]) => ({ prefix, mode: checkMode(mode) }))
  return (key) => longestRule(rules, key) ?? LOCKED
}

/** The rule for keys that no other rule is for. */
export const LOCKED: RolloutRule = { prefix: '', mode: 'on' }
