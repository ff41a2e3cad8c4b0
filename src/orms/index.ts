/**
 * Lockstep through an ORM. Each file that is named as an ORM is an entry point, with the ORM as an optional peer dependency. Nothing in
 * `pg-lockstep` itself imports one of them.
 *
 * **Inside.** `drizzle(tx)`, `kysely(tx)` and the others give the ORM's own transaction object for a transaction that Lockstep has opened:
 * locks, isolation level, retry, COMMIT and its outcome are Lockstep's. The object sends everything through `tx.client`, so it can neither
 * end the transaction nor outlive it: after the end it refuses with `TransactionEndedError`.
 *
 * **Nested.** The ORM's own nested transaction is `tx.savepoint()`. The ORMs name their savepoints by depth, so two that run at once mix
 * their statements; savepoints of Lockstep wait for their turn. A statement of the outer object that is sent from inside the nested one is
 * refused with `SavepointOpenError`, as everywhere in Lockstep.
 *
 * **The other direction.** `clientOf(transaction)` is the driver's client of a transaction that the ORM opened, for `lockstep.join()` and
 * `outbox.enqueue()`. The client stays the ORM's.
 *
 * **Errors.** An ORM wraps what the driver throws. The retry looks through these wrappers (src/postgres/sqlstate.ts), so a conflict, a lost
 * connection and an error of Lockstep mean the same as without the ORM. The caller receives the error as the ORM made it.
 *
 * **Private fields.** The public interface of the ORM is used where there is one. Otherwise `privateField()` checks that the field is there,
 * and names the versions that have it. The conformance suite, orms.conformance.ts, runs for each ORM, driver and isolation level.
 */
export {
  checkDriver,
  checkIsolation,
  driverOf,
  hasEnded,
  type OrmDriverName,
  type OrmTransaction,
  privateField,
  refuseToEnd,
} from './ormTransaction.ts'
