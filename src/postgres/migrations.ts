import { readdir, readFile } from 'node:fs/promises'
import { quoteIdentifier, quoteLiteral } from './identifiers.ts'

/** One numbered file of `sql/`. */
export interface Migration {
  readonly version: number
  readonly name: string
  /** The oldest schema version whose library can still work once this migration is in. */
  readonly compatibleFrom: number
  readonly text: string
}

/** The schema version that this library knows, and the one that it needs at least. */
export const KNOWN_VERSION = 14
export const NEEDED_VERSION = 14

const FILE_NAME = /^(\d{4})_([a-z0-9_]+)\.sql$/
const COMPATIBLE_FROM = /^-- compatible-from: (\d+)$/m

/** Where the package keeps its migrations, from `src` as well as from `dist`. */
export const MIGRATIONS_DIRECTORY = new URL('../../sql/', import.meta.url)

/** The migrations in order. */
export async function readMigrations(directory: URL = MIGRATIONS_DIRECTORY): Promise<Migration[]> {
  const files = (await readdir(directory)).filter((file) => FILE_NAME.test(file)).toSorted()
  return Promise.all(
    files.map(async (file, index) => {
      const [, number, name] = FILE_NAME.exec(file) as unknown as [string, string, string]
      const text = await readFile(new URL(file, directory), 'utf8')
      const compatibleFrom = COMPATIBLE_FROM.exec(text)?.[1]
      if (Number(number) !== index + 1)
        throw new Error(`Migration ${file} is out of sequence: number ${index + 1} was expected.`)
      if (compatibleFrom === undefined) throw new Error(`Migration ${file} does not say "-- compatible-from: N".`)
      return { version: Number(number), name, compatibleFrom: Number(compatibleFrom), text }
    }),
  )
}

/** Fills in the schema's name the way psql does with `-v schema=…`. */
export function forSchema(text: string, schema: string): string {
  return text.replaceAll(':"schema"', () => quoteIdentifier(schema)).replaceAll(":'schema'", () => quoteLiteral(schema))
}
