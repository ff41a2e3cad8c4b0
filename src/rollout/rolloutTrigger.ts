import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import { type EventMessage, rolloutSwitchedBack } from '../observe/index.ts'
import { Durations, slowdown } from './durations.ts'
import { operationPrefix, type RolloutSource, type SeenRule } from './rollout.ts'

/** When Lockstep switches a prefix back to `observe`. */
export interface SwitchBackTriggers {
  /** A wait for a lock or a lease that lasts longer than this, be it still continuing. */
  readonly waitMs?: number
  /** More than this part of the calls under the prefix failing within a minute, of at least twenty: a timeout, retries without end, a lost connection. */
  readonly failurePercent?: number
  /** The number of duplicates within a minute, although the key was locked; `1`: the first one. */
  readonly duplicates?: number
  /** Calls taking longer on average by more than this part than those that this process has observed under the prefix, of at least fifty each. */
  readonly slowerPercent?: number
}

const SWITCH_BACK_OPTIONS: OptionNames<SwitchBackTriggers> = {
  waitMs: true,
  failurePercent: true,
  duplicates: true,
  slowerPercent: true,
}

type TriggerName = EventMessage<'rollout.switchedBack'>['trigger']

const WINDOW_MS = 60_000
/** Two failures of three are no trend. */
const MIN_SAMPLES = 20
/** Durations need more samples, and are compared every this many calls. */
const MIN_DURATIONS = 50
const MOST_DURATIONS = 1000

interface Window {
  /** Of the rule that it is about: with another one it begins again. */
  readonly version: string | undefined
  readonly beganAt: number
  all: number
  failed: number
  duplicates: number
  readonly durations: Durations
}

/** A prefix that can be switched back, and the rule that its keys are locked by. */
interface Target {
  readonly prefix: string
  readonly rule: SeenRule
}

/** Watches over the keys that are locked, and puts a prefix back to `observe` where locking does harm. */
export class RolloutTrigger {
  readonly waitMs: number
  readonly #failurePercent: number
  readonly #duplicates: number
  readonly #slowerPercent: number
  readonly #schema: string
  readonly #source: RolloutSource
  readonly #windows = new Map<string, Window>()
  /** How long calls took while their key was observed. */
  readonly #baselines = new Map<string, Durations>()
  readonly #switching = new Set<string>()

  constructor(schema: string, source: RolloutSource, triggers: SwitchBackTriggers) {
    checkOptions('switchBack', triggers, SWITCH_BACK_OPTIONS)
    this.waitMs = checkBound('waitMs', triggers.waitMs)
    this.#failurePercent = checkBound('failurePercent', triggers.failurePercent)
    this.#duplicates = checkBound('duplicates', triggers.duplicates, 1)
    this.#slowerPercent = checkBound('slowerPercent', triggers.slowerPercent)
    this.#schema = schema
    this.#source = source
  }

  /** A wait for these keys has passed the bound. */
  sawLongWait(keys: readonly string[]): void {
    for (const target of this.#targetsOf(keys)) {
      this.#pull(target, 'waitMs', `a wait for ${keys.join(', ')} lasted longer than ${this.waitMs} ms`)
    }
  }

  /** A call that locked these keys has ended. What was not done to its end says nothing about how long it takes. */
  sawEnd(keys: readonly string[], tookMs: number, outcome: 'done' | 'failed' | 'harmed'): void {
    for (const target of this.#targetsOf(keys)) {
      const window = this.#windowOf(target)
      window.all++
      if (outcome === 'harmed') window.failed++
      if (outcome === 'done') window.durations.add(tookMs)
      this.#judgeFailures(target, window)
      if (outcome === 'done' && window.durations.count % MIN_DURATIONS === 0) this.#judgeDurations(target, window)
    }
  }

