import {
  AFTER_WAITING,
  beforeWaiting,
  beforeHandOver,
  type LockSet,
  parameter,
  sessionLock,
  sessionUnlock,
  stateHeld,
  stateHeldByParameter,
  stateHeldToo,
  takeOver,
  transactionLock,
  tryForSession,
  type LockMethod,
  type LocksByParameter,
  unlockLeftovers,
} from '../locks/index.ts'
import {
  failUnlessSame,
  type OwnStatement,
  quoteLiteral,
  type Statement,
  type StatementResult,
  withValues,
} from '../postgres/index.ts'
import type { Isolation } from './isolation.ts'
import type { PlannedPart } from './plannedPart.ts'

/** What an opening message must bring back. */
export interface Opening {
  readonly isolation: Isolation
  readonly method: LockMethod
  readonly locks: LockSet
  /** What parts add to it. */
  readonly parts: readonly PlannedPart[]
  /** The transaction's id, by which the server can be asked later whether it committed. Taking one costs no disk flush. */
  readonly withXid: boolean
  /** The SQL that reads the server epoch, if it is not yet known for this connection. */
  readonly serverEpoch: string | undefined
  readonly checksConnections: boolean
}

/** The row that every opening message ends with. `held` is null if a lock was not granted, `standby` on a standby, otherwise the mark: the xid, or the time. */
export interface OpeningRow {
  readonly held: string | null
  readonly pid: string
  readonly incarnation?: string | null
}

export const BEGIN = 'BEGIN'
export const COMMIT = 'COMMIT'
export const ROLLBACK = 'ROLLBACK'
/** Fails in a transaction that has failed, and does nothing else. */
export const PROBE = 'SELECT 1'

function begin(isolation: Isolation): string {
  return `BEGIN ISOLATION LEVEL ${isolation.toUpperCase()};`
}

/** When the transaction began, to the microsecond. Another one of the same session began at another time. */
const BEGAN = 'extract(epoch FROM transaction_timestamp())::text'

/** A standby has no ids to give and fails; where none is wanted, it has to be asked, and the time is the transaction's mark. */
function grantedBy({ withXid }: Opening): string {
  return withXid ? 'pg_current_xact_id()::text' : `CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE ${BEGAN} END`
}

/** What is true in the transaction that was opened with this mark, and in no other. */
function isSame(mark: string, withXid: boolean): string {
  return `${withXid ? 'pg_current_xact_id_if_assigned()::text' : BEGAN} = ${quoteLiteral(mark)}`
}

/** Goes before COMMIT if other code may have ended the transaction. */
export function checkSame(mark: string, withXid: boolean): string {
  return failUnlessSame(isSame(mark, withXid))
}

/** Rolls back, and says whether it was the transaction that was opened. Fails where that has failed. */
export function rollbackSame(mark: string, withXid: boolean): string {
  return `SELECT coalesce(${isSame(mark, withXid)}, false)::text AS same; ${ROLLBACK}`
}

/** Rolls back, and returns the outcome of a transaction that is over for certain. */
export function rollbackAndAsk(xid: string): string {
  return `${ROLLBACK}; SELECT pg_xact_status('${xid}'::xid8) AS status`
}

function columns(opening: Opening, locks: LockSet, life: string | undefined): string {
  const held = `${opening.method.tryLocks(locks, stateHeld(opening.locks, grantedBy(opening)))} AS held`
  const incarnation = life === undefined ? '' : `, ${life} AS incarnation`
  const { missing } = opening.method
  const exist = missing === undefined || locks.length === 0 ? '' : `, ${missing.column(locks)}`
  return `${held}, pg_backend_pid()::text AS pid${incarnation}${partColumns(opening)}${exist}`
}

/** Statements of the parts that read before the snapshot of a hand-over. */
function beforeSnapshot({ parts }: Opening): string {
  return parts.length === 0 ? '' : parts.map((part) => part.beforeSnapshot?.() ?? '').join(' ')
}

/** Statements of the parts right before the row that reports the locks as granted. */
function beforeRow({ parts }: Opening): string {
  return parts.length === 0 ? '' : parts.map((part) => part.opening?.before ?? '').join(' ')
}

