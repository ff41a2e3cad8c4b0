import type { Driver } from './connection.ts'
import { DESCRIBE_SCHEMA } from './postgres.sql.ts'

/**
 * The schema as text, equal on every server version that Lockstep supports: what `sql/schema.sql` holds, with the schema called
 * `lockstep`. A difference means that somebody changed the database by hand, or the migrations without the dump.
 */
export async function describeSchema(driver: Driver, schema: string): Promise<string> {
  const connection = await driver.connect()
  try {
    const { rows } = await connection.query<{ text: string }>(DESCRIBE_SCHEMA, [schema])
    const lines = rows.map((row) => normalise(row.text, schema))
    return `${lines.join('\n')}\n`
  } finally {
    connection.release()
  }
}

function normalise(text: string, schema: string): string {
  const plain = text.replaceAll(`"${schema.replaceAll('"', '""')}"`, 'lockstep').replaceAll(`${schema}.`, 'lockstep.')
  return plain.replaceAll(`'${schema.replaceAll("'", "''")}'`, "'lockstep'").trimEnd()
}
