import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { type Goal, goal } from '../../../tools/judge/report.ts'
import { startTransferServers, type Transfer, type TransferServer } from '../http/transferServers.ts'
import type { Lab } from '../lab.ts'
import type { Edge } from './edge.ts'
import { BOOK, CREATE, MOVE, NAIVE_KEY, reset, TAKE_TIME, TOTAL, TRANSFERS } from './httpBurst.sql.ts'

interface Size {
  readonly requests: number
  readonly poolSize: number
  readonly servers: readonly TransferServer['name'][]
}

const FULL: Size = { requests: 200, poolSize: 10, servers: ['express', 'fastify', 'hono', 'fetch'] }
const SCALED_DOWN: Size = { requests: 30, poolSize: 2, servers: ['express', 'fetch'] }
/** A burst takes this long times requests over connections: longer than a second. */
const TRANSFER_SECONDS = 0.1
const ACCOUNTS = 20
/** How long a naive program waits for a connection, and Lockstep did. */
const SHORT_WAIT_MS = 1000

interface Sent {
  readonly status: number
  readonly replayed: boolean
  readonly body: string
}

/**
 * Far more transfers at once than the pool has connections, each with an Idempotency-Key of its own. All are made, exactly once, and a
 * repetition gets the first answer's bytes. The controls show that the burst is one: with a wait of a second some are refused, and a naive
 * middleware that holds a connection for the key while its handler waits for another one fails.
 */
export const httpBurst: Edge = {
  name: 'http-burst',
  async run({ lab, driver, scaledDown, reportProgress }) {
    const size = scaledDown ? SCALED_DOWN : FULL
    await lab.admin.query(CREATE)
    const client = lab.client(driver, lab.url('direct'), { poolSize: size.poolSize })
    const { lockstep } = client
    const goals: Goal[] = []
    try {
      await withServers(startTransferServers(lockstep, book), async (servers) => {
        for (const server of servers.filter(({ name }) => size.servers.includes(name))) {
          reportProgress(`edges: http-burst, ${server.name}`)
          goals.push(...(await attack(lab, server, size)))
        }
      })
      reportProgress('edges: http-burst, the controls')
      const shortly = startTransferServers(lockstep, book, { waitMs: SHORT_WAIT_MS })
      const refused = await withServers(shortly, async ([server]) => {
        const sent = await burst(server as TransferServer, await newTransfers(lab, size))
        return sent.filter(({ status }) => status === 503).length
      })
      goals.push(goal('control, refused with a wait of 1 s', refused, '>=', 1))
      goals.push(goal('control, failed with a second connection', await naiveFailures(lab, size), '>=', 1))
    } finally {
      await client.close()
    }
    return goals
  },
}

async function attack(lab: Lab, server: TransferServer, size: Size): Promise<Goal[]> {
  const transfers = await newTransfers(lab, size)
  const first = await burst(server, transfers)
  const again = await burst(server, transfers)
  const { rows } = await lab.admin.query<{ request: string; times: number }>(TRANSFERS)
  const times = new Map(rows.map((row) => [row.request, row.times]))
  const { rows: totals } = await lab.admin.query<{ total: number }>(TOTAL)
  const count = (fits: (at: number) => boolean): number => transfers.filter((_transfer, at) => fits(at)).length
  const named = (name: string): string => `${server.name}, ${name}`
  return [
    goal(
      named('not answered with 201'),
      count((at) => first[at]?.status !== 201),
      '=',
      0,
    ),
    goal(
      named('not made exactly once'),
      count((at) => times.get(transfers[at]?.request ?? '') !== 1),
      '=',
      0,
    ),
    goal(
      named('repetitions with another answer'),
      count((at) => again[at]?.replayed !== true || again[at]?.status !== 201 || again[at]?.body !== first[at]?.body),
      '=',
      0,
    ),
    goal(named('money made or lost'), Math.abs((totals[0]?.total ?? 0) - 1000 * ACCOUNTS), '=', 0),
  ]
}

async function newTransfers(lab: Lab, { requests }: Size): Promise<Transfer[]> {
  await lab.admin.query(reset(ACCOUNTS))
  return Array.from({ length: requests }, (_, number) => ({
    request: randomUUID(),
    from: 1 + (number % ACCOUNTS),
    to: 1 + ((number + 7) % ACCOUNTS),
  }))
}

/** All at once. A request without an answer has the status 0. */
function burst({ url }: TransferServer, transfers: readonly Transfer[]): Promise<Sent[]> {
  return Promise.all(
    transfers.map(async (transfer) => {
      const headers = { 'content-type': 'application/json', 'idempotency-key': transfer.request }
      try {
        const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(transfer) })
        const replayed = response.headers.get('idempotency-replayed') === 'true'
        return { status: response.status, replayed, body: await response.text() }
      } catch {
        return { status: 0, replayed: false, body: '' }
      }
    }),
  )
}

/** What a transfer needs of a transaction, be it Lockstep's or a naive one. */
interface Queries {
  query(text: string, values: unknown[]): Promise<unknown>
}

/** In ascending order of the accounts: transfers wait for each other's rows in no circle. */
async function book(tx: Queries, { request, from, to }: Transfer): Promise<object> {
  await tx.query(TAKE_TIME, [TRANSFER_SECONDS])
  const moves = [
    [from, -1],
    [to, 1],
  ] as const
  for (const [account, amount] of moves.toSorted(([one], [other]) => one - other))
    await tx.query(MOVE, [amount, account])
  await tx.query(BOOK, [request])
  return { request, receipt: randomUUID() }
}

/** As it is often written: the key in a transaction of its own, held open until the handler has ended on a connection of its own. */
async function naiveFailures(lab: Lab, size: Size): Promise<number> {
  const transfers = await newTransfers(lab, size)
  const pool = new pg.Pool({
    connectionString: lab.url('direct'),
    max: size.poolSize,
    connectionTimeoutMillis: SHORT_WAIT_MS,
  })
  const inTransaction = async (work: (client: pg.PoolClient) => Promise<unknown>): Promise<void> => {
    const client = await pool.connect()
    try {
      await client.query('BEGIN')
      await work(client)
      await client.query('COMMIT')
    } catch (error) {
      await client.query('ROLLBACK')
      throw error
    } finally {
      client.release()
    }
  }
  const outcomes = await Promise.allSettled(
    transfers.map((transfer) =>
      inTransaction(async (keeper) => {
        await keeper.query(NAIVE_KEY, [transfer.request])
        await inTransaction((client) => book(client, transfer))
      }),
    ),
  )
  await pool.end()
  return outcomes.filter(({ status }) => status === 'rejected').length
}

async function withServers<T>(
  starting: Promise<TransferServer[]>,
  use: (servers: readonly TransferServer[]) => Promise<T>,
): Promise<T> {
  const servers = await starting
  try {
    return await use(servers)
  } finally {
    await Promise.all(servers.map((server) => server.close()))
  }
}