function partColumns({ parts }: Opening): string {
  return parts.length === 0 ? '' : parts.map(({ opening }) => (opening ? `, ${opening.columns}` : '')).join('')
}

/**
 * The fast opening: begins, tries the locks and reports whether they were granted. Two statements in one message; the settings of
 * a wait are not touched because there is no wait. At READ COMMITTED every later statement has a younger snapshot than the locks.
 */
export function beginTrying(opening: Opening): string {
  return `${begin(opening.isolation)} ${beforeRow(opening)} SELECT ${columns(opening, opening.locks, opening.serverEpoch)}`
}

/** More locks than that are rare, and each number of them makes another text. */
const PARAMETERS_AT_MOST = 4

export const KEPT_COLUMNS = ['held', 'pid']

/** The fast opening as statements that the server process can keep; undefined if it needs more than locks. */
export function beginKept(opening: Opening): OwnStatement[] | undefined {
  const { isolation, method, locks, parts, serverEpoch: incarnation } = opening
  const { byParameter } = method
  if (byParameter === undefined || incarnation !== undefined || locks.length > PARAMETERS_AT_MOST) return undefined
  if (parts.some(addsToOpening)) return undefined
  const values = locks.map(({ id }) => id)
  return [BEGINNINGS[isolation], { text: keptTrying(opening, byParameter), values, recurs: true }]
}

function addsToOpening({ opening }: PlannedPart): boolean {
  return opening !== undefined
}

/** Texts that are looked up for every transaction: the same ones, and not others like them, whose every character had to be compared. */
const BEGINNINGS: Readonly<Record<Isolation, OwnStatement>> = {
  'read committed': withoutValues('BEGIN ISOLATION LEVEL READ COMMITTED'),
  'repeatable read': withoutValues('BEGIN ISOLATION LEVEL REPEATABLE READ'),
  serializable: withoutValues('BEGIN ISOLATION LEVEL SERIALIZABLE'),
}

function withoutValues(text: string): OwnStatement {
  return { text, values: [], recurs: true }
}

function keptTrying(opening: Opening, { tryLocks, texts }: LocksByParameter): string {
  const { locks } = opening
  const shape = shapeOf(opening)
  let text = texts.get(shape)
  if (text === undefined) {
    text = keptRow(tryLocks(locks, stateHeldByParameter(locks, keptGrant(opening))))
    texts.set(shape, text)
  }
  return text
}

/** A number for what decides on the text of a kept statement. */
function shapeOf({ locks, withXid }: Opening): number {
  const shape = locks.reduce((sum, { shared }) => sum * 2 + (shared ? 1 : 0), (withXid ? 2 : 0) + 1)
  return shape * 8 + locks.length
}

/** As they come: what is kept is read as text, whatever it is. */
function keptGrant(opening: Opening): string {
  return opening.withXid ? 'pg_current_xact_id()' : grantedBy(opening)
}

function keptRow(held: string): string {
  return `SELECT ${held} AS held, pg_backend_pid() AS pid`
}

/**
 * The waiting opening, after `beginTrying` was refused or a slice ended: starts over and waits for up to `waitMs`. Where the connection
 * has no transaction yet, because the lock is expected to be taken, it reports whether it was.
 */
export function beginWaiting(opening: Opening, waitMs: number, inTransaction: boolean): string {
  const before = inTransaction ? `${ROLLBACK}; ` : ''
  return `${before}${begin(opening.isolation)} ${beforeWaiting(opening.checksConnections)}
    ${opening.method.waitForLocks(opening.locks, waitMs, !inTransaction)} ${beforeRow(opening)}
    SELECT ${columns(opening, [], opening.serverEpoch)}, ${AFTER_WAITING}`
}

/**
 * The hand-over that waits, for REPEATABLE READ and SERIALIZABLE: there the first statement takes the snapshot for the whole transaction,
 * so the lock must be held before it. One message of two transactions: the first waits for the locks as transaction locks (all
 * waiting happens there), takes them once more for the session and commits; the second takes them over as its own and releases
 * those of the session. AND CHAIN leaves no moment between the two: whatever strikes, the server connection is in a transaction, so
 * that a pooler cannot give it to another client before `cleanUpHandOver` was there, and closes it if we are gone. `inTransaction`: after
 * the quick one was refused.
 */
