/**
 * Transfers: money between accounts, in books that always balance.
 *
 * **What goes wrong without.** Two transfers read the same balance, both find it enough, and one's write covers the other's: money is
 * lost, or made. With row locks taken as the request names the accounts, a transfer from A to B and one from B to A wait for each other
 * until the server ends one. And an account that all callers pay into can be changed once per commit, however many wait.
 *
 * **The pattern.** `lockRows`: all rows of a transfer are locked by one statement, in the order of their keys. Double entry: every transfer
 * has two entries that sum up to zero, and a balance is the sum of its entries, also that of the bank from which opening balances come.
 * Transfers of one account queue in the process (`accountQueue.ts`), so that a burst on it waits on one connection and not on the whole pool.
 * For hot accounts `combine`: all transfers that wait for the account are decided one after the other in memory and written with one
 * commit; one that is not covered is refused, and the others are not touched by it. The same function books one or many.
 *
 * **What is promised.** The books balance at every moment. No account but the bank's is ever below zero. A transfer that was refused has
 * left nothing. An Idempotency-Key has one transfer at most: a retry gets the first one.
 */
import type { System } from '../desk.ts'
import { findingsOf } from '../findings.ts'
import { transferRoutes } from './routes.ts'
import { BALANCES_DIFFER, BELOW_ZERO, BOOKS_DIFFER, NOT_ZERO, REQUEST_TWICE, SCHEMA } from './transfers.sql.ts'

export const transfers: System = {
  name: 'transfers',
  schema: SCHEMA,
  routes: transferRoutes,
  check: (pool) =>
    findingsOf(pool, {
      'the two entries of a transfer sum up to 0': NOT_ZERO,
      'a balance is the sum of its entries': BALANCES_DIFFER,
      'all balances together are 0': BOOKS_DIFFER,
      'no account was ever below 0': BELOW_ZERO,
      'an Idempotency-Key has one transfer at most': REQUEST_TWICE,
    }),
}
