import { setTimeout as delay } from 'node:timers/promises'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import {
  InvalidOptionError,
  LockstepError,
  MigrationFailedError,
  SchemaNotOwnedError,
  SchemaTooNewError,
  StandbyRefusedError,
} from '../errors.ts'
import { migrationApplied } from '../observe/index.ts'
import type { Connection, Driver } from './connection.ts'
import { revokeCreate } from './grants.sql.ts'
import { quoteIdentifier } from './identifiers.ts'
import {
  alteredTables,
  forSchema,
  functionsIn,
  type Migration,
  migrationsIn,
  replacing,
  type SchemaFunction,
  VERSION_FUNCTION,
} from './migrations.ts'
import { type SqlFile, sqlFiles } from './sqlFiles.ts'
import { codeOf, LOCK_NOT_AVAILABLE, READ_ONLY_TRANSACTION } from './sqlstate.ts'
import {
  beginMigration,
  closeNewObjects,
  COMMIT,
  createFunctions,
  createMigrations,
  createSchema,
  eventLimit,
  failoverSettings,
  finishSteps,
  grantRaisedTtl,
  holdersOf,
  limitEvents,
  lockTables,
  LOG_END,
  recordAsStep,
  recordedFunctions,
  recordFunctions,
  recordMigration,
  ROLLBACK,
  type SchemaOwnership,
  schemaVersion,
  setFailoverSettings,
  standbysBehind,
} from './postgres.sql.ts'

/** What `migrate()` did. */
export interface MigrateResult {
  /** The version before; 0 where there was no schema. */
  readonly from: number
  readonly to: number
  readonly applied: readonly { readonly version: number; readonly name: string }[]
}

/** Options of `migrate()`. */
export interface MigrateOptions {
  /**
   * Stop at this version of the tables. Functions are created and replaced only at the newest version. Default: the newest that this
   * library has.
   */
  readonly to?: number
  /**
   * The maximum size of an event in the outbox, payload and headers together, in bytes. Stored in the schema, and enforced there for every
   * writer. Default: unchanged; 1,000,000 in a new schema.
   */
  readonly maxEventBytes?: number
  /**
   * The longest ttl of a lease, in milliseconds. After a failover, a free lease is granted only when this time has passed, because the row
   * of its holder can be lost. Stored in the schema. Default: unchanged; 60,000 in a new schema.
   */
  readonly maxTtlMs?: number
  /**
   * States that you promote only standbys with every acknowledged commit, as Patroni does with `synchronous_mode`. Leases then do not wait
   * after a failover. Stored in the schema. Default: unchanged; false in a new schema.
   */
  readonly synchronousFailover?: boolean
}

const MIGRATE_OPTIONS: OptionNames<MigrateOptions> = {
  to: true,
  maxEventBytes: true,
  maxTtlMs: true,
  synchronousFailover: true,
}

/** Leases of the library are at least as long, and at most a day. */
const SHORTEST_TTL_MS = 200
const LONGEST_TTL_MS = 24 * 60 * 60 * 1000

/** A standby that is connected gets a commit at once, unless it is far behind. */
const REPLICATED_WITHIN_MS = 10_000
const REPLICATED_LOOK_MS = 20

/** Others queue behind a migration that waits for a table, so it queues for this long at most, for all of its tables together. */
const QUEUED_MS = 100
const TABLES_WITHIN_MS = 60_000
const SHORTEST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 1000

/** A dispatcher has several copies of an event in memory, one of them with two characters for each byte. */
const LARGEST_EVENT_BYTES = 64 * 1024 * 1024
/** The function that holds the limit: its body is a setting of the schema. */
const LIMIT_FUNCTION = 'outbox_max_event_bytes'

interface SchemaState {
  version: string | null
  floor: string | null
}

/** What one migration works with. */
interface Run {
  readonly connection: Connection
  readonly schema: string
  readonly lockId: bigint
  readonly target: number
  readonly migrations: readonly Migration[]
  readonly functions: readonly SchemaFunction[]
  readonly options: MigrateOptions
}

