import { createHash } from 'node:crypto'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { LockstepError, LocksIneffectiveError, type LocksIneffectiveReason, StandbyRefusedError } from '../errors.ts'
import type { Connection, Driver } from './connection.ts'
import { describeSchemaOn } from './describeSchema.ts'
import {
  BACKEND_PID,
  BEGIN_AND_PID,
  EXAMINE,
  foreignLockHolders,
  guardStates,
  IDLE_LOCK_HOLDERS,
  lockIdProbe,
  oldSnapshotHolders,
  ROLLBACK,
} from './doctor.sql.ts'
import { quoteIdentifier, quoteLiteral } from './identifiers.ts'
import { KNOWN_VERSION } from './migrations.ts'
import { connects } from './doctorConnects.ts'
import type { Finding } from './doctorFinding.ts'
import { grantsFinding } from './doctorGrants.ts'
import { replicationFinding } from './doctorReplication.ts'
import { foreignOwnerError } from './ownership.ts'
import { checkReadinessOn } from './readiness.ts'
import { checkRoleName, type RoleName } from './roles.ts'
import { schemaDigest } from './sqlFiles.ts'
import { codeOf } from './sqlstate.ts'
import { withConnection } from './withConnection.ts'

type Settings = Record<
  | 'version'
  | 'release'
  | 'standby'
  | 'pid'
  | 'clock'
  | 'lockroom'
  | 'lockspertransaction'
  | 'locks'
  | 'idletimeout'
  | 'keepaliveidle'
  | 'usertimeout'
  | 'clientcheck'
  | 'isolation'
  | 'synchronous'
  | 'maxconnections',
  string
>

const OLDEST_VERSION = 140_000
const NEWEST_TRIED_VERSION = 189_999
const MAX_CLOCK_SKEW_MS = 500
const FULL_LOCK_TABLE = 0.5
/** The operating system's own default: two hours until a dead client is noticed. */
const LONG_KEEPALIVE_S = 300
const POOLER_TRIES = 3
const OLD_AFTER_MS = 5 * 60_000

/** Options of `doctor()`. */
export interface DoctorOptions {
  /** Whether it tries the locks with several connections, as the first call by a new route does. Default true. */
  readonly trial?: boolean
  /**
   * The roles of docs/operating/roles.md whose grants the role of the connection must have. Default: it recognizes the role by a function
   * that no other role can call.
   */
  readonly as?: RoleName | readonly RoleName[]
}

const DOCTOR_OPTIONS: OptionNames<DoctorOptions> = { trial: true, as: true }

/** Whether the locks are to be tried. */
export function wantsTrial(options: DoctorOptions): boolean {
  checkOptions('doctor()', options, DOCTOR_OPTIONS)
  return options.trial ?? true
}

/** Which grants are expected; undefined: those of the role that it seems to be. */
export function wantedRoles({ as }: DoctorOptions): readonly RoleName[] | undefined {
  if (as === undefined) return undefined
  return (typeof as === 'string' ? [as] : as).map((name) => checkRoleName(name))
}

/** What the doctor tries. */
export interface Probe {
  /** A key, and the id that the library gives it. */
  readonly key: string
  readonly id: bigint
  readonly roles?: readonly RoleName[] | undefined
  /** Tries the locks: whether two connections took part. Rejects with a `LocksIneffectiveError` where they do not exclude. */
  tryLocks?: (() => Promise<boolean>) | undefined
}

/** Examines a server. A transaction that has been open for longer than `oldAfterMs` is reported. */
export async function diagnose(
  driver: Driver,
  schema: string,
  probe: Probe,
  oldAfterMs: number = OLD_AFTER_MS,
): Promise<Finding[]> {
  const grants = await withConnection(driver, async (connection) => {
    const stranger = await foreignOwnerError(connection, schema)
    if (stranger === undefined) return grantsFinding(connection, schema, probe.roles)
    return { findings: [{ name: 'schema', level: 'fail' as const, ...withoutAdvice(stranger) }], usable: false }
  })
  // Before a connection is held: a pool may have only one.
  const tried = grants.usable ? await trialOf(probe) : undefined
  return withConnection(driver, async (connection) => {
    const asked = Date.now()
    const [result] = await connection.script(EXAMINE)
    const answeredAt = Date.now()
    const settings = result?.rows[0] as Settings
    const pooled = connection.protocolPid !== undefined && connection.protocolPid !== Number(settings.pid)
    return [
      version(settings),
      standby(settings),
      ...locks(settings, tried),
      ...grants.findings,
      ...(grants.usable ? await schemaFindings(connection, schema, probe, settings, tried) : []),
      await pooler(driver, connection, pooled, tried),
      clock(Number(settings.clock), asked, answeredAt),
      lockTable(settings),
      idleInTransaction(settings),
      keepalive(settings),
      await oldSnapshots(connection, oldAfterMs),
      await idleLockHolders(connection),
      ...(grants.usable ? await foreignLocks(connection, schema) : []),
      ...(grants.usable ? await guards(connection, schema) : []),
      poolSize(driver, settings),
      connects(driver),
      commitDurability(settings),
      ...(grants.usable ? await replication(connection, schema) : []),
    ]
  })
}

