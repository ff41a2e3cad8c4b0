import { InvalidOptionError, LockstepError, type LockstepErrorCode } from '../errors.ts'
import { type Key, lockId, type LockRequest, type WaitBudget } from '../locks/index.ts'
import { rolloutDuplicateFound } from '../observe/index.ts'
import {
  type LeaseAdmission,
  type LeaseMode,
  type Part,
  type PartHooks,
  type PartSetup,
  type PlannedPart,
  type TransactionPlan,
  withinBudget,
  withLocks,
} from '../transactions/index.ts'
import { ObservedKeys } from './observedKeys.ts'
import { decide, type Rollout, rolloutInProcess, type RolloutSource } from './rollout.ts'
import { RolloutInDatabase } from './rolloutInDatabase.ts'
import { RolloutTrigger, type SwitchBackTriggers } from './rolloutTrigger.ts'
import { type Shadow, shadowOf } from './shadow.ts'
import { ShadowWatch } from './shadowWatch.ts'

/** What the rollout reads of the options of a Lockstep. */
interface RolloutSettings {
  readonly rollout?: Rollout
  readonly switchBack?: SwitchBackTriggers
}

interface InstalledRollout extends PartHooks {
  /** The rules in the database, also where this Lockstep does not follow them. */
  readonly inDatabase: RolloutInDatabase
}

/** Has only some of the keys locked. A Lockstep without the option `rollout` locks all, and runs nothing of this. */
export const rolloutPart: Part<InstalledRollout, RolloutSettings> = {
  install(setup, options) {
    const inDatabase = new RolloutInDatabase(setup.driver, setup.schema, setup.silence)
    const source = sourceOf(setup, options, inDatabase)
    if (source === undefined) {
      inDatabase.hearDuplicates((key, detail) => reportDuplicate(setup.schema, key, 'on', detail))
      return { inDatabase }
    }
    const rollout = new RolledOutCalls(setup, source, options.switchBack)
    inDatabase.hearDuplicates((key, detail) => rollout.sawDuplicate(key, detail))
    return {
      inDatabase,
      around: (plan, budget, run) => rollout.run(plan, budget, run),
      leases: { admit: (key, budget) => rollout.admit(key, budget) },
    }
  },
}

function sourceOf(
  { method }: PartSetup,
  { rollout, switchBack }: RolloutSettings,
  inDatabase: RolloutInDatabase,
): RolloutSource | undefined {
  if (rollout === undefined) {
    if (switchBack === undefined) return undefined
    throw new InvalidOptionError('`switchBack` was given without `rollout`.', {
      advice: "Add rollout: 'on' or 'database'.",
    })
  }
  if (!method.heldBySession) {
    throw new InvalidOptionError(`\`rollout\` was given together with strategy '${method.name}'.`, {
      advice: 'Observing needs advisory locks: leave one of the two out.',
    })
  }
  return rollout === 'database' ? inDatabase : rolloutInProcess(rollout)
}

/** Failures that locking may have brought about. */
const HARM: ReadonlySet<LockstepErrorCode> = new Set([
  'LOCKSTEP_LOCK_TIMEOUT',
  'LOCKSTEP_QUEUE_FULL',
  'LOCKSTEP_RETRIES_EXHAUSTED',
  'LOCKSTEP_CONNECTION_LOST',
  'LOCKSTEP_COMMIT_OUTCOME_UNKNOWN',
])

/** The calls of a Lockstep that has a rollout. */
class RolledOutCalls {
  readonly #schema: string
  readonly #source: RolloutSource
  readonly #trigger: RolloutTrigger | undefined
  readonly #watch: ShadowWatch

  constructor(
    { schema, driver, silence, closing }: PartSetup,
    source: RolloutSource,
    triggers: SwitchBackTriggers | undefined,
  ) {
    this.#schema = schema
    this.#source = source
    this.#trigger = triggers && new RolloutTrigger(schema, source, triggers)
    this.#watch = new ShadowWatch(schema, driver, silence, closing)
  }