/** The progress while it runs: after a failure it says how far the migration got. */
interface Progress {
  from: number | undefined
  readonly applied: Migration[]
}

/**
 * Brings the schema up to date. Ten processes may call it at once: the first does the work, the others find it done.
 *
 * A new schema is made in one transaction. In a schema that is in use, the numbered migrations up to the last that alters a table have a
 * transaction each, and the rest, with the functions, has the last one. So no table stays locked while functions are created, and a run
 * that gives up is continued by the next. In between, newer tables have the functions of the old version: a numbered migration must
 * leave those working. Until the functions are there the schema has its old version, so that no newer library starts on it. A
 * migration that excludes processes of the version that is there (`compatible-from`) is applied with all others in one transaction.
 *
 * A migration that alters tables locks all of them first. It queues for them for a tenth of a second at most, because everyone else queues
 * behind it, and tries again later.
 *
 * After the tables, each function whose text differs from what the schema has recorded is created or replaced, as a whole. A library
 * that is older than the schema touches neither: it would bring back functions of its own version. So a release that changes a function
 * adds a numbered migration, even if that has no statement in it.
 */
export async function migrate(
  driver: Driver,
  schema: string,
  lockId: bigint,
  options: MigrateOptions = {},
  files: readonly SqlFile[] = sqlFiles(),
): Promise<MigrateResult> {
  checkOptions('migrate()', options, MIGRATE_OPTIONS)
  const migrations = migrationsIn(files)
  const functions = functionsIn(files)
  const target = options.to ?? migrations.length
  if (!Number.isInteger(target) || target < 1 || target > migrations.length) {
    throw new InvalidOptionError(`There is no migration ${String(options.to)}.`, {
      advice: `Use 1 to ${migrations.length}.`,
    })
  }
  if (options.maxEventBytes !== undefined) checkMaxEventBytes(options.maxEventBytes, target, migrations.length)
  checkFailover(options, target, migrations.length)
  const connection = await driver.connect()
  const progress: Progress = { from: undefined, applied: [] }
  try {
    const run: Run = { connection, schema, lockId, target, migrations, functions, options }
    const { reached, shouldReplicate } = await applyAll(run, progress)
    if (shouldReplicate) await grantWhenReplicated(connection, schema)
    connection.release()
    const applied = progress.applied.map(({ version, name }) => ({ version, name }))
    return { from: progress.from ?? 0, to: Math.max(reached, target), applied }
  } catch (error) {
    await giveUp(connection)
    if (error instanceof LockstepError) throw error
    throw new MigrationFailedError(`The schema "${schema}" could not be migrated: ${messageOf(error)}.`, {
      advice: `${leftBy(progress)} Read the cause, and run it again.`,
      cause: error,
    })
  }
}

function leftBy({ applied }: Progress): string {
  const last = applied.at(-1)
  return last === undefined
    ? 'Nothing was changed.'
    : `Migrations up to ${last.version} were applied, and running processes continue with them. The next run continues there.`
}

/** Transaction by transaction, until there is nothing left. Each looks again at how far the schema is: another process may have been here. */
async function applyAll(run: Run, progress: Progress): Promise<{ reached: number; shouldReplicate: boolean }> {
  const { connection, schema, migrations, functions, target, options } = run
  const deadline = performance.now() + TABLES_WITHIN_MS
  for (let attempt = 0; ;) {
    const state = await begin(connection, schema, run.lockId, target)
    const reached = Number(state.version ?? 0)
    progress.from ??= reached
    if (Number(state.floor ?? 0) > migrations.length) throw tooNew(schema, state, migrations.length)
    const pending = migrations.filter(({ version }) => version > reached && version <= target)
    const [next] = pending
    if (state.owned && next !== undefined && inSteps(pending, reached)) {
      if (await applyOne(run, next, state.known)) {
        attempt = 0
        progress.applied.push(next)
        report(schema, [next])
        continue
      }
      if (performance.now() > deadline) throw await tablesHeld(run, next, progress)
      await delay(pauseMs(++attempt))
      continue
    }
    if (state.owned && reached <= migrations.length) {
      const due = target === migrations.length ? functions : functions.filter(({ name }) => name === VERSION_FUNCTION)
      await connection.script(finishSteps(quoteIdentifier(schema), target))
      await applyTables(connection, schema, pending)
      await applyFunctions(connection, schema, due)
      await connection.script(closeNewObjects(schema, state.known))
    }
    if (options.maxEventBytes !== undefined) await limit(connection, schema, options.maxEventBytes)
    const shouldReplicate = await setFailover(connection, quoteIdentifier(schema), options)
    await connection.script(COMMIT)
    progress.applied.push(...pending)
    report(schema, pending)
    return { reached, shouldReplicate }
  }
}

