import { randomUUID } from 'node:crypto'
import type { Compilable, Kysely } from 'kysely'
import { key, type Key, type Transaction } from 'pg-lockstep'
import { kysely, type OrmTransaction } from 'pg-lockstep/kysely'
import { notFound, ProblemError } from '../http/problem.ts'
import type { WalletTables } from './tables.ts'

export interface Auction {
  readonly id: string
  readonly reserve: number
  readonly closed: boolean
  /** Who leads, and with how much. */
  readonly wallet: string | null
  readonly amount: number | null
}

export interface Wallet {
  readonly id: string
  readonly available: number
  readonly reserved: number
}

export interface Bid {
  readonly auction: string
  readonly wallet: string
  readonly amount: number
}

/** Between the look and the lock another bidder took the lead: other wallets have to be locked. */
export class LeaderChangedError extends Error {
  override readonly name = 'LeaderChangedError'
}

export async function readAuction(db: Kysely<WalletTables>, id: string): Promise<Auction> {
  const auction = await db
    .selectFrom('lockstep_desk.auctions')
    .select((eb) => [
      'id',
      'closed',
      'leading_wallet as wallet',
      eb.cast<number>('reserve', 'float8').as('reserve'),
      eb.cast<number | null>('leading_amount', 'float8').as('amount'),
    ])
    .where('id', '=', id)
    .executeTakeFirst()
  if (auction === undefined) throw notFound('auction', id)
  return auction
}

export async function readWallet(db: Kysely<WalletTables>, id: string): Promise<Wallet> {
  const wallet = await db
    .selectFrom('lockstep_desk.auction_wallets')
    .select((eb) => [
      'id',
      eb.cast<number>('available', 'float8').as('available'),
      eb.cast<number>('reserved', 'float8').as('reserved'),
    ])
    .where('id', '=', id)
    .executeTakeFirst()
  if (wallet === undefined) throw notFound('wallet', id)
  return wallet
}

/** Moves an amount from what a wallet can spend to what it has reserved; a negative one comes back. */
async function moveToReserved(db: Kysely<WalletTables>, wallet: string, amount: number): Promise<void> {
  await db
    .updateTable('lockstep_desk.auction_wallets')
    .set((eb) => ({ available: eb('available', '-', amount), reserved: eb('reserved', '+', amount) }))
    .where('id', '=', wallet)
    .execute()
}

/** What a bid has to lock: the auction, the bidder, and the leading bidder, as read without a lock. */
export interface Wanted {
  readonly locks: readonly Key[]
  readonly leader: string | null
}

export async function lookWhoLeads(
  db: Kysely<WalletTables>,
  { auction, wallet }: Pick<Bid, 'auction' | 'wallet'>,
): Promise<Wanted> {
  const { wallet: leader } = await readAuction(db, auction)
  const wallets = new Set(leader === null ? [wallet] : [wallet, leader])
  return { leader, locks: [key`Auction:${auction}`, ...[...wallets].map((id) => key`Wallet:${id}`)] }
}

/** Bids, in a transaction that holds the locks of `wanted`. Nothing is written where it gives a problem. */
export async function placeBid(
  tx: OrmTransaction & Pick<Transaction, 'queryAtCommit'>,
  bid: Bid,
  wanted: Wanted,
): Promise<{ id: string } | ProblemError> {
  const db = kysely<WalletTables>(tx)
  const auction = await readAuction(db, bid.auction)
  if (auction.wallet !== wanted.leader) throw new LeaderChangedError(`${bid.auction} is led by another wallet by now.`)
  if (auction.closed) return closed(auction)
  if (bid.amount < auction.reserve || bid.amount <= (auction.amount ?? 0)) return tooLow(auction, bid.amount)
  const wallet = await readWallet(db, bid.wallet)
  // What it has reserved for its own bid that it now raises comes back first.
  const free = wallet.available + (auction.wallet === bid.wallet ? (auction.amount ?? 0) : 0)
  if (free < bid.amount) return insufficientFunds(wallet, free, bid.amount)
  const id = randomUUID()
  if (auction.wallet !== null) await moveToReserved(db, auction.wallet, -(auction.amount ?? 0))
  await moveToReserved(db, bid.wallet, bid.amount)
  const lead = db
    .updateTable('lockstep_desk.auctions')
    .set({ leading_wallet: bid.wallet, leading_amount: bid.amount })
    .where('id', '=', bid.auction)
  await atCommit(tx, lead)
  await atCommit(tx, db.insertInto('lockstep_desk.bids').values({ id, ...bid }))
  return { id }
}

/** Has a query of Kysely sent together with COMMIT: its answer is not wanted, and the locks are held for a round trip less. */
export async function atCommit(tx: Pick<Transaction, 'queryAtCommit'>, query: Compilable): Promise<void> {
  const { sql, parameters } = query.compile()
  await tx.queryAtCommit(sql, parameters)
}

export function closed({ id, amount }: Auction): ProblemError {
  return new ProblemError('auction-closed', `The auction ${id} takes no bids any more.`, {
    members: { leading: amount },
  })
}

function tooLow({ id, reserve, amount: leading }: Auction, amount: number): ProblemError {
  const detail =
    leading === null
      ? `The first bid in ${id} must be at least ${reserve}; this one is ${amount}.`
      : `A bid in ${id} must be above ${leading}; this one is ${amount}.`
  return new ProblemError('bid-too-low', detail, { members: { leading, reserve } })
}

function insufficientFunds({ id }: Wallet, available: number, amount: number): ProblemError {
  const detail = `The wallet ${id} has ${available} to spend, which is less than ${amount}.`
  return new ProblemError('insufficient-funds', detail, { members: { available } })
}
