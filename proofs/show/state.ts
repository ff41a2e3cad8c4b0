/** What the page shows of the race. Types only: the page is built from them, and the stage fills them. */

export const CARDS = ['trades', 'instances', 'positions', 'transfers', 'wallets'] as const
export type CardName = (typeof CARDS)[number]

export const FAULTS = ['kill', 'freeze', 'cut', 'crash'] as const
export type FaultName = (typeof FAULTS)[number]

/** How many callers Hammer can start at once. */
export const CALLERS = [10, 100, 1000] as const

export type Phase =
  /** Nothing runs. What the last run found is shown. */
  | 'idle'
  /** The server and the workers are being started. */
  | 'starting'
  | 'running'
  /** No new operations. Those in flight end, and all checkers look. */
  | 'settling'

/** An invariant that was broken, how often, and one example. */
export interface Broken {
  readonly invariant: string
  readonly count: number
  readonly example: string
}

/** One arrival at the broker. `overtook`: it came before the one that was next. `late`: it was overtaken. `again`: a duplicate. */
export interface Arrival {
  readonly number: number
  readonly mark: 'next' | 'overtook' | 'late' | 'again'
}

/** One holder of an instance, in milliseconds since the run began. `clash`: another was sure of the same instance at the same time. */
export interface Holding {
  readonly by: string
  readonly fromMs: number
  readonly toMs: number
  /** Instances follow one another: neighbors have different shades. */
  readonly shade: 0 | 1
  readonly clash: boolean
}

export interface Account {
  readonly name: string
  readonly balance: number
  /** The lowest that was ever read. */
  readonly lowest: number
}

export type Picture =
  | {
      readonly kind: 'lanes'
      readonly lanes: readonly { readonly name: string; readonly arrivals: readonly Arrival[] }[]
    }
  | {
      readonly kind: 'holders'
      readonly nowMs: number
      readonly tracks: readonly { readonly name: string; readonly holdings: readonly Holding[] }[]
    }
  /** How many orders the exchange took for each signal. */
  | { readonly kind: 'signals'; readonly signals: readonly { readonly name: string; readonly orders: number }[] }
  /** The sum of all balances, as it was read over time, and what it must be. */
  | {
      readonly kind: 'total'
      readonly must: number
      readonly totals: readonly number[]
      readonly accounts: readonly Account[]
      readonly deadlocks: number
    }
  | { readonly kind: 'wallets'; readonly wallets: readonly Account[] }

export interface SideState {
  readonly done: number
  /** Refused on purpose, such as by a holder, or failed by a fault. No violation. */
  readonly notDone: number
  readonly violations: number
  readonly perSecond: number
  readonly p99Ms: number
  readonly broken: readonly Broken[]
  readonly picture: Picture
}

export interface TimelineEvent {
  readonly id: number
  /** Since the run began. */
  readonly atMs: number
  readonly kind: 'hammer' | FaultName | 'violation' | 'end' | 'trouble'
  readonly text: string
}

export interface CardState {
  readonly card: CardName
  readonly phase: Phase
  /** Of the run that is shown; 0 if there was none. */
  readonly callers: number
  readonly elapsedMs: number
  readonly ofMs: number
  /** Whether all checkers have looked at the run that is shown, when all was quiet. */
  readonly judged: boolean
  /** Faults that are at work. */
  readonly striking: readonly FaultName[]
  readonly naive: SideState
  readonly lockstep: SideState
  readonly timeline: readonly TimelineEvent[]
}

/** What a card is about, and the code that runs. */
export interface CardText {
  readonly card: CardName
  readonly title: string
  readonly promise: string
  /** What is red in the picture. */
  readonly red: string
  readonly naive: string
  readonly lockstep: string
  readonly code: Readonly<Record<'naive' | 'lockstep', { readonly files: readonly string[]; readonly text: string }>>
  readonly checkers: readonly { readonly name: string; readonly promise: string }[]
}

/** What a viewer receives: everything at first, then a card whenever it has changed. */
export type Frame = { readonly cards: readonly CardState[] }
