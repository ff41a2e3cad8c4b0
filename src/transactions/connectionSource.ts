import type { LockSet, WaitBudget } from '../locks/index.ts'
import type { Connection, Driver } from '../postgres/index.ts'

/** Where the attempts of a call get their connections, in place of the pool. Its session may hold the locks of the call already. */
export interface ConnectionSource {
  /** Whether the next connection has the locks. Then no other session is waited for. */
  readonly holds: boolean
  /** Whether it has had the locks for so long that the next attempt begins without them. */
  readonly overdue: boolean
  connect(driver: Driver, budget: WaitBudget, locks: LockSet): Promise<Connection>
  /** Releases the locks. Called before the call waits for anything: another caller may wait for these. Never rejects. */
  leave(): Promise<void>
}