/** Not of a schema that has no such settings yet: that is another finding. */
async function replication(connection: Connection, schema: string): Promise<Finding[]> {
  return replicationFinding(connection, quoteIdentifier(schema)).then(
    (finding) => [finding],
    () => [],
  )
}

function ok(name: string, found: string): Finding {
  return { name, level: 'ok', found, advice: '' }
}

function version({ version: number, release }: Settings): Finding {
  const found = `PostgreSQL ${release}`
  if (Number(number) < OLDEST_VERSION) {
    return {
      name: 'server version',
      level: 'fail',
      found,
      advice: 'Upgrade the server: Lockstep needs PostgreSQL 14 or newer.',
    }
  }
  if (Number(number) > NEWEST_TRIED_VERSION) {
    return {
      name: 'server version',
      level: 'warn',
      found,
      advice: 'This version was not tried: Lockstep is tested on 14 to 18.',
    }
  }
  return ok('server version', found)
}

function standby(settings: Settings): Finding {
  if (settings.standby !== 'true') return ok('standby', 'the server is a primary')
  return {
    name: 'standby',
    level: 'fail',
    found: 'the server is a standby',
    advice: 'Connect to the primary: locks taken on a standby do not exclude those on the primary.',
  }
}

/** What a trial of the locks gave: what is wrong with them, or whether two connections took part. */
type Tried = LocksIneffectiveError | boolean | undefined

async function trialOf(probe: Probe): Promise<Tried> {
  try {
    return await probe.tryLocks?.()
  } catch (error) {
    if (error instanceof LocksIneffectiveError) return error
    // It is a finding of its own.
    if (error instanceof StandbyRefusedError) return undefined
    throw error
  }
}

function locks(settings: Settings, tried: Tried): Finding[] {
  const name = 'locks'
  if (tried === undefined || settings.standby === 'true') return []
  if (tried === true) return [ok(name, 'two connections exclude each other at every isolation level')]
  if (tried === false) {
    return [
      {
        name,
        level: 'warn',
        found: 'the server lists a lock that one connection holds; the pool had no second one to try it against',
        advice: 'Run `npx pg-lockstep doctor` with the same URL: it brings a pool of its own.',
      },
    ]
  }
  return [{ name, level: 'fail', ...withoutAdvice(tried) }]
}

function withoutAdvice({ message, advice }: LockstepError): { found: string; advice: string } {
  return { found: message.replace(` ${advice}`, ''), advice }
}

async function schemaFindings(
  connection: Connection,
  schema: string,
  probe: Probe,
  settings: Settings,
  tried: Tried,
): Promise<Finding[]> {
  if (settings.standby === 'true') return []
  // Each question may reach another server, or none.
  if (tried instanceof LocksIneffectiveError && NO_TRANSACTIONS.has(tried.reason)) return []
  try {
    await checkReadinessOn(connection, schema)
  } catch (error) {
    if (!(error instanceof LockstepError)) throw error
    return [{ name: 'schema', level: 'fail', ...withoutAdvice(error) }]
  }
  const description = await describeSchemaOn(connection, schema)
  const same = createHash('sha256').update(description).digest('hex') === schemaDigest()
  const [answer] = await connection.script(lockIdProbe(quoteIdentifier(schema), quoteLiteral(probe.key)))
  const agrees = answer?.rows[0]?.['id'] === String(probe.id)
  return [
    same
      ? ok('schema', `"${schema}" is at version ${KNOWN_VERSION}, as the migrations made it`)
      : {
          name: 'schema',
          level: 'warn',
          found: `"${schema}" differs from what the migrations of this version make`,
          advice: 'A newer version migrated it, or it was changed by hand: compare it with sql/ of the package.',
        },
    agrees
      ? ok('lock ids', 'lock_id() in the database and in the library agree')
      : {
          name: 'lock ids',
          level: 'fail',
          found: 'lock_id() in the database gives other numbers than the library',
          advice: 'Was the schema renamed? Give it its old name back, or drop it and migrate again.',
        },
  ]
}

