import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { Key, LockRequest } from '../locks/index.ts'
import type { LeaseMode } from '../transactions/index.ts'

/**
 * What is done about a key: `on`: it is locked. `off`: it is not. `observe`: it is not, but what would have waited is counted.
 * `{ percent }`: that part of the keys is locked and the rest observed; by the key's hash, so that a key never changes sides when
 * the percentage grows.
 */
export type RolloutMode = 'off' | 'observe' | 'on' | { readonly percent: number }

const PERCENT_OPTIONS: OptionNames<Exclude<RolloutMode, string>> = { percent: true }

/**
 * How locks and leases are switched on: one mode for all keys, a mode for each prefix (the longest that fits; keys that fit none are
 * locked), a function, or the rules in the database, which all processes follow.
 */
export type Rollout = RolloutMode | Readonly<Record<string, RolloutMode>> | ((key: Key) => RolloutMode) | 'database'

/** One rule: the mode of the keys that begin with the prefix. */
export interface RolloutRule {
  readonly prefix: string
  readonly mode: RolloutMode
}

/** A rule as it was seen: another one in its place has another version. */
export interface SeenRule extends RolloutRule {
  readonly version?: string
}

/** Where the rules come from. */
export interface RolloutSource {
  /** The rule for a key. */
  ruleFor(key: Key): SeenRule
  /** Puts the keys of a prefix back to `observe`, if the rule is still the one that was seen. True where this call did it. */
  switchBack(prefix: string, seen: SeenRule, reason: string): Promise<boolean>
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
export function decide(mode: RolloutMode, lock: Pick<LockRequest, 'id'>): LeaseMode {
  if (typeof mode === 'string') return mode
  const part = Number(BigInt.asUintN(64, lock.id) % PARTS) / (Number(PARTS) / 100)
  return part < mode.percent ? 'on' : 'observe'
}

/** Refuses a prefix whose rule would do nothing: a dispatcher always holds its shards, or two would deliver one stream. */
export function checkSwitchable(prefix: string): string {
  if (!prefix.startsWith('Outbox:')) return prefix
  throw new InvalidOptionError(
    `There is no rollout of ${JSON.stringify(prefix)}: dispatchers always hold their shards.`,
    {
      advice: 'Two owners of a shard would deliver its events twice. Stop the dispatcher instead.',
    },
  )
}

/** The longest prefix that a key begins with wins. */
export function longestRule<Rule extends RolloutRule>(rules: readonly Rule[], key: string): Rule | undefined {
  let best: Rule | undefined
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
    switchBack: (prefix) => {
      switchedBack.push({ prefix, mode: 'observe' })
      return Promise.resolve(true)
    },
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
  const rules = Object.entries(rollout).map(([prefix, mode]) => ({
    prefix: checkSwitchable(prefix),
    mode: checkMode(mode),
  }))
  return (key) => longestRule(rules, key) ?? LOCKED
}

/** The rule for keys that no other rule is for. */
export const LOCKED: RolloutRule = { prefix: '', mode: 'on' }
