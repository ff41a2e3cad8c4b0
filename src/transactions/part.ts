import type { Closing, Key, LockMethod, WaitBudget } from '../locks/index.ts'
import type { Driver, SilenceWatch } from '../postgres/index.ts'
import type { TransactionPlan } from './options.ts'
import type { Planner } from './plannedPart.ts'

/** An optional feature of transactions, in a folder of its own. One line in src/parts.ts registers it. */
export interface Part<Installed extends PartHooks = PartHooks, Options = unknown> {
  /** Methods of `tx`. They are functions that use `this`, an `OpenTransaction`. */
  readonly methods?: object
  /** Called once for each Lockstep, with the options of its constructor. */
  install?(setup: PartSetup, options: Options): Installed
}

/** What a Lockstep has when it installs its parts. */
export interface PartSetup {
  readonly driver: Driver
  readonly schema: string
  readonly quotedSchema: string
  readonly method: LockMethod
  readonly silence: SilenceWatch
  readonly closing: Closing
}

/** What a part does in a Lockstep. One without a hook costs a transaction nothing. */
export interface PartHooks {
  readonly planner?: Planner | undefined
  /** Runs all attempts of a call by calling `run`, with the same plan or another. */
  readonly around?: Around | undefined
  /** The error that the caller gets in place of one that failed a statement or a call. The same where it has nothing to say of it. */
  readonly explain?: Explain | undefined
  /** Decides how each lease of a caller is held. At most one part has it. */
  readonly leases?: LeaseAdmitter | undefined
  /** What it still does after the last call, when the Lockstep closes. */
  settled?(): Promise<void>
}

/** How a key is treated: `on`: exclusive. `observe`: not, but what would have waited is counted. `off`: not at all. */
export type LeaseMode = 'on' | 'observe' | 'off'

/** Decides how leases are held. */
export interface LeaseAdmitter {
  admit(key: Key, budget: WaitBudget): LeaseAdmission | Promise<LeaseAdmission>
}

/** How one lease is held, and what the part wants to hear about it. */
export interface LeaseAdmission {
  readonly mode: LeaseMode
  /** A wait that lasts longer is reported once, while it continues. Infinity: none is. */
  readonly longWaitMs: number
  sawLongWait(): void
  /** The lease has ended, or was not granted, this long after the call. `harmed`: by an error that holding leases can bring about. */
  sawEnd(tookMs: number, outcome: 'done' | 'failed' | 'harmed'): void
}

export type Around = <T>(
  plan: TransactionPlan,
  budget: WaitBudget,
  run: (plan: TransactionPlan) => Promise<T>,
) => Promise<T>

export type Explain = (error: unknown) => unknown

/** The parts of one Lockstep. */
export interface InstalledParts {
  readonly planners: readonly Planner[]
  /** Of all parts that have one, the first outermost. Undefined where none has. */
  readonly around: Around | undefined
  /** Of all parts that have one. */
  readonly explain: Explain
  /** Undefined where every lease is held. */
  readonly leases: LeaseAdmitter | undefined
  /** Comes back when no part has anything left to do. */
  settled(): Promise<unknown>
  /** What `install` of this part returned. */
  of<Installed extends PartHooks>(part: Part<Installed, never>): Installed
}