export function handOver(opening: Opening, waitMs: number, inTransaction: boolean): string {
  const { locks } = opening
  const before = inTransaction ? `${ROLLBACK}; ` : ''
  const life = opening.serverEpoch === undefined ? '' : `SELECT ${opening.serverEpoch} AS incarnation;`
  const taken = locks.map((lock) => `, ${transactionLock(lock)}, ${sessionUnlock(lock)}`).join('')
  return `${before}${begin('read committed')} ${life} ${beforeHandOver(opening.checksConnections)}
    ${opening.method.waitForLocks(locks, waitMs, !inTransaction)}
    SELECT ${locks.map((lock) => sessionLock(lock)).join(', ')}; ${beforeSnapshot(opening)} COMMIT AND CHAIN;
    SET TRANSACTION ISOLATION LEVEL ${opening.isolation.toUpperCase()}; ${beforeRow(opening)}
    SELECT ${columns(opening, [], undefined)}${taken}`
}

/**
 * The quick hand-over: it tries the locks and does not wait, so there are no settings of a wait. Refused, it runs to its end and leaves
 * nothing on the session: ROLLBACK is all that has to follow. `canTryHandOver()` says for which calls.
 */
export function handOverTrying(opening: Opening): string {
  const { locks, isolation, serverEpoch } = opening
  const life = serverEpoch === undefined ? '' : `, ${serverEpoch} AS incarnation`
  const held = takeOver(locks, stateHeld(locks, grantedBy(opening)))
  return `${begin('read committed')} SELECT ${tryForSession(locks)}${life}; COMMIT AND CHAIN;
    SET TRANSACTION ISOLATION LEVEL ${isolation.toUpperCase()}; SELECT ${held} AS held, pg_backend_pid()::text AS pid`
}

/** The same as statements that the server process can keep; undefined where more is asked for than locks. */
export function handOverKept(opening: Opening): OwnStatement[] | undefined {
  const { isolation, locks, serverEpoch } = opening
  if (serverEpoch !== undefined) return undefined
  const values = locks.map(({ id }) => id)
  const { first, second } = handOverTexts(opening)
  return [
    BEGINNINGS['read committed'],
    { text: first, values, recurs: true },
    COMMIT_AND_CHAIN,
    LEVELS[isolation],
    { text: second, values, recurs: true },
  ]
}

const COMMIT_AND_CHAIN = withoutValues('COMMIT AND CHAIN')
const LEVELS: Readonly<Record<Isolation, OwnStatement>> = {
  'read committed': withoutValues('SET TRANSACTION ISOLATION LEVEL READ COMMITTED'),
  'repeatable read': withoutValues('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ'),
  serializable: withoutValues('SET TRANSACTION ISOLATION LEVEL SERIALIZABLE'),
}

interface HandOverTexts {
  readonly first: string
  readonly second: string
}

/** By shape, as those of `keptTrying`. */
const handOverTextsByShape = new Map<number, HandOverTexts>()

function handOverTexts(opening: Opening): HandOverTexts {
  const { locks } = opening
  const shape = shapeOf(opening)
  let texts = handOverTextsByShape.get(shape)
  if (texts === undefined) {
    const granted = stateHeldByParameter(locks, keptGrant(opening))
    texts = {
      first: `SELECT ${tryForSession(locks, parameter)}`,
      second: keptRow(takeOver(locks, granted, parameter)),
    }
    handOverTextsByShape.set(shape, texts)
  }
  return texts
}

/** Not where parts read in one of the two transactions, and not for more locks than a short text can have. */
export function canTryHandOver(locks: LockSet, parts: readonly PlannedPart[]): boolean {
  return locks.length <= PARAMETERS_AT_MOST && !parts.some(addsToHandOver)
}

function addsToHandOver(part: PlannedPart): boolean {
  return part.opening !== undefined || part.beforeSnapshot !== undefined
}

/** Ends a hand-over that failed, wherever it did, and unlocks what it may have left on the session. */
export function cleanUpHandOver(locks: LockSet): string {
  return `ROLLBACK AND CHAIN; ${unlockLeftovers(locks)}; COMMIT`
}

