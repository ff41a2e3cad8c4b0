/**
 * Wallets: auctions in which a bid touches two wallets, under SERIALIZABLE, without serialization failures.
 *
 * **What goes wrong without.** A bid reads who leads, checks the bidder's money, gives the outbid wallet its reservation back and reserves
 * its own. At READ COMMITTED two bids at once both find themselves the highest, and one reservation is never released. At SERIALIZABLE
 * the server refuses one of them with 40001, the more often the more people bid; and taking a lock as the first statement inside does not
 * help, because the snapshot is older than the lock.
 *
 * **The pattern.** The locks are declared and granted before the snapshot: the auction, the bidder's wallet, and the wallet that leads.
 * Which one that is, is read outside first, without a lock, and checked again under the lock. If another bidder took the lead in between, the
 * locks were the wrong ones: look again. SERIALIZABLE then only decides the cases that the locks do not cover.
 *
 * **Through an ORM.** The statements are Kysely's: `kysely<WalletTables>(tx)` in a transaction, and a Kysely on the pool elsewhere. What needs no
 * answer is compiled by Kysely and sent together with COMMIT.
 *
 * **What is promised.** Every accepted bid is higher than the one before it. What a wallet has reserved is the sum of its leading bids. No
 * money is lost or made. Who bids with an Idempotency-Key bids once.
 */
import type { System } from '../desk.ts'
import { findingsOf } from '../findings.ts'
import { walletRoutes } from './routes.ts'
import { BIDS_FALL, LEADER_DIFFERS, MONEY_DIFFERS, RESERVED_DIFFERS, SCHEMA } from './wallets.sql.ts'

export const wallets: System = {
  name: 'wallets',
  schema: SCHEMA,
  routes: walletRoutes,
  check: (pool) =>
    findingsOf(pool, {
      'what is reserved is the sum of the leading bids': RESERVED_DIFFERS,
      'each bid is higher than the one before it': BIDS_FALL,
      'the last bid leads': LEADER_DIFFERS,
      'no money is lost or made': MONEY_DIFFERS,
    }),
}
