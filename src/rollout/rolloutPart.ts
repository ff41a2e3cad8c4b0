import { InvalidOptionError, LockstepError, type LockstepErrorCode } from '../errors.ts'
import type { LockRequest, WaitBudget } from '../locks/index.ts'
import {
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
    if (source === undefined) return { inDatabase }
    const rollout = new RolledOutCalls(setup, source, options.switchBack)
    return { inDatabase, around: (plan, budget, run) => rollout.run(plan, budget, run) }
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
    const plan = this.#apply(declared)
    const trigger = this.#trigger
    if (trigger === undefined || plan.locks.length === 0) return run(plan)
    const keys = plan.locks.map((lock) => lock.key)
    const { waitMs } = trigger
    const longWait: PlannedPart['longWait'] = { afterMs: waitMs, report: () => trigger.sawLongWait(keys) }
    const watched = waitMs === Infinity ? plan : { ...plan, parts: [...plan.parts, { longWait }] }
    try {
      const value = await run(watched)
      trigger.sawEnd(keys, false)
      return value
    } catch (error) {
      trigger.sawEnd(keys, error instanceof LockstepError && HARM.has(error.code))
      throw error
    }
  }

  /** The call with only some of its keys locked, some observed. */
  #apply(plan: TransactionPlan): TransactionPlan {
    const locks: LockRequest[] = []
    const shadows: Shadow[] = []
    for (const lock of plan.declared) {
      const decision = decide(this.#source.ruleFor(lock.key).mode, lock)
      if (decision === 'on') locks.push(lock)
      else if (decision === 'observe') shadows.push(shadowOf(this.#schema, lock))
    }
    const applied = withLocks(plan, locks)
    return shadows.length === 0
      ? applied
      : { ...applied, parts: [...plan.parts, new ObservedKeys(shadows, this.#watch)] }
  }
}
