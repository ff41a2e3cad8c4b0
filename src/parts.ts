import { guardsPart } from './guards/index.ts'
import type { LockstepOptions } from './lockstepOptions.ts'
import { oncePart } from './once/index.ts'
import { outboxPart } from './outbox/index.ts'
import { rolloutPart } from './rollout/index.ts'
import { PartRegistry } from './transactions/index.ts'

/** The optional features of transactions, one line each. What a part is: src/transactions/index.ts. */
export const PARTS = new PartRegistry<LockstepOptions>([
  outboxPart, // tx.enqueue() and the option `streams`
  oncePart, // tx.once()
  rolloutPart, // keys that are observed, or left alone
  guardsPart, // the error of a write that a guard refused
])