  /** A call whose keys were observed has ended: what those that lock are compared with. */
  sawObserved(keys: readonly string[], tookMs: number): void {
    for (const key of keys) {
      const prefix = targetPrefix(this.#source.ruleFor(key as Key).prefix, key)
      let baseline = this.#baselines.get(prefix)
      if (baseline === undefined) this.#baselines.set(prefix, (baseline = new Durations(MOST_DURATIONS)))
      baseline.add(tookMs)
    }
  }

  /** Something is there twice, although its key was locked. */
  sawDuplicate(key: string, detail: string): void {
    for (const target of this.#targetsOf([key])) {
      const window = this.#windowOf(target)
      if (++window.duplicates < this.#duplicates) continue
      const found = window.duplicates === 1 ? 'a duplicate was' : `${window.duplicates} duplicates were`
      this.#pull(target, 'duplicates', `${found} found although ${key} was locked${detail && ` (${detail})`}`)
    }
  }

  #judgeFailures(target: Target, { all, failed }: Window): void {
    if (all < MIN_SAMPLES || (failed / all) * 100 <= this.#failurePercent) return
    const share = `${failed} of ${all} calls`
    this.#pull(target, 'failurePercent', `${share} failed within a minute, more than ${this.#failurePercent} %`)
  }

  #judgeDurations(target: Target, { durations }: Window): void {
    const baseline = this.#baselines.get(target.prefix)
    if (this.#slowerPercent === Infinity || baseline === undefined || baseline.count < MIN_DURATIONS) return
    const percent = slowdown(baseline, durations, this.#slowerPercent)
    if (percent === undefined) return
    const means = `${durations.summary().mean.toFixed(1)} ms instead of ${baseline.summary().mean.toFixed(1)} ms`
    const bound = `more than ${this.#slowerPercent} %`
    this.#pull(target, 'slowerPercent', `calls take ${means} on average, ${Math.round(percent)} % longer, ${bound}`)
  }

  #windowOf({ prefix, rule: { version } }: Target): Window {
    const now = performance.now()
    const window = this.#windows.get(prefix)
    if (window !== undefined && now - window.beganAt <= WINDOW_MS && window.version === version) return window
    const durations = new Durations(MOST_DURATIONS)
    const next = { version, beganAt: now, all: 0, failed: 0, duplicates: 0, durations }
    this.#windows.set(prefix, next)
    return next
  }

  #targetsOf(keys: readonly string[]): Target[] {
    const targets = new Map<string, Target>()
    for (const key of keys) {
      const rule = this.#source.ruleFor(key as Key)
      // A straggler: it began before the switch.
      if (rule.mode === 'observe' || rule.mode === 'off') continue
      const prefix = targetPrefix(rule.prefix, key)
      targets.set(prefix, { prefix, rule })
    }
    return [...targets.values()]
  }

  #pull({ prefix, rule }: Target, trigger: TriggerName, why: string): void {
    if (this.#switching.has(prefix)) return
    this.#switching.add(prefix)
    // Switching it on again resets the count.
    this.#windows.delete(prefix)
    const reason = `Keys that begin with ${prefix} were switched back to observe: ${why}.`
    const switched = this.#source.switchBack(prefix, rule, reason).finally(() => this.#switching.delete(prefix))
    switched.then(
      (didIt) => {
        // Another process was quicker, and has reported it; or an operator has set another rule.
        if (!didIt) return
        if (rolloutSwitchedBack.hasSubscribers) {
          rolloutSwitchedBack.publish({ schema: this.#schema, prefix, trigger, reason })
        }
        // The one place where the library speaks up by itself: from now on something is not locked that was.
        process.emitWarning(reason, { type: 'LockstepRollout', code: 'LOCKSTEP_ROLLOUT_SWITCHED_BACK' })
      },
      // The next one that sees it tries again.
      () => undefined,
    )
  }
}

/** The rule's own prefix, or the operation's where the rule is for all keys: one bad operation must not unlock the others. */
function targetPrefix(prefix: string, key: string): string {
  return prefix === '' ? operationPrefix(key) : prefix
}

function checkBound(name: string, bound: number | undefined, least = 0): number {
  if (bound === undefined) return Infinity
  if (typeof bound === 'number' && bound >= least) return bound
  throw new InvalidOptionError(`switchBack.${name} is ${String(bound)}.`, { advice: `Use a number from ${least}.` })
}
