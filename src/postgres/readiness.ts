import { SchemaMissingError, SchemaTooOldError, StandbyRefusedError } from '../errors.ts'
import type { Connection, Driver } from './connection.ts'
import { quoteIdentifier } from './identifiers.ts'
import { type KnownServer, type LockStrategy, readServer } from './lockTrials.ts'
import { tooNew } from './migrate.ts'
import { KNOWN_VERSION, NEEDED_VERSION } from './migrations.ts'
import { refuseForeignOwner } from './ownership.ts'
import { CONNECTION_CHECK_PROBE, hasSchemaVersion, readiness, ROLLBACK } from './postgres.sql.ts'
import { codeOf, INVALID_SCHEMA_NAME, UNDEFINED_FUNCTION, UNDEFINED_TABLE } from './sqlstate.ts'
import type { SilenceWatch } from './silenceWatch.ts'
import { withConnection } from './withConnection.ts'

/** What is asked of a server once, before the first transaction. */
export interface Readiness extends KnownServer {
  /** Whether the server can notice that a waiting client has gone. */
  readonly checksConnections: boolean
  /** `transaction_timeout` of the server, which ends a session that waits longer; Infinity where there is none. */
  readonly longestStatementMs: number
}

/** Makes sure that this server can keep the promises, or says why not. */
export async function checkReadiness(
  driver: Driver,
  schema: string,
  silence?: SilenceWatch,
  strategy?: LockStrategy,
): Promise<Readiness> {
  return withConnection(driver, (connection) => checkReadinessOn(connection, schema, strategy), silence)
}

/** The same on a connection that is already at hand. */
export async function checkReadinessOn(
  connection: Connection,
  schema: string,
  strategy: LockStrategy = 'advisory',
): Promise<Readiness> {
  await refuseForeignOwner(connection, schema)
  const timeoutMs = await checkSchema(connection, schema)
  return {
    ...(await readKnownServer(connection, schema, strategy)),
    checksConnections: await canCheckConnections(connection),
    longestStatementMs: timeoutMs === 0 ? Infinity : timeoutMs,
  }
}

/** Which server this is, and what its schema remembers of trials of the locks. */
export async function readKnownServer(
  connection: Connection,
  schema: string,
  strategy: LockStrategy,
): Promise<KnownServer> {
  try {
    return await readServer(connection, quoteIdentifier(schema), strategy)
  } catch (error) {
    throw isMissing(error) ? schemaRenamed(schema, error) : error
  }
}

function isMissing(error: unknown): boolean {
  const code = codeOf(error)
  return code === UNDEFINED_TABLE || code === INVALID_SCHEMA_NAME || code === UNDEFINED_FUNCTION
}

/** Its functions name the schema as it was called when it was migrated. */
function schemaRenamed(schema: string, cause: unknown): SchemaMissingError {
  return new SchemaMissingError(`The functions of the schema "${schema}" refer to another one, which is not there.`, {
    advice: 'Was the schema renamed? Give it its old name back, or drop it and migrate again.',
    cause,
  })
}

/** Gives the server's `transaction_timeout`. */
async function checkSchema(connection: Connection, schema: string): Promise<number> {
  let row: { standby: string; version: string | null; floor: string | null; timeout: string | null }
  try {
    const results = await connection.script(readiness(quoteIdentifier(schema)))
    row = results[0]?.rows[0] as typeof row
  } catch (error) {
    if (!isMissing(error)) throw error
    const [answer] = await connection.script(hasSchemaVersion(quoteIdentifier(schema)))
    if (answer?.rows[0]?.['present'] === 'true') throw schemaRenamed(schema, error)
    throw new SchemaMissingError(`The database has no Lockstep schema "${schema}".`, {
      advice: 'Run `npx pg-lockstep migrate`, or call `await lockstep.migrate()` at start-up.',
      cause: error,
    })
  }
  if (row.standby === 'true') throw standbyRefused()
  if (Number(row.version ?? 0) < NEEDED_VERSION) {
    throw new SchemaTooOldError(
      `The schema "${schema}" is at version ${row.version ?? 0}; this library needs ${NEEDED_VERSION}.`,
      {
        advice: 'Run `npx pg-lockstep migrate`, or call `await lockstep.migrate()` at start-up.',
      },
    )
  }
  if (Number(row.floor) > KNOWN_VERSION) throw tooNew(schema, row, KNOWN_VERSION)
  return Number(row.timeout ?? 0)
}

/** The error for a server on which locks do not exclude the primary's. */
export function standbyRefused(): StandbyRefusedError {
  return new StandbyRefusedError('The server is a standby: locks taken there do not exclude those on the primary.', {
    advice: 'Connect to the primary, with target_session_attrs=primary where several hosts are named.',
  })
}

async function canCheckConnections(connection: Connection): Promise<boolean> {
  try {
    await connection.script(CONNECTION_CHECK_PROBE)
    return true
  } catch (error) {
    if (codeOf(error) === undefined || connection.lost) throw error
    await connection.script(ROLLBACK)
    return false
  }
}
