import { describeSchema, driverFor } from '../../src/postgres/index.ts'

/** sql/schema.sql, beside the migrations that it follows from. */
export const dumpFile = new URL('../../sql/schema.sql', import.meta.url)

const head = '-- What sql/tables and sql/functions result in. Made by `npm run schema`; a test fails on drift.\n\n'

/** The text that sql/schema.sql must have, read from a migrated database. */
export async function dumpOf(pool: unknown, schema: string): Promise<string> {
  return head + (await describeSchema(driverFor(pool), schema))
}