function inSteps(pending: readonly Migration[], reached: number): boolean {
  return (
    reached > 0 &&
    pending.every(({ compatibleFrom }) => compatibleFrom <= reached) &&
    pending.some((migration) => alteredTables(migration).length > 0)
  )
}

/** Longer from attempt to attempt, and never the same for two migrators. */
function pauseMs(attempt: number): number {
  return Math.min(LONGEST_PAUSE_MS, SHORTEST_PAUSE_MS * 2 ** Math.min(attempt, 8)) * (0.5 + Math.random() / 2)
}

function report(schema: string, applied: readonly Migration[]): void {
  for (const { version, name } of applied) {
    if (migrationApplied.hasSubscribers) migrationApplied.publish({ schema, version, name })
  }
}

/** Applies one migration and commits. False where others use its tables: it is rolled back, and no session queues behind it any more. */
async function applyOne(run: Run, migration: Migration, known: string): Promise<boolean> {
  const { connection, schema } = run
  try {
    const tables = alteredTables(migration)
    if (tables.length > 0) await connection.script(lockTables(quoteIdentifier(schema), tables, QUEUED_MS))
    await applyTables(connection, schema, [migration])
    await connection.script(recordAsStep(quoteIdentifier(schema), migration.version))
    await connection.script(closeNewObjects(schema, known))
  } catch (error) {
    if (codeOf(error) !== LOCK_NOT_AVAILABLE) throw error
    await connection.script(ROLLBACK)
    return false
  }
  await connection.script(COMMIT)
  return true
}

async function tablesHeld(run: Run, next: Migration, progress: Progress): Promise<MigrationFailedError> {
  const { connection, schema } = run
  const tables = alteredTables(next)
  const [found] = await connection.script(holdersOf(schema, tables))
  const holders = found?.rows.map(({ holder }) => holder).join(', ') ?? ''
  return new MigrationFailedError(
    `Migration ${next.version} of the schema "${schema}" found ${tables.join(' or ')} in use for ${TABLES_WITHIN_MS / 1000} s. Held by: ${holders === '' ? 'others' : holders}.`,
    { advice: `${leftBy(progress)} End the transactions that hold the tables, and run it again.` },
  )
}

/** Afterwards the caller takes away what PUBLIC and default privileges got of what is new. */
async function applyTables(connection: Connection, schema: string, migrations: readonly Migration[]): Promise<void> {
  for (const migration of migrations) {
    await connection.script(forSchema(migration.text, schema))
    await connection.read(recordMigration(quoteIdentifier(schema)), [
      migration.version,
      migration.name,
      migration.compatibleFrom,
    ])
  }
}

async function applyFunctions(
  connection: Connection,
  schema: string,
  functions: readonly SchemaFunction[],
): Promise<void> {
  const quoted = quoteIdentifier(schema)
  const [found] = await connection.script(recordedFunctions(quoted))
  const recorded = new Map(found?.rows.map(({ name, hash }) => [name, hash]))
  const changed = functions.filter(({ name, hash }) => recorded.get(name) !== hash)
  if (changed.length === 0) return
  const limited = changed.some(({ name }) => name === LIMIT_FUNCTION) ? await limitOf(connection, schema) : undefined
  const statements = changed.map((each) => (recorded.has(each.name) ? replacing(each) : each.text))
  await connection.script(createFunctions(forSchema(statements.join('\n'), schema)))
  await connection.read(recordFunctions(quoted), [changed.map(({ name }) => name), changed.map(({ hash }) => hash)])
  if (limited !== undefined) await limit(connection, schema, limited)
}

