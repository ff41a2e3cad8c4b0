import { bids } from './bids.ts'
import { combine } from './combine.ts'
import { instance } from './instance.ts'
import { leader } from './leader.ts'
import { lease } from './lease.ts'
import { outbox } from './outbox.ts'
import { position } from './position.ts'
import type { Scenario } from './scenario.ts'
import { semaphore } from './semaphore.ts'
import { transfers } from './transfers.ts'
import { wallet } from './wallet.ts'

/** All scenarios, as `--scenario` names them. */
export const scenarios: readonly Scenario[] = [
  wallet,
  transfers,
  bids,
  position,
  instance,
  outbox,
  lease,
  combine,
  semaphore,
  leader,
]
