import type { System } from './desk.ts'
import { instances } from './instances/index.ts'
import { positions } from './positions/index.ts'
import { trades } from './trades/index.ts'
import { transfers } from './transfers/index.ts'
import { wallets } from './wallets/index.ts'

/** The five. */
export const SYSTEMS: readonly System[] = [trades, instances, positions, transfers, wallets]
