import { consumers } from './consumers.ts'
import { guards } from './guards.sql.ts'
import { leases } from './leases.sql.ts'
import { locksAndTransactions } from './locksAndTransactions.sql.ts'
import type { Mutant } from './mutant.ts'
import { outbox } from './outbox.sql.ts'
import { roles } from './roles.sql.ts'
import { rollout } from './rollout.sql.ts'

/** Fewer would not break every protocol. */
export const LEAST_MUTANTS = 14

/** All of them, by the modules that they break. */
export const mutants: readonly Mutant[] = [
  ...locksAndTransactions,
  ...guards,
  ...leases,
  ...outbox,
  ...consumers,
  ...roles,
  ...rollout,
]