/** What keeps the statements of a transaction from one server. */
const NO_TRANSACTIONS: ReadonlySet<LocksIneffectiveReason> = new Set(['statements split', 'transactions refused'])

async function pooler(driver: Driver, connection: Connection, pooled: boolean, tried: Tried): Promise<Finding> {
  if (tried instanceof LocksIneffectiveError && NO_TRANSACTIONS.has(tried.reason)) {
    const found =
      tried.reason === 'statements split'
        ? 'a balancer that sends statements of one transaction to several servers'
        : 'a pooler in statement mode'
    return { name: 'pooler', level: 'fail', found, advice: tried.advice }
  }
  if (!pooled) return ok('pooler', 'none: the connection is direct')
  if (driver.poolSize > 1 && (await sharesServerConnections(driver, connection))) {
    return {
      name: 'pooler',
      level: 'warn',
      found: 'a pooler in transaction mode',
      advice:
        'Locks and transactions work. An aborted wait ends up to half a second later than on a direct connection.',
    }
  }
  return {
    name: 'pooler',
    level: 'warn',
    found: 'a pooler in session mode, or one too busy to tell: it is treated as one in transaction mode',
    advice: 'Nothing to do. A direct connection would save the pooler’s round trip.',
  }
}

/**
 * In transaction mode another client gets the server connection that we have just used, while we are still connected. In
 * session mode it never does.
 */
async function sharesServerConnections(driver: Driver, connection: Connection): Promise<boolean> {
  return withConnection(driver, async (other) => {
    for (let attempt = 0; attempt < POOLER_TRIES; attempt++) {
      const [mine] = await connection.script(BACKEND_PID)
      const theirs = await other.script(BEGIN_AND_PID)
      await other.script(ROLLBACK)
      if (mine?.rows[0]?.['pid'] === theirs.at(-1)?.rows[0]?.['pid']) return true
    }
    return false
  })
}

function clock(serverMs: number, asked: number, answeredAt: number): Finding {
  // The server read its clock somewhere between question and answer: only what lies outside is skew.
  const skewMs = serverMs < asked ? serverMs - asked : Math.max(0, serverMs - answeredAt)
  const found = `server and client differ by ${Math.abs(Math.round(skewMs))} ms`
  if (Math.abs(skewMs) <= MAX_CLOCK_SKEW_MS) return ok('clock', found)
  return {
    name: 'clock',
    level: 'warn',
    found,
    advice: 'Run a time service on both. Lockstep uses the server’s clock; logs and other software might not.',
  }
}

function lockTable(settings: Settings): Finding {
  const found = `room for ${settings.lockroom} locks, ${settings.locks} in use (max_locks_per_transaction ${settings.lockspertransaction})`
  if (Number(settings.locks) < Number(settings.lockroom) * FULL_LOCK_TABLE) return ok('lock table', found)
  return {
    name: 'lock table',
    level: 'warn',
    found,
    advice: 'Raise max_locks_per_transaction: when the table is full, every session’s next lock fails with 53200.',
  }
}

function idleInTransaction(settings: Settings): Finding {
  const name = 'idle in transaction'
  if (settings.idletimeout !== '0') return ok(name, `idle_in_transaction_session_timeout is ${settings.idletimeout}`)
  return {
    name,
    level: 'warn',
    found: 'idle_in_transaction_session_timeout is 0: a client that hangs inside a transaction holds its locks forever',
    advice: "ALTER ROLE … SET idle_in_transaction_session_timeout = '60s' for the application’s role.",
  }
}

function keepalive(settings: Settings): Finding {
  const name = 'keepalive'
  const idle = Number(settings.keepaliveidle)
  const found = `tcp_keepalives_idle ${idle === 0 ? 'of the operating system' : `${idle} s`}, tcp_user_timeout ${settings.usertimeout}`
  // A Unix socket has no keepalive and needs none: 0 in both.
  if (idle > 0 && idle <= LONG_KEEPALIVE_S) return ok(name, found)
  return {
    name,
    level: 'warn',
    found,
    advice:
      'Set tcp_keepalives_idle = 30, tcp_keepalives_interval = 10, tcp_keepalives_count = 3. Otherwise a client whose network failed holds its locks for hours.',
  }
}

