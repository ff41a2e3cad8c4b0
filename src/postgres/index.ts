/**
 * Postgres: the lowest module. All other modules build on it, and only this one distinguishes the drivers.
 *
 * **The interface.** A `Connection` can do six things: send one simple-query message with many statements (`script`), send one statement
 * of ours (`read`) or of the caller's (`query`) with parameters, send statements together with COMMIT (`commit`), say whether it is
 * `lost`, and make a client of the driver's kind for callers (`virtualClient`). One conformance suite runs against both drivers.
 *
 * **Virtual clients.** To a query builder one looks like the driver's own. Every statement goes through a session, which knows whose turn
 * it is and what BEGIN means; nothing that is set on one, or listens to it, is left on the real client.
 *
 * **Whose rows.** What the pool's owner has configured changes what rows look like: names, values, types. The caller's statements get
 * their rows in that way. Ours are read as text under the names that they were given, and ours are the only ones that are read so: a
 * lock that is taken never looks granted, whatever the driver makes of null.
 *
 * **What is trusted until when.** A connection is trusted until its end was seen. From then on nothing is sent through it: pg
 * would only fail, but postgres.js reconnects in place and may already have given the connection to a stranger. A connection
 * whose state is not known (a failed ROLLBACK, an answer that never came) is destroyed, never released.
 *
 * **A pool that gives no connection** means one of three things, recognized by where the error came from and by codes, never by text: the
 * server cannot be reached now, all connections are in use, or a person has to change something (see connectFailure.ts).
 *
 * **The server epoch.** Transaction ids, snapshots and "did it commit?" are valid only within one server epoch: after a
 * crash, ids whose WAL was not flushed are assigned again, and `pg_xact_status` answers for another transaction. A random value in
 * an UNLOGGED table, the history, names the epoch: a crash, a promotion or a restore empties the table, and the next call writes a
 * new value. The generation of fences, which follows the timeline, is logged (`sql/tables/0001_server_epoch.sql`). A direct connection cannot outlive its server, so its
 * epoch is read once; behind a pooler, which reconnects unseen, it is read with every transaction.
 *
 * **Migrations** are numbered SQL files, applied in one transaction under one lock, all or nothing. Each says the oldest schema
 * version whose library can still work with it (`compatible-from`), so that the previous release keeps running while a deploy
 * rolls on; a library that is too old for the schema refuses to run.
 *
 * **A standby is refused**: advisory locks there do not exclude the primary's.
 */
export {
  alreadyLost,
  alreadyReturned,
  type Commit,
  type Connection,
  type ConnectionMemory,
  type Driver,
  type OwnStatement,
  type OwnValue,
  type QueryListener,
  type Statement,
  type StatementResult,
  type TextRow,
} from './connection.ts'
export { meansNoConnection, withKeys } from './connectFailure.ts'
export { refuseForeignOwner } from './ownership.ts'
export { describeSchema } from './describeSchema.ts'
export { diagnose, type DoctorOptions, wantedRoles, wantsTrial } from './doctor.ts'
export type { Finding } from './doctorFinding.ts'
export { DEFAULT_SILENCE_MS, driverFor, isPool, type Pool } from './driver.ts'
export { withGrowingTimeout } from './growingTimeout.ts'
export { checkSchemaName, quoteIdentifier, quoteLiteral, withValues } from './identifiers.ts'
export { readServerEpoch, type ServerEpoch } from './serverEpoch.ts'
export { type ConnectionKind, forgetTrials, kindOf, rememberTrial } from './lockTrials.ts'
export { migrate, type MigrateOptions, type MigrateResult } from './migrate.ts'
export { functionsIn, KNOWN_VERSION, type Migration, migrationsIn, type SchemaFunction } from './migrations.ts'
export { type SqlFile, sqlFiles } from './sqlFiles.ts'
export { onAbort } from './onAbort.ts'
export type { PgClient, PgPool, PgPoolClient } from './pgClient.ts'
export { StatementForgottenError } from './keptStatements.ts'
export type { PostgresJs, PostgresJsClient, PostgresJsReserved } from './postgresJsDriver.ts'
export { epochGenerations, epochList, failUnlessSame, serverEpochExpression } from './postgres.sql.ts'
export { checkReadiness, type Readiness, readKnownServer, standbyRefused } from './readiness.ts'
export { applyGrants } from './applyGrants.ts'
export { type GrantOptions, grantsFor, ROLE_NAMES, type RoleName } from './roles.ts'
export { GRACE_MS, type Pending, SilenceWatch } from './silenceWatch.ts'
export * from './sqlstate.ts'
export { type ControlCommand, refuseToEnd, type VirtualSession, type VirtualStatement } from './virtualClient.ts'
export { connectWithin, LONGEST_TIMER_MS, withConnection } from './withConnection.ts'