async function limitOf(connection: Connection, schema: string): Promise<number | undefined> {
  const [found] = await connection.script(eventLimit(schema))
  const bytes = found?.rows[0]?.['bytes']
  return bytes === undefined ? undefined : Number(bytes)
}

/** A role that does not own the schema may ask for what is so already. */
async function limit(connection: Connection, schema: string, bytes: number): Promise<void> {
  if ((await limitOf(connection, schema)) !== bytes)
    await connection.script(limitEvents(quoteIdentifier(schema), bytes))
}

function checkMaxEventBytes(bytes: unknown, target: number, newest: number): void {
  if (target < newest) {
    throw new InvalidOptionError(`maxEventBytes was given with to: ${target}.`, {
      advice: `The schema has the limit at version ${newest}.`,
    })
  }
  if (Number.isInteger(bytes) && Number(bytes) >= 1 && Number(bytes) <= LARGEST_EVENT_BYTES) return
  throw new InvalidOptionError(`maxEventBytes is ${String(bytes)}.`, {
    advice: `Use a whole number of bytes from 1 to ${LARGEST_EVENT_BYTES}.`,
  })
}

function checkFailover({ maxTtlMs, synchronousFailover }: MigrateOptions, target: number, newest: number): void {
  if ((maxTtlMs !== undefined || synchronousFailover !== undefined) && target < newest) {
    throw new InvalidOptionError(`maxTtlMs or synchronousFailover was given with to: ${target}.`, {
      advice: `The schema has these settings at version ${newest}.`,
    })
  }
  const ttlMs = maxTtlMs ?? SHORTEST_TTL_MS
  if (!Number.isInteger(ttlMs) || ttlMs < SHORTEST_TTL_MS || ttlMs > LONGEST_TTL_MS) {
    throw new InvalidOptionError(`maxTtlMs is ${String(maxTtlMs)}.`, {
      advice: `Use a whole number of milliseconds from ${SHORTEST_TTL_MS} to ${LONGEST_TTL_MS}.`,
    })
  }
  if (synchronousFailover === undefined || typeof synchronousFailover === 'boolean') return
  throw new InvalidOptionError(`synchronousFailover is ${String(synchronousFailover)}.`, {
    advice: 'Use true or false.',
  })
}

/**
 * A role that does not own the schema may ask for what is so already. True where a standby that lacks it would wait too short
 * after its promotion: the ttl is longer than before, or the statement is taken back.
 */
async function setFailover(
  connection: Connection,
  quotedSchema: string,
  { maxTtlMs, synchronousFailover }: MigrateOptions,
): Promise<boolean> {
  if (maxTtlMs === undefined && synchronousFailover === undefined) return false
  const [found] = await connection.script(failoverSettings(quotedSchema))
  const now = found?.rows[0]
  const ttl = String(maxTtlMs ?? now?.['ttl'])
  const synchronous = String(synchronousFailover ?? now?.['synchronous'])
  if (now?.['ttl'] === ttl && now['synchronous'] === synchronous) return false
  await connection.script(setFailoverSettings(quotedSchema, ttl, synchronous))
  return Number(ttl) > Number(now?.['ttl']) || (now?.['synchronous'] === 'true' && synchronous === 'false')
}

/**
 * A standby that has neither a lease nor the ttl that it was granted with would wait for the shorter ttl after its promotion, while the holder
 * trusts its lease. So the longer one is granted when every standby that is connected has it.
 */
