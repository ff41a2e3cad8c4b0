import { DriverUnsupportedError, InvalidOptionError, JoinRefusedError, TransactionEndedError } from '../errors.ts'
import {
  codeOf,
  type Connection,
  isPool,
  NO_ACTIVE_TRANSACTION,
  type Statement,
  type StatementResult,
} from '../postgres/index.ts'
import type { LockstepContext } from './lockstepContext.ts'
import type { Transaction } from './transactionInterface.ts'
import { onlyInTransaction } from './transactions.sql.ts'

/**
 * A client that the caller passes, on which it has opened a transaction. What is sent outside of one is committed by itself: locks
 * are released at once, and what is written stays, also when the rest fails. So whatever is sent first fails there. `ofTx`: what does the
 * same on the tx of a Lockstep, for callers that pass one.
 */
export function wrapCallersClient(
  { driver }: Pick<LockstepContext, 'driver'>,
  client: unknown,
  where: string,
  ofTx: string,
): Connection {
  if (isPool(client)) {
    throw new JoinRefusedError(`${where} was given a pool, which has no transaction.`, {
      advice: 'Pass the one client on which you sent BEGIN, or use lockstep.transaction().',
    })
  }
  if (canSend(client, driver.name === 'pg' ? ['query', 'on'] : ['unsafe'])) return driver.wrap(client)
  throw new DriverUnsupportedError(`${where} was given no client.`, {
    advice: `Pass the client on which you sent BEGIN. With the tx of a Lockstep, call ${ofTx} instead.`,
  })
}

function canSend(client: unknown, methods: readonly string[]): boolean {
  if ((typeof client !== 'object' && typeof client !== 'function') || client === null) return false
  return methods.every((method) => typeof (client as Record<string, unknown>)[method] === 'function')
}

/** Refuses what is no transaction: a client of the driver, or a pool, would run every statement, and commit each by itself. */
export function checkTransaction(where: string, tx: unknown): void {
  if (typeof tx === 'object' && tx !== null && 'isolation' in tx && 'query' in tx) return
  throw new InvalidOptionError(`${where} was given no transaction.`, {
    advice: 'Pass the tx of lockstep.transaction(), or what lockstep.join(client) gives.',
  })
}

/** What is one and the same for all transactions of a Lockstep. */
export function ownerOf(tx: Transaction): object {
  return (tx as { readonly context?: object }).context ?? tx
}

/** Runs statements in the caller's transaction, in one round trip each. Where none is open, nothing is written. */
export async function writeInCallersTransaction(
  connection: Connection,
  statements: readonly Statement[],
  where: string,
): Promise<StatementResult | undefined> {
  let last: StatementResult | undefined
  for (const statement of statements) {
    const results = await connection.script(onlyInTransaction(statement)).catch((error: unknown) => {
      throw codeOf(error) === NO_ACTIVE_TRANSACTION ? noTransaction(where, error) : error
    })
    last = results.at(-1)
  }
  return last
}

export function noTransaction(where: string, cause: unknown): JoinRefusedError {
  return new JoinRefusedError(`The client given to ${where} has no open transaction.`, {
    advice: 'Send BEGIN on it first, or use lockstep.transaction(). Nothing was written.',
    cause,
  })
}

/** Refuses to continue where the client says that the caller's transaction is over. Not every version of every driver says so. */
export function refuseAfterEnd({ client }: Connection): void {
  const { getTransactionStatus } = client as { getTransactionStatus?: () => unknown }
  if (getTransactionStatus?.call(client) !== 'I') return
  throw new TransactionEndedError('The transaction that was joined has ended.', {
    advice: 'Use the tx of join() between your BEGIN and your COMMIT. Nothing was sent.',
  })
}
