import type { OwnValue, StatementResult, TextRow } from '../postgres/index.ts'
import { OpenTransaction } from './transaction.ts'
import type { Transaction } from './transactionInterface.ts'

/**
 * Runs a statement of Lockstep's own in a transaction, and reads its rows as text. What `tx.query()` gives is as the pool's owner has
 * configured it: names in camel case, types of its own.
 */
export function readText(
  tx: Pick<Transaction, 'query'>,
  text: string,
  values?: readonly OwnValue[],
): Promise<StatementResult<TextRow>> {
  if (!OpenTransaction.is(tx)) return tx.query<TextRow>(text, values)
  return tx.send(text, (connection) => connection.read(text, values))
}

/** Runs a statement that gives the caller's rows, as the pool's owner has configured them, with values that Lockstep has written. */
export function queryWithOwnValues<Row>(
  tx: Pick<Transaction, 'query'>,
  text: string,
  values: readonly OwnValue[],
): Promise<StatementResult<Row>> {
  if (!OpenTransaction.is(tx)) return tx.query<Row>(text, values)
  return tx.send(text, (connection) => connection.query<Row>(text, connection.ownValues(values)))
}
