import { randomUUID } from 'node:crypto'
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi'
import { key } from 'pg-lockstep'
import { honoHandler } from 'pg-lockstep/http'
import { kysely } from 'pg-lockstep/kysely'
import type { Desk } from '../desk.ts'
import { notFound, ProblemError } from '../http/problem.ts'
import { retriedInTransaction } from '../http/retried.ts'
import { Amount, answers, Id, IdInPath, jsonBody, newRoutes, RetryHeaders } from '../http/routes.ts'
import {
  atCommit,
  type Auction,
  closed,
  LeaderChangedError,
  lookWhoLeads,
  placeBid,
  readAuction,
  readWallet,
} from './bid.ts'
import { openTables, type WalletTables } from './tables.ts'

const tags = ['wallets']
/** How often the lead may change between a look and its lock before the bidder is asked to come again. */
const LOOKS = 20

const WalletAnswer = z.object({ id: Id, available: z.int(), reserved: z.int() }).openapi('Wallet')
const Leading = z.object({ wallet: Id, amount: z.int() }).nullable()
const AuctionAnswer = z.object({ id: Id, reserve: z.int(), closed: z.boolean(), leading: Leading }).openapi('Auction')
const BidMade = z.object({ id: z.uuid(), auction: Id, wallet: Id, amount: Amount }).openapi('Bid')
const AuctionWithBids = AuctionAnswer.extend({ bids: z.array(BidMade.omit({ auction: true })) }).openapi(
  'AuctionWithBids',
)

const createWallet = createRoute({
  method: 'post',
  path: '/wallets',
  tags,
  summary: 'Make a wallet; if it is there already, that one',
  request: { body: jsonBody(z.object({ id: Id })) },
  responses: answers({ 201: ['Made.', WalletAnswer], 200: ['It was there already.', WalletAnswer] }),
})

const getWallet = createRoute({
  method: 'get',
  path: '/wallets/{id}',
  tags,
  summary: 'What a wallet has, and what is reserved for its leading bids',
  request: { params: IdInPath },
  responses: answers({ 200: ['The wallet.', WalletAnswer] }, [400, 404]),
})

const deposit = createRoute({
  method: 'post',
  path: '/wallets/{id}/deposits',
  tags,
  summary: 'Put money into a wallet',
  request: { params: IdInPath, headers: RetryHeaders, body: jsonBody(z.object({ amount: Amount })) },
  responses: answers({ 201: ['The wallet after it.', WalletAnswer] }, [400, 404, 409, 422, 503]),
})

const createAuction = createRoute({
  method: 'post',
  path: '/auctions',
  tags,
  summary: 'Begin an auction; if it is there already, that one',
  request: { body: jsonBody(z.object({ id: Id, reserve: Amount })) },
  responses: answers({ 201: ['Begun.', AuctionAnswer], 200: ['It was there already.', AuctionAnswer] }),
})

const getAuction = createRoute({
  method: 'get',
  path: '/auctions/{id}',
  tags,
  summary: 'An auction with its newest 500 bids',
  request: { params: IdInPath },
  responses: answers({ 200: ['The auction.', AuctionWithBids] }, [400, 404]),
})

const bid = createRoute({
  method: 'post',
  path: '/auctions/{id}/bids',
  tags,
  summary: 'Bid: the amount is reserved, and who was outbid gets theirs back',
  request: { params: IdInPath, headers: RetryHeaders, body: jsonBody(z.object({ wallet: Id, amount: Amount })) },
  responses: answers({ 201: ['The bid leads.', BidMade] }, [400, 404, 409, 422, 503]),
})

const closeAuction = createRoute({
  method: 'post',
  path: '/auctions/{id}/close',
  tags,
  summary: 'Close an auction: who leads pays',
  request: { params: IdInPath, headers: RetryHeaders },
  responses: answers({ 200: ['The auction.', AuctionAnswer] }, [400, 404, 409, 422, 503]),
})

