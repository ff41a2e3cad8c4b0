import { quoteIdentifier, quoteLiteral } from './identifiers.ts'
import { type SqlFile, sqlFiles } from './sqlFiles.ts'

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

const GRANTS = /^-- grants: .*$/m

/** What a migration makes, and what it then grants to others, after a line that says so: in between, what is new is its owner's alone. */
export function partsOf({ text }: Migration): { makes: string; grants: string | undefined } {
  const at = text.search(GRANTS)
  return at < 0 ? { makes: text, grants: undefined } : { makes: text.slice(0, at), grants: text.slice(at) }
}

/** The migrations in order. */
export function readMigrations(files: readonly SqlFile[] = sqlFiles()): Migration[] {
  const numbered = files.filter(({ name }) => FILE_NAME.test(name))
  return numbered.map(({ name: file, text }, index) => {
    const [, number, name] = FILE_NAME.exec(file) as unknown as [string, string, string]
    const compatibleFrom = COMPATIBLE_FROM.exec(text)?.[1]
    if (Number(number) !== index + 1)
      throw new Error(`Migration ${file} is out of sequence: number ${index + 1} was expected.`)
    if (compatibleFrom === undefined) throw new Error(`Migration ${file} does not say "-- compatible-from: N".`)
    return { version: Number(number), name, compatibleFrom: Number(compatibleFrom), text }
  })
}

/** A name of which no character means anything in SQL, in a dollar-quoted body, in a template of `format()` or of `replace()`. */
const PLAIN_NAME = /^[a-z_][a-z0-9_]*$/

/** The schema as an identifier of a migration. Any name but a plain one is written in escapes: its own text is not in the script. */
export function schemaIdentifier(schema: string): string {
  if (PLAIN_NAME.test(schema)) return quoteIdentifier(schema)
  const escapes = Array.from(schema, (each) => `\\+${(each.codePointAt(0) as number).toString(16).padStart(6, '0')}`)
  return `U&"${escapes.join('')}"`
}

/**
 * The schema's name as a text of a migration, or that of a relation in it, likewise. An expression: U&'' fails where a session reads
 * backslashes the old way.
 */
export function schemaText(schema: string, relation?: string): string {
  const text = relation === undefined ? schema : `${quoteIdentifier(schema)}.${relation}`
  if (PLAIN_NAME.test(schema)) return quoteLiteral(text)
  return `convert_from(decode('${Buffer.from(text).toString('hex')}', 'hex'), 'UTF8')`
}

/**
 * Fills in the schema's name: `:"schema"` is the identifier, `:'schema'` the name as a text, `:'schema.NAME'` the text of a relation's
 * name for `::regclass`. Migrations have these inside dollar-quoted bodies, some of which are templates for others. A name that could
 * end such a body, or mean something in a template, therefore never stands there as it is.
 */
export function forSchema(text: string, schema: string): string {
  return text
    .replaceAll(':"schema"', () => schemaIdentifier(schema))
    .replaceAll(":'schema'", () => schemaText(schema))
    .replaceAll(/:'schema\.(\w+)'/g, (_, relation: string) => schemaText(schema, relation))
}
