import { randomUUID } from 'node:crypto'
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi'
import { key } from 'pg-lockstep'
import { honoHandler } from 'pg-lockstep/http'
import type { Desk } from '../desk.ts'
import { notFound, ProblemError } from '../http/problem.ts'
import { retriedInTransaction } from '../http/retried.ts'
import { Amount, answers, Id, IdInPath, jsonBody, newRoutes, RetryHeaders } from '../http/routes.ts'
import { AccountQueue } from './accountQueue.ts'
import { book, keyReused, type Transfer } from './book.ts'
import { BANK, CREATE_ACCOUNT, HOT_ONES, READ_ACCOUNT, STATEMENT } from './transfers.sql.ts'

const tags = ['transfers']
const STATEMENT_ENTRIES = 500

const Account = z.object({ id: Id, hot: z.boolean(), balance: z.int() }).openapi('Account')
const AccountToOpen = z.object({
  id: Id,
  openingBalance: z.int().nonnegative().max(1_000_000_000_000).default(0).openapi({ example: 10_000 }),
  hot: z.boolean().default(false).openapi({ description: 'Many clients pay into it: many transfers share a commit.' }),
})
const TransferToMake = z
  .object({ from: Id, to: Id.openapi({ example: 'bob' }), amount: Amount })
  .refine(({ from, to }) => from !== to, { path: ['to'], error: 'must be another account' })
  .refine(({ from, to }) => from !== BANK && to !== BANK, 'the bank only opens accounts')
const TransferMade = z.object({ id: z.uuid(), from: Id, to: Id, amount: Amount }).openapi('Transfer')
const Entry = z
  .object({ transfer: z.uuid(), counterparty: Id, amount: z.int(), balance: z.int(), at: z.string() })
  .openapi('Entry')

const openAccount = createRoute({
  method: 'post',
  path: '/accounts',
  tags,
  summary: 'Open an account; if it is there already, that one',
  request: { body: jsonBody(AccountToOpen) },
  responses: answers({ 201: ['Opened.', Account], 200: ['It was there already.', Account] }),
})

const readAccount = createRoute({
  method: 'get',
  path: '/accounts/{id}',
  tags,
  summary: 'An account and its balance',
  request: { params: IdInPath },
  responses: answers({ 200: ['The account.', Account] }, [400, 404]),
})

const readStatement = createRoute({
  method: 'get',
  path: '/accounts/{id}/statement',
  tags,
  summary: `The newest ${STATEMENT_ENTRIES} entries of an account, each with the balance after it`,
  request: { params: IdInPath },
  responses: answers({ 200: ['The entries.', z.array(Entry)] }, [400, 404]),
})

const transfer = createRoute({
  method: 'post',
  path: '/transfers',
  tags,
  summary: 'Move money from one account to another',
  request: { headers: RetryHeaders, body: jsonBody(TransferToMake) },
  responses: answers({ 201: ['The transfer.', TransferMade] }, [400, 404, 409, 422, 503]),
})

interface AccountRow {
  readonly id: string
  readonly hot: boolean
  readonly balance: number
}

export function transferRoutes({ pool, lockstep, waitMs }: Desk): OpenAPIHono {
  const routes = newRoutes()
  const queue = new AccountQueue(waitMs)
  const retried = retriedInTransaction(lockstep)
  // All transfers that wait for a hot account are one transaction. What a retry finds, `book` finds: there is no stored answer.
  const bookHot = lockstep.combine({
    key: ({ hot }: Transfer & { readonly hot: string }) => key`Account:${hot}`,
    run: book,
  })

  routes.openapi(openAccount, async (c) => {
    const { id, openingBalance, hot } = c.req.valid('json')
    const { value, created } = await lockstep.once<AccountRow>(key`Account:${id}`, {
      find: async (tx) => (await tx.query<AccountRow>(READ_ACCOUNT, [id])).rows[0],
      create: async (tx) => {
        await tx.query(CREATE_ACCOUNT, [id, hot])
        if (openingBalance > 0)
          await book(tx, [{ id: randomUUID(), from: BANK, to: id, amount: openingBalance, request: undefined }])
        return { id, hot, balance: openingBalance }
      },
    })
    return c.json(value, created ? 201 : 200)
  })

  routes.openapi(readAccount, async (c) => {
    const { id } = c.req.valid('param')
    const { rows } = await pool.query<AccountRow>(READ_ACCOUNT, [id])
    if (rows[0] === undefined) throw notFound('account', id)
    return c.json(rows[0], 200)
  })

  routes.openapi(readStatement, async (c) => {
    const { id } = c.req.valid('param')
    const { rows } = await pool.query(STATEMENT, [id, STATEMENT_ENTRIES])
    if (rows.length === 0 && (await pool.query(READ_ACCOUNT, [id])).rowCount === 0) throw notFound('account', id)
    return c.json(rows, 200)
  })

  routes.openapi(transfer, async (c) => {
    const wanted: Transfer = {
      id: randomUUID(),
      ...c.req.valid('json'),
      request: c.req.valid('header')['idempotency-key'],
    }
    const hot = await hotOneOf(wanted)
    try {
      if (hot !== undefined) {
        const { replayed, ...booked } = await bookHot({ ...wanted, hot })
        return c.json(made(booked), 201, replayed ? { 'idempotency-replayed': 'true' } : undefined)
      }
      const bookIt = honoHandler(retried, async (_, tx) => {
        const [answer] = await book(tx, [wanted])
        // Answered, not thrown: a retry is refused as well.
        return answer instanceof ProblemError ? answer.answer(c) : c.json(made(answer as Transfer), 201)
      })
      return await queue.run([wanted.from, wanted.to], () => bookIt(c))
    } catch (error) {
      throw isKeyReused(error) ? keyReused() : error
    }
  })

  async function hotOneOf({ from, to }: Transfer): Promise<string | undefined> {
    const { rows } = await pool.query<{ id: string }>(HOT_ONES, [[from, to]])
    // The same one in all processes, also where both are hot.
    return rows.map(({ id }) => id).toSorted()[0]
  }

  return routes
}

function made({ id, from, to, amount }: Transfer) {
  return { id, from, to, amount }
}

/** Two requests with one key and different accounts ran at once: the unique column has the last word. */
function isKeyReused(error: unknown): boolean {
  return (error as { constraint?: unknown } | null)?.constraint === 'one_transfer_a_request'
}
