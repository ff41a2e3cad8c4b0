import type { CardName, CardState, FaultName } from './state.ts'

/** What is pressed. */
export type Press =
  | { readonly card: CardName; readonly hammer: number; readonly seconds?: number }
  /** Where nothing runs, 100 callers are started first, for so long. `freezeMs` is how long a freeze lasts; default 5,000. */
  | { readonly card: CardName; readonly fault: FaultName; readonly seconds?: number; readonly freezeMs?: number }

export type ToStage = { readonly press: Press } | { readonly close: true }

export type FromStage = { readonly ready: true } | { readonly state: CardState }
