import { type Generated, Kysely, PostgresDialect } from 'kysely'
import type pg from 'pg'

/** The tables of wallets.sql.ts, as Kysely knows them. Amounts are bigint: they are read as float8, which arrives as a number. */
export interface WalletTables {
  'lockstep_desk.auction_wallets': { id: string; available: Generated<number>; reserved: Generated<number> }
  'lockstep_desk.deposits': { id: string; wallet: string; amount: number }
  'lockstep_desk.auctions': {
    id: string
    reserve: number
    closed: Generated<boolean>
    leading_wallet: string | null
    leading_amount: number | null
  }
  'lockstep_desk.bids': { place: Generated<number>; id: string; auction: string; wallet: string; amount: number }
}

/** For what needs no lock. In a transaction of Lockstep it is `kysely<WalletTables>(tx)`. */
export function openTables(pool: pg.Pool): Kysely<WalletTables> {
  return new Kysely({ dialect: new PostgresDialect({ pool }) })
}
