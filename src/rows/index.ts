/**
 * Rows locked in one order.
 *
 * **The promise.** Two transactions that lock the same rows with `lockRows` never wait for each other in a circle, whatever the
 * order in which they name them; and what they get back is what the last holder committed.
 *
 * **How.** One statement: the ids, folded by the server's own equality, joined to the table, `ORDER BY` the key, `FOR UPDATE`. The
 * server sorts first and locks in that order. (For a few ids of one column a simpler statement is asked first; where it does not find
 * all of them, the general one says which is which.) An `UPDATE … WHERE id = ANY(…)` does not: it locks in the order of the scan, which
 * differs between two plans, and deadlocks with any other writer of the same rows. The order is the server's, by the column's own
 * type and collation: uuids as bytes, numbers as numbers, text by its collation; nothing is compared in JavaScript.
 *
 * **Types.** The statement names no type. `COALESCE($1, ARRAY(SELECT key FROM table LIMIT 0))` gives the parameter the type of the
 * column, so that any key works, also a domain, an enum or several columns, without asking the catalog first: one round trip.
 *
 * **Missing rows are reported.** If a row does not exist, or was deleted during the wait, the call throws `RowsMissingError` with its id. If
 * the caller allows missing rows, `missing` lists it. With `skipLocked`, `skipped` lists the rows that another session holds.
 *
 * **Two calls.** The promise is for one call in a transaction. A second call for rows of the same table that come before the first
 * call's is the old deadlock again. While `rows.outOfOrder` has a listener, each transaction remembers what it has locked and
 * reports both ids and both places in the code. Without a listener, nothing is remembered.
 *
 * **Two orders.** Calls that find rows by different columns lock them in different orders. Two such calls can deadlock although each is in
 * order. Each Lockstep remembers by which columns it orders the rows of a table. The guard reports a second order, and a deadlock names all
 * known orders. None is refused: which call runs first in a process is random, and a rare job must not block all others. `orderBy` states
 * one order, whatever column the rows are found by.
 *
 * **Limits.** The order holds among callers of `lockRows`. A writer that updates the same rows in another order, without `lockRows`, can
 * still deadlock with them; then one of the two gets 40P01, and `transaction()` tries again. The key must be unique: rows with equal keys
 * have no order among them.
 */
export {
  type LockedRows,
  lockRows,
  type LockRowsCommon,
  type LockRowsOptions,
  type RowsTransaction,
  type TableName,
} from './lockRows.ts'
export type { RowId, RowIdPart } from './rowIds.ts'
export type { RowLockMode } from './rows.sql.ts'