async function grantWhenReplicated(connection: Connection, schema: string): Promise<void> {
  const ask = async (text: string): Promise<Record<string, unknown> | undefined> =>
    (await connection.script(text)).at(-1)?.rows[0]
  const place = String((await ask(LOG_END))?.['place'])
  for (const deadline = performance.now() + REPLICATED_WITHIN_MS; ; await delay(REPLICATED_LOOK_MS)) {
    const behind = Number((await ask(standbysBehind(place)))?.['behind'])
    if (behind === 0) break
    if (performance.now() < deadline) continue
    throw new MigrationFailedError(
      `${behind} standbys did not receive the settings of the schema "${schema}" within ${REPLICATED_WITHIN_MS / 1000} s.`,
      {
        advice:
          'The schema is migrated, and leases are not granted with a longer ttl yet. Run it again when the standbys follow, or disconnect them.',
      },
    )
  }
  await connection.script(grantRaisedTtl(quoteIdentifier(schema)))
}

/** The error for a schema that a newer library has changed beyond what this one can use. */
export function tooNew(schema: string, state: SchemaState, known: number): SchemaTooNewError {
  return new SchemaTooNewError(
    `The schema "${schema}" is at version ${state.version}, and works only with libraries that know version ${state.floor}; this one knows ${known}.`,
    { advice: 'Upgrade pg-lockstep here.' },
  )
}

/**
 * Nothing in the schema is read or run before it is known to be the migrating role's own. A role that does not own it can still find
 * that there is nothing to do, as an application does that migrates at every start: by a function that runs with its owner's rights. Not
 * so a superuser: what the function returns can have a cast, and that runs with the caller's rights.
 */
async function begin(
  connection: Connection,
  schema: string,
  lockId: bigint,
  target: number,
): Promise<SchemaState & { readonly known: string; readonly owned: boolean }> {
  const quoted = quoteIdentifier(schema)
  const ask = async (text: string): Promise<Record<string, unknown> | undefined> =>
    (await connection.script(text)).at(-1)?.rows[0]
  try {
    const found = (await ask(beginMigration(schema, lockId))) as unknown as SchemaOwnership
    if (found.standby === 'true') throw standbyCannotMigrate()
    if (found.owned === 'true' && found.trusted === 'true' && found.foreign === null) {
      if (found.creators !== null) throw othersCreate(schema, found.creators)
      if (found.present === 'false') await connection.script(createSchema(quoted))
      const state = (await ask(createMigrations(quoted))) as unknown as SchemaState
      return { ...state, known: found.known, owned: true }
    }
    // A superuser has every owner's rights, and calls nothing of a role that it cannot trust.
    if (found.owned === 'true' || found.safeVersion === 'false') throw notOwned(schema, found)
    const state = (await ask(schemaVersion(quoted))) as unknown as SchemaState
    if (Number(state.version ?? 0) < target) throw notOwned(schema, found)
    return { ...state, known: found.known, owned: false }
  } catch (error) {
    if (codeOf(error) !== READ_ONLY_TRANSACTION) throw error
    throw standbyCannotMigrate(error)
  }
}

function notOwned(schema: string, { role, owner, owned, trusted, foreign }: SchemaOwnership): SchemaNotOwnedError {
  const others = foreign === null ? '' : ` In it: ${foreign}.`
  const whose =
    owned === 'true' && trusted === 'true'
      ? `has objects of other roles.${others}`
      : `belongs to the role "${owner}".${others}`
  return new SchemaNotOwnedError(`The role "${role}" cannot migrate the schema "${schema}": it ${whose}`, {
    advice: `Code in it would run with the rights of "${role}". Migrate as the owner if you know that role; otherwise drop what it made, or choose another schema.`,
  })
}

function othersCreate(schema: string, creators: string): SchemaNotOwnedError {
  return new SchemaNotOwnedError(`The schema "${schema}" cannot be migrated: others can create in it (${creators}).`, {
    advice: `A function of theirs could run with the rights of the schema's owner. Run: ${revokeCreate(quoteIdentifier(schema), creators)};`,
  })
}

function standbyCannotMigrate(cause?: unknown): StandbyRefusedError {
  return new StandbyRefusedError('The server is a standby and cannot be migrated.', {
    advice: 'Connect to the primary.',
    cause,
  })
}

async function giveUp(connection: Connection): Promise<void> {
  if (connection.lost) return connection.destroy()
  try {
    await connection.script(ROLLBACK)
    connection.release()
  } catch {
    connection.destroy()
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
