/** One thing to try in a shell. */
export interface Example {
  readonly title: string
  readonly lines: readonly string[]
}

/** One for each system. They work on an empty database, and again. */
export function curls(origin: string): Example[] {
  const post = (path: string, body: object): string =>
    `curl -s ${origin}${path} -H 'content-type: application/json' -d '${JSON.stringify(body)}'`
  return [
    {
      title: 'Trades: the row and its event in one transaction',
      lines: [post('/portfolios/growth/trades', { symbol: 'ACME', side: 'buy', quantity: 10, price: 1250 })],
    },
    {
      title: 'Instances: one request at a time takes a step; the second of two gets 409',
      lines: [post('/instances', { id: 'order-1' }), `curl -s -X POST ${origin}/instances/order-1/process/next`],
    },
    {
      title: 'Positions: created once, with a stop-loss, at an exchange that takes its time',
      lines: [post('/positions', { symbol: 'BTC', exchange: 'north', side: 'long', quantity: 1 })],
    },
    {
      title: 'Transfers: books that balance',
      lines: [
        post('/accounts', { id: 'alice', openingBalance: 100_000 }),
        post('/accounts', { id: 'bob', openingBalance: 0 }),
        `${post('/transfers', { from: 'alice', to: 'bob', amount: 100 })} -H "Idempotency-Key: $(date +%s%N)"`,
      ],
    },
    {
      title: 'Wallets: a bid reserves its amount',
      lines: [
        post('/wallets', { id: 'carol' }),
        post('/wallets/carol/deposits', { amount: 5000 }),
        post('/auctions', { id: 'painting', reserve: 1000 }),
        post('/auctions/painting/bids', { wallet: 'carol', amount: 1000 }),
      ],
    },
  ]
}