export function walletRoutes({ pool, lockstep }: Desk): OpenAPIHono {
  const routes = newRoutes()
  const tables = openTables(pool)
  const transaction = { isolation: 'serializable' } as const
  const depositing = retriedInTransaction(lockstep, {
    transaction,
    lock: (c) => key`Wallet:${c.req.param('id') ?? ''}`,
  })

  routes.openapi(createWallet, async (c) => {
    const { id } = c.req.valid('json')
    const creating = tables.insertInto('lockstep_desk.auction_wallets').values({ id })
    const created = await creating.onConflict((oc) => oc.doNothing()).executeTakeFirst()
    return c.json(await readWallet(tables, id), created.numInsertedOrUpdatedRows === 1n ? 201 : 200)
  })

  routes.openapi(getWallet, async (c) => c.json(await readWallet(tables, c.req.valid('param').id), 200))

  routes.openapi(deposit, (c) => {
    const { id } = c.req.valid('param')
    const { amount } = c.req.valid('json')
    return honoHandler(depositing, async (_, tx) => {
      const db = kysely<WalletTables>(tx)
      const wallet = await db
        .updateTable('lockstep_desk.auction_wallets')
        .set((eb) => ({ available: eb('available', '+', amount) }))
        .where('id', '=', id)
        .returning((eb) => [
          'id',
          eb.cast<number>('available', 'float8').as('available'),
          eb.cast<number>('reserved', 'float8').as('reserved'),
        ])
        .executeTakeFirst()
      if (wallet === undefined) return notFound('wallet', id).answer(c)
      await atCommit(tx, db.insertInto('lockstep_desk.deposits').values({ id: randomUUID(), wallet: id, amount }))
      return c.json(wallet, 201)
    })(c)
  })

  routes.openapi(createAuction, async (c) => {
    const { id, reserve } = c.req.valid('json')
    const creating = tables.insertInto('lockstep_desk.auctions').values({ id, reserve })
    const created = await creating.onConflict((oc) => oc.doNothing()).executeTakeFirst()
    return c.json(shown(await readAuction(tables, id)), created.numInsertedOrUpdatedRows === 1n ? 201 : 200)
  })

  routes.openapi(getAuction, async (c) => {
    const auction = await readAuction(tables, c.req.valid('param').id)
    const newest = await tables
      .selectFrom('lockstep_desk.bids')
      .select((eb) => ['id', 'wallet', eb.cast<number>('amount', 'float8').as('amount')])
      .where('auction', '=', auction.id)
      .orderBy('place', 'desc')
      .limit(500)
      .execute()
    return c.json({ ...shown(auction), bids: newest.toReversed() }, 200)
  })

  routes.openapi(bid, (c) => {
    const wanted = { auction: c.req.valid('param').id, ...c.req.valid('json') }
    return untilNobodyElseLeads(async () => {
      const seen = await lookWhoLeads(tables, wanted)
      const bidding = retriedInTransaction(lockstep, { transaction, lock: () => seen.locks })
      return honoHandler(bidding, async (_, tx) => {
        const placed = await placeBid(tx, wanted, seen)
        return placed instanceof ProblemError ? placed.answer(c) : c.json({ ...placed, ...wanted }, 201)
      })(c)
    })
  })

  routes.openapi(closeAuction, (c) => {
    const { id } = c.req.valid('param')
    return untilNobodyElseLeads(async () => {
      const { wallet: leader } = await readAuction(tables, id)
      const locks = [key`Auction:${id}`, ...(leader === null ? [] : [key`Wallet:${leader}`])]
      const closing = retriedInTransaction(lockstep, { transaction, lock: () => locks })
      return honoHandler(closing, async (_, tx) => {
        const db = kysely<WalletTables>(tx)
        const auction = await readAuction(db, id)
        if (auction.closed) return closed(auction).answer(c)
        if (auction.wallet !== leader) throw new LeaderChangedError(`${id} is led by another wallet by now.`)
        await db.updateTable('lockstep_desk.auctions').set({ closed: true }).where('id', '=', id).execute()
        const price = auction.amount ?? 0
        if (auction.wallet !== null)
          await db
            .updateTable('lockstep_desk.auction_wallets')
            .set((eb) => ({ reserved: eb('reserved', '-', price) }))
            .where('id', '=', auction.wallet)
            .execute()
        return c.json(shown({ ...auction, closed: true }), 200)
      })(c)
    })
  })

  return routes
}

/** Reads and locks again if the lead has changed in between. */
async function untilNobodyElseLeads(attempt: () => Promise<Response>): Promise<Response> {
  for (let look = 1; ; look++) {
    try {
      return await attempt()
    } catch (error) {
      if (!(error instanceof LeaderChangedError)) throw error
      if (look === LOOKS) {
        const detail = 'Too many bid at once. Nothing was done.'
        throw new ProblemError('too-many-bids', detail, { retryAfterSeconds: 1 })
      }
    }
  }
}

function shown({ id, reserve, closed: isClosed, wallet, amount }: Auction) {
  return { id, reserve, closed: isClosed, leading: wallet === null ? null : { wallet, amount } }
}
