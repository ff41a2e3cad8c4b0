import { InvalidOptionError } from '../errors.ts'
import type { Driver } from './connection.ts'
import { grantsFor, type GrantOptions } from './roles.ts'
import { ROLLBACK } from './postgres.sql.ts'
import { codeOf, INVALID_GRANT_OPERATION } from './sqlstate.ts'
import { withConnection } from './withConnection.ts'

/** Grants a role of the database what a role of the documentation needs, in one transaction, and gives the statements. */
export async function applyGrants(driver: Driver, schema: string, options: GrantOptions): Promise<string[]> {
  const statements = grantsFor(schema, options)
  await withConnection(driver, async (connection) => {
    try {
      await connection.script(statements.join('; '))
    } catch (error) {
      if (!connection.lost) await connection.script(ROLLBACK)
      if (codeOf(error) !== INVALID_GRANT_OPERATION) throw error
      throw new InvalidOptionError(`grant() cannot do that: ${(error as Error).message}.`, {
        advice: 'An owner needs no grants. Name the role that the application connects as.',
        cause: error,
      })
    }
  })
  return statements
}
