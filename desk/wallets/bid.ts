import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { key, type Key, type Transaction } from 'pg-lockstep'
import { notFound, ProblemError } from '../http/problem.ts'
import { GIVE_BACK, LEAD, NOTE_BID, READ_AUCTION, READ_WALLET, RESERVE } from './wallets.sql.ts'

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

/** Between the look and the lock somebody else took the lead: other wallets have to be locked. */
export class LeaderChangedError extends Error {
  override readonly name = 'LeaderChangedError'
}

/** Anything that runs a statement: a pool, or a transaction. */
interface Queries {
  query(text: string, values: unknown[]): Promise<{ rows: unknown[] }>
}

export async function readAuction(queries: Queries, id: string): Promise<Auction> {
  const auction = (await queries.query(READ_AUCTION, [id])).rows[0] as Auction | undefined
  if (auction === undefined) throw notFound('auction', id)
  return auction
}

export async function readWallet(queries: Queries, id: string): Promise<Wallet> {
  const wallet = (await queries.query(READ_WALLET, [id])).rows[0] as Wallet | undefined
  if (wallet === undefined) throw notFound('wallet', id)
  return wallet
}

/** What a bid has to lock: the auction, the bidder, and whoever leads, as it seems without a lock. */
export interface Wanted {
  readonly locks: readonly Key[]
  readonly leader: string | null
}

export async function lookWhoLeads(
  pool: pg.Pool,
  { auction, wallet }: Pick<Bid, 'auction' | 'wallet'>,
): Promise<Wanted> {
  const { wallet: leader } = await readAuction(pool, auction)
  const wallets = new Set(leader === null ? [wallet] : [wallet, leader])
  return { leader, locks: [key`Auction:${auction}`, ...[...wallets].map((id) => key`Wallet:${id}`)] }
}

/** Bids, in a transaction that holds the locks of `wanted`. Nothing is written where it gives a problem. */
export async function placeBid(
  tx: Queries & Pick<Transaction, 'queryAtCommit'>,
  bid: Bid,
  wanted: Wanted,
): Promise<{ id: string } | ProblemError> {
  const auction = await readAuction(tx, bid.auction)
  if (auction.wallet !== wanted.leader) throw new LeaderChangedError(`${bid.auction} is led by another wallet by now.`)
  if (auction.closed) return closed(auction)
  if (bid.amount < auction.reserve || bid.amount <= (auction.amount ?? 0)) return tooLow(auction, bid.amount)
  const wallet = await readWallet(tx, bid.wallet)
  // What it has reserved for its own bid that it now raises comes back first.
  const free = wallet.available + (auction.wallet === bid.wallet ? (auction.amount ?? 0) : 0)
  if (free < bid.amount) return insufficientFunds(wallet, free, bid.amount)
  const id = randomUUID()
  if (auction.wallet !== null) await tx.query(GIVE_BACK, [auction.wallet, auction.amount])
  await tx.query(RESERVE, [bid.wallet, bid.amount])
  await tx.queryAtCommit(LEAD, [bid.auction, bid.wallet, bid.amount])
  await tx.queryAtCommit(NOTE_BID, [id, bid.auction, bid.wallet, bid.amount])
  return { id }
}

export function closed({ id, amount }: Auction): ProblemError {
  return new ProblemError(409, 'auction-closed', 'The auction is closed', `The auction ${id} takes no bids any more.`, {
    members: { leading: amount },
  })
}

function tooLow({ id, reserve, amount: leading }: Auction, amount: number): ProblemError {
  const detail =
    leading === null
      ? `The first bid in ${id} must be at least ${reserve}; this one is ${amount}.`
      : `A bid in ${id} must be above ${leading}; this one is ${amount}.`
  return new ProblemError(409, 'bid-too-low', 'The bid is not high enough', detail, { members: { leading, reserve } })
}

function insufficientFunds({ id }: Wallet, available: number, amount: number): ProblemError {
  const detail = `The wallet ${id} has ${available} to spend, which is less than ${amount}.`
  return new ProblemError(422, 'insufficient-funds', 'Not enough money', detail, { members: { available } })
}