  async run<T>(declared: TransactionPlan, budget: WaitBudget, run: (plan: TransactionPlan) => Promise<T>): Promise<T> {
    const young = declared.locks.length > 0 ? this.#source.freshen() : undefined
    if (young !== undefined) {
      await declared.source?.leave()
      await withinBudget(young, budget, declared.locks)
    }
    const { plan, observed } = this.#apply(declared)
    const trigger = this.#trigger
    if (trigger === undefined || (plan.locks.length === 0 && observed.length === 0)) return run(plan)
    const keys = plan.locks.map((lock) => lock.key)
    const { waitMs } = trigger
    const longWait: PlannedPart['longWait'] = { afterMs: waitMs, report: () => trigger.sawLongWait(keys) }
    const watched = waitMs === Infinity || keys.length === 0 ? plan : { ...plan, parts: [...plan.parts, { longWait }] }
    const startedAt = performance.now()
    try {
      const value = await run(watched)
      const tookMs = performance.now() - startedAt
      trigger.sawEnd(keys, tookMs, 'done')
      // Beside locked keys it may have waited for those.
      if (keys.length === 0) trigger.sawObserved(observed, tookMs)
      return value
    } catch (error) {
      const harmed = error instanceof LockstepError && HARM.has(error.code)
      trigger.sawEnd(keys, performance.now() - startedAt, harmed ? 'harmed' : 'failed')
      throw error
    }
  }

  /** Decides about a lease. Its key is on the same side as a lock of that name. */
  admit(key: Key, budget: WaitBudget): LeaseAdmission | Promise<LeaseAdmission> {
    const young = this.#source.freshen()
    if (young === undefined) return this.#admission(key)
    return withinBudget(young, budget, [this.#lockOn(key)]).then(() => this.#admission(key))
  }

  sawDuplicate(key: Key, detail: string): void {
    const mode = this.#modeOf(key)
    reportDuplicate(this.#schema, key, mode, detail)
    if (mode === 'on') this.#trigger?.sawDuplicate(key, detail)
  }

  #admission(key: Key): LeaseAdmission {
    const mode = this.#modeOf(key)
    const trigger = this.#trigger
    return {
      mode,
      longWaitMs: trigger?.waitMs ?? Infinity,
      sawLongWait: () => trigger?.sawLongWait([key]),
      sawEnd: (tookMs, outcome) => {
        if (mode === 'on') trigger?.sawEnd([key], tookMs, outcome)
        else if (mode === 'observe') trigger?.sawObserved([key], tookMs)
      },
    }
  }

  #lockOn(key: Key): LockRequest {
    return { key, id: lockId(this.#schema, 'lock', key), shared: false }
  }

  #modeOf(key: Key): LeaseMode {
    return decide(this.#source.ruleFor(key).mode, this.#lockOn(key))
  }

  /** The call with only some of its keys locked, some observed. */
  #apply(plan: TransactionPlan): { readonly plan: TransactionPlan; readonly observed: readonly Key[] } {
    const locks: LockRequest[] = []
    const shadows: Shadow[] = []
    for (const lock of plan.declared) {
      const decision = decide(this.#source.ruleFor(lock.key).mode, lock)
      if (decision === 'on') locks.push(lock)
      else if (decision === 'observe') shadows.push(shadowOf(this.#schema, lock))
    }
    const applied = withLocks(plan, locks)
    if (shadows.length === 0) return { plan: applied, observed: [] }
    const observing = new ObservedKeys(shadows, this.#watch)
    return { plan: { ...applied, parts: [...plan.parts, observing] }, observed: shadows.map(({ key }) => key) }
  }
}

function reportDuplicate(schema: string, key: Key, mode: LeaseMode, detail: string): void {
  if (rolloutDuplicateFound.hasSubscribers) rolloutDuplicateFound.publish({ schema, key, mode, detail })
}