/**
 * Goes before the same is asked as text, where a kept statement was gone: then it is not known how far the message came, nor whether there is a
 * transaction.
 */
export function leaveForgotten(locks: LockSet, byHandOver: boolean): string {
  return byHandOver ? `${ROLLBACK}; ${unlockLeftovers(locks)}` : ROLLBACK
}

/** The server epoch that a hand-over read in its first transaction. */
export function serverEpochOf(results: readonly StatementResult[]): string | null | undefined {
  const found = results.find((result) => result.rows[0] !== undefined && 'incarnation' in result.rows[0])
  return found?.rows[0]?.['incarnation'] as string | null | undefined
}

/** Whether a lock of a hand-over was not free at once: one of its waits says so. */
export function hadToWait(results: readonly StatementResult[]): boolean {
  return results.some((result) => result.rows[0]?.['wait'] === 't')
}

/** Whether a transaction of this server epoch committed. */
export function commitStatus(incarnation: string, life: string, xid: string): string {
  return `
    SELECT pg_is_in_recovery()::text AS standby,
           CASE WHEN ${incarnation} = '${life}' THEN pg_xact_status('${xid}'::xid8) ELSE 'another life' END AS status`
}

/**
 * Ends the session in which a transaction is still open, and no other. One that is at work on COMMIT is left alone: it may wait for
 * a synchronous standby, and ending it would commit without.
 */
export function terminateTransaction(pid: number, xid: string, commitSent: boolean): string {
  const idle = commitSent ? `AND state LIKE 'idle in transaction%'` : ''
  return `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ${pid} AND backend_xid = '${xid}'::xid8::xid ${idle}`
}

/** One row where the session is busy with that transaction. */
export function isAtWork(pid: number, xid: string): string {
  return `SELECT pid FROM pg_stat_activity WHERE pid = ${pid} AND backend_xid = '${xid}'::xid8::xid AND state = 'active'`
}

export function savepoint(name: string): string {
  return `SAVEPOINT ${name}`
}

export function releaseSavepoint(name: string): string {
  return `RELEASE SAVEPOINT ${name}`
}

export function rollbackToSavepoint(name: string): string {
  return `ROLLBACK TO SAVEPOINT ${name}; RELEASE SAVEPOINT ${name}`
}

/** One message that writes nothing where no transaction is open: SAVEPOINT fails there with 25P01, and the rest is not run. */
export function onlyInTransaction(statement: Statement): string {
  const name = 'lockstep_inside'
  return `${savepoint(name)}; ${releaseSavepoint(name)}; ${withValues(statement)}`
}

/** Fails with 25P01 where no transaction is open. */
export function beginJoin(name: string): string {
  return `SAVEPOINT ${name}; SELECT current_setting('transaction_isolation') AS isolation, pg_is_in_recovery()::text AS standby`
}

/**
 * Waits for the locks inside the caller's transaction and answers whether they were granted. That they were not is no error on
 * the wire: postgres.js rolls a transaction back in which there was one, caught or not. What the block had locked by then is
 * released with it.
 */
export function joinLocks(
  method: LockMethod,
  locks: LockSet,
  waitMs: number,
  checksConnections: boolean,
  name: string,
): string {
  const block = `BEGIN
      EXECUTE ${quoteLiteral(method.waitForLocks(locks, waitMs, false))};
      ${stateHeldToo(locks)}
      PERFORM set_config('lockstep.joined', 'true', true);
    EXCEPTION WHEN lock_not_available THEN PERFORM set_config('lockstep.joined', 'false', true);
    END`
  return `${beforeWaiting(checksConnections)}
    DO ${quoteLiteral(block)};
    ${releaseSavepoint(name)}; SELECT current_setting('lockstep.joined') AS joined, ${AFTER_WAITING}`
}

/** What has to follow a savepoint so that it is as BEGIN with this access mode: it ends with the savepoint. */
export function accessMode(readOnly: boolean | undefined): string {
  if (readOnly === undefined) return ''
  return `; SET TRANSACTION READ ${readOnly ? 'ONLY' : 'WRITE'}`
}

/** The text of a BEGIN, to be read and not to be sent. */
export function beginWith(modes: string): string {
  return `BEGIN ${modes}`
}