async function oldSnapshots(connection: Connection, oldAfterMs: number): Promise<Finding> {
  const [result] = await connection.script(oldSnapshotHolders(oldAfterMs))
  const rows = (result?.rows ?? []) as { who: string; age: string }[]
  if (rows.length === 0) return ok('old snapshots', `no transaction is older than ${oldAfterMs / 60_000} minutes`)
  return {
    name: 'old snapshots',
    level: 'warn',
    found: rows.map((row) => (row.age === '0' ? row.who : `${row.who}, for ${row.age} s`)).join('; '),
    advice:
      'End it (pg_terminate_backend, ROLLBACK PREPARED, pg_drop_replication_slot): vacuum cannot clean up behind it.',
  }
}

async function idleLockHolders(connection: Connection): Promise<Finding> {
  const name = 'session locks'
  const [result] = await connection.script(IDLE_LOCK_HOLDERS)
  const rows = (result?.rows ?? []) as { who: string }[]
  if (rows.length === 0) return ok(name, 'no idle session holds an advisory lock')
  return {
    name,
    level: 'warn',
    found: `${rows.map((row) => row.who).join('; ')}: idle, with an advisory lock`,
    advice: 'Lockstep leaves none behind. If nothing else uses session locks, end it with pg_terminate_backend.',
  }
}

/** A role that cannot observe gets no finding: its own work does not need it. */
async function foreignLocks(connection: Connection, schema: string): Promise<Finding[]> {
  const name = 'foreign locks'
  let rows: { pid: string; role: string; application: string; held: string; what: string }[]
  try {
    const [result] = await connection.script(foreignLockHolders(quoteIdentifier(schema)))
    rows = (result?.rows ?? []) as typeof rows
  } catch (error) {
    if (codeOf(error) === undefined || connection.lost) throw error
    return []
  }
  if (rows.length === 0) return [ok(name, "no session of another role holds one of Lockstep's lock numbers")]
  const list = rows.slice(0, 10).map(({ pid, role, application, held, what }) => {
    const program = application === '' ? '' : ` (${application})`
    return `backend ${pid}${program} of role "${role}" ${held === 'true' ? 'holds' : 'waits for'} ${what}`
  })
  return [
    {
      name,
      level: 'warn',
      found: `${list.join('; ')}${rows.length > 10 ? '; and more' : ''}`,
      advice:
        'The role has no right on the schema, so the session is not Lockstep’s, and it can block keys and enqueuing. End it with pg_terminate_backend, and REVOKE CONNECT ON DATABASE … FROM PUBLIC.',
    },
  ]
}

/** Not for a role that cannot observe, nor of a schema that has no guards yet. */
async function guards(connection: Connection, schema: string): Promise<Finding[]> {
  const name = 'guards'
  let rows: { relation: string; key: string; state: string }[]
  try {
    const [result] = await connection.script(guardStates(quoteIdentifier(schema)))
    rows = (result?.rows ?? []) as typeof rows
  } catch (error) {
    if (codeOf(error) === undefined || connection.lost) throw error
    return []
  }
  const wrong = rows.filter(({ state }) => state !== 'active')
  if (wrong.length === 0) return [ok(name, rows.length === 0 ? 'no table has one' : `${rows.length}, all active`)]
  return [
    {
      name,
      level: 'warn',
      found: wrong.map(({ relation, key, state }) => `${relation} ${key}: ${WRONG_GUARD[state] ?? state}`).join('; '),
      advice: 'Add it again (`pg-lockstep guard add`), which repairs it, or remove it.',
    },
  ]
}

const WRONG_GUARD: Readonly<Record<string, string>> = {
  missing: 'its trigger is gone',
  disabled: 'a trigger is disabled',
  partial: 'a partition that was added later can be truncated',
  moved: 'the table has another name now',
  broken: 'a column of its key is gone, and every write fails',
}

function poolSize(driver: Driver, settings: Settings): Finding {
  const found = `${driver.poolSize} connections at most, of the server’s ${settings.maxconnections}`
  if (driver.poolSize > 1) return ok('pool', found)
  return {
    name: 'pool',
    level: 'warn',
    found,
    advice:
      'Give the pool at least 2 connections: with one, no caller can wait at the server and every wait is a poll.',
  }
}

function commitDurability(settings: Settings): Finding {
  const name = 'durability'
  if (settings.synchronous !== 'off') return ok(name, `synchronous_commit is ${settings.synchronous}`)
  return {
    name,
    level: 'warn',
    found: 'synchronous_commit is off: the last moments before a crash are lost, though they were confirmed',
    advice: 'Set it on for the role that moves money.',
  }
}
