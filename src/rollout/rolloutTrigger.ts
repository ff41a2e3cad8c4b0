import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { Key } from '../locks/index.ts'
import { rolloutSwitchedBack } from '../observe/index.ts'
import { operationPrefix, type RolloutSource } from './rollout.ts'

/** When Lockstep switches a prefix back to `observe`. */
export interface SwitchBackTriggers {
  /** A wait for a lock that lasts longer than this, be it still going on. */
  readonly waitMs?: number
  /** More than this part of the transactions under the prefix failing within a minute, of at least twenty: a timeout, retries without end, a lost connection. */
  readonly failurePercent?: number
}

const SWITCH_BACK_OPTIONS: OptionNames<SwitchBackTriggers> = { waitMs: true, failurePercent: true }

const WINDOW_MS = 60_000
/** Two failures of three are no trend. */
const MIN_SAMPLES = 20

interface Window {
  beganAt: number
  all: number
  failed: number
}

/** Watches over the keys that are locked, and puts a prefix back to `observe` where locking does harm. */
export class RolloutTrigger {
  readonly waitMs: number
  readonly #failurePercent: number
  readonly #schema: string
  readonly #source: RolloutSource
  readonly #windows = new Map<string, Window>()
  readonly #switching = new Set<string>()

  constructor(schema: string, source: RolloutSource, triggers: SwitchBackTriggers) {
    checkOptions('switchBack', triggers, SWITCH_BACK_OPTIONS)
    this.waitMs = checkBound('waitMs', triggers.waitMs)
    this.#failurePercent = checkBound('failurePercent', triggers.failurePercent)
    this.#schema = schema
    this.#source = source
  }

  /** A wait for these keys has passed the bound. */
  sawLongWait(keys: readonly string[]): void {
    for (const prefix of this.#prefixesOf(keys)) {
      this.#pull(prefix, `a wait for ${keys.join(', ')} lasted longer than ${this.waitMs} ms`)
    }
  }

  /** A transaction under these keys has ended. */
  sawEnd(keys: readonly string[], failed: boolean): void {
    const now = performance.now()
    for (const prefix of this.#prefixesOf(keys)) {
      let window = this.#windows.get(prefix)
      if (window === undefined || now - window.beganAt > WINDOW_MS) {
        this.#windows.set(prefix, (window = { beganAt: now, all: 0, failed: 0 }))
      }
      window.all++
      if (failed) window.failed++
      const percent = (window.failed / window.all) * 100
      if (window.all >= MIN_SAMPLES && percent > this.#failurePercent) {
        const share = `${window.failed} of ${window.all} transactions`
        this.#pull(prefix, `${share} failed within a minute, more than ${this.#failurePercent} %`)
      }
    }
  }

  /** The rule's own prefix, or the operation's where the rule is for all keys: one bad operation must not unlock the others. */
  #prefixesOf(keys: readonly string[]): Set<string> {
    const prefixes = new Set<string>()
    for (const key of keys) {
      const { prefix, mode } = this.#source.ruleFor(key as Key)
      // A straggler: it began before the switch.
      if (mode === 'observe' || mode === 'off') continue
      prefixes.add(prefix === '' ? operationPrefix(key) : prefix)
    }
    return prefixes
  }

  #pull(prefix: string, why: string): void {
    if (this.#switching.has(prefix)) return
    this.#switching.add(prefix)
    // Who switches it on again begins to count anew.
    this.#windows.delete(prefix)
    const reason = `Locks on ${prefix} were switched back to observe: ${why}.`
    const switched = this.#source.switchBack(prefix, reason).finally(() => this.#switching.delete(prefix))
    switched.then(
      () => {
        if (rolloutSwitchedBack.hasSubscribers) {
          rolloutSwitchedBack.publish({ schema: this.#schema, prefix, reason })
        }
        // The one place where the library speaks up by itself: from now on something is not locked that was.
        process.emitWarning(reason, { type: 'LockstepRollout', code: 'LOCKSTEP_ROLLOUT_SWITCHED_BACK' })
      },
      // The next one that sees it tries again.
      () => undefined,
    )
  }
}

function checkBound(name: string, bound: number | undefined): number {
  if (bound === undefined) return Infinity
  if (typeof bound === 'number' && bound >= 0) return bound
  throw new InvalidOptionError(`switchBack.${name} is ${String(bound)}.`, { advice: 'Use a number from 0.' })
}
