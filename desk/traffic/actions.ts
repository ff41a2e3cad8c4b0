import { EXCHANGES } from '../exchange/index.ts'
import type { Client } from './client.ts'

type Action = (client: Client, turn: number) => Promise<void>

const PORTFOLIOS = ['growth', 'income', 'pension', 'cash']
const SYMBOLS = ['ACME', 'GLOBEX', 'INITECH']
const CUSTOMERS = ['customer-1', 'customer-2', 'customer-3', 'customer-4', 'customer-5']
const SHOP = 'shop'
const BIDDERS = ['bidder-1', 'bidder-2', 'bidder-3', 'bidder-4']
const MARKETS = ['ETH', 'SOL', 'ADA']

/** In the names of everything that this run of the traffic begins: those of earlier runs are still in the database. */
const life = Date.now().toString(36)

/** How many actions an instance and an auction are met by, before the next one is begun. */
const TURNS_A_THING = 60

function pick<T>(list: readonly T[]): T {
  return list[Math.floor(Math.random() * list.length)] as T
}

function upTo(most: number): number {
  return 1 + Math.floor(Math.random() * most)
}

/** Who is there before anything can happen; false where the desk does not answer yet. */
export async function prepareTraffic(client: Client): Promise<boolean> {
  const answers = await Promise.all([
    client.post('/accounts', { id: SHOP, hot: true }),
    ...CUSTOMERS.map((id) => client.post('/accounts', { id, openingBalance: 1_000_000_000 })),
    ...BIDDERS.map((id) => client.post('/wallets', { id })),
  ])
  return answers.every((status) => status === 200 || status === 201)
}

const trade: Action = async (client) => {
  const order = {
    symbol: pick(SYMBOLS),
    side: pick(['buy', 'buy', 'sell']),
    quantity: upTo(20),
    price: 1000 + upTo(500),
  }
  await client.post(`/portfolios/${pick(PORTFOLIOS)}/trades`, order)
}

/** Several at once: they share a commit. */
const payTheShop: Action = async (client) => {
  await Promise.all(
    CUSTOMERS.slice(0, upTo(3)).map((from) => client.post('/transfers', { from, to: SHOP, amount: upTo(5000) })),
  )
}

const payEachOther: Action = async (client) => {
  const from = pick(CUSTOMERS)
  await client.post('/transfers', { from, to: pick(CUSTOMERS.filter((id) => id !== from)), amount: upTo(5000) })
}

/** Two clicks: one of them receives 409. */
const clickTwice: Action = async (client, turn) => {
  const id = `order-${life}-${Math.floor(turn / TURNS_A_THING)}`
  await client.post('/instances', { id })
  const next = `/instances/${id}/process/next`
  await Promise.all([client.post(next), client.post(next)])
}

const bid: Action = async (client, turn) => {
  const lot = Math.floor(turn / TURNS_A_THING)
  const id = `lot-${life}-${lot}`
  if ((await client.post('/auctions', { id, reserve: 100 })) === 201 && lot > 0)
    await client.post(`/auctions/lot-${life}-${lot - 1}/close`)
  const wallet = pick(BIDDERS)
  await client.post(`/wallets/${wallet}/deposits`, { amount: 500 })
  // Higher from turn to turn, and now and then not high enough.
  await client.post(`/auctions/${id}/bids`, { wallet, amount: 100 + (turn % TURNS_A_THING) * 5 + upTo(10) })
}

/** Once a minute, about: it takes nearly three seconds to open. */
const openPosition: Action = async (client, turn) => {
  if (turn % 48 >= 8) return
  const [symbol, exchange] = [pick(MARKETS), pick(EXCHANGES)]
  const status = await client.post('/positions', { symbol, exchange, side: pick(['long', 'short']), quantity: upTo(5) })
  if (status === 200) await client.post(`/positions/${symbol}/close?exchange=${exchange}`)
}

/** In this order, again and again. */
export const ACTIONS: readonly Action[] = [trade, payTheShop, clickTwice, trade, payEachOther, bid, openPosition, trade]
