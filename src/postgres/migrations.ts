import { createHash } from 'node:crypto'
import { quoteIdentifier, quoteLiteral } from './identifiers.ts'
import { type SqlFile, sqlFiles } from './sqlFiles.ts'

/*
 * What the schema is made of. `sql/tables` has numbered migrations: tables, indexes, sequences and what is in them, each applied once.
 * `sql/functions` has one file for each function, named as the function is: created as a whole, and replaced as a whole when its text
 * has changed.
 */

/** One numbered file of `sql/tables`. */
export interface Migration {
  readonly version: number
  readonly name: string
  /** The oldest schema version whose library can still work once this migration is in. */
  readonly compatibleFrom: number
  readonly text: string
}

/** One file of `sql/functions`. */
export interface SchemaFunction {
  readonly name: string
  readonly text: string
  /** Of the text. The schema records it, so that `migrate()` replaces a function only where its text has changed. */
  readonly hash: string
}

/** The schema version that this library knows, and the one that it needs at least. */
export const KNOWN_VERSION = 13
export const NEEDED_VERSION = 13

/** The function that reports the schema's version. It needs no table but `migrations`, and exists at every version. */
export const VERSION_FUNCTION = 'schema_version'

const MIGRATION_FILE = /^tables\/(\d{4})_([a-z0-9_]+)\.sql$/
const FUNCTION_FILE = /^functions\/([a-z0-9_]+)\.sql$/
const COMPATIBLE_FROM = /^-- compatible-from: (\d+)$/m
const CREATE_FUNCTION = /^CREATE FUNCTION :"schema"\.(\w+)\(/gm

/** The migrations in order. */
export function migrationsIn(files: readonly SqlFile[] = sqlFiles()): Migration[] {
  const numbered = files.filter(({ name }) => MIGRATION_FILE.test(name)).toSorted(byName)
  return numbered.map(({ name: file, text }, index) => {
    const [, number, name] = MIGRATION_FILE.exec(file) as unknown as [string, string, string]
    const compatibleFrom = COMPATIBLE_FROM.exec(text)?.[1]
    if (Number(number) !== index + 1)
      throw new Error(`Migration ${file} is out of sequence: number ${index + 1} was expected.`)
    if (compatibleFrom === undefined) throw new Error(`Migration ${file} does not say "-- compatible-from: N".`)
    return { version: Number(number), name, compatibleFrom: Number(compatibleFrom), text }
  })
}

const ALTERED_TABLE =
  /^(?:ALTER|DROP) TABLE (?:IF EXISTS )?:"schema"\.(\w+)|^CREATE (?:UNIQUE )?INDEX \w+ ON :"schema"\.(\w+)/gm
const CREATED_TABLE = /^CREATE (?:UNLOGGED )?TABLE :"schema"\.(\w+)/gm

/** The tables that a migration changes and did not make itself: it waits for everyone who uses them. */
export function alteredTables({ text }: Pick<Migration, 'text'>): string[] {
  const created = new Set([...text.matchAll(CREATED_TABLE)].map(([, name]) => name))
  const altered = [...text.matchAll(ALTERED_TABLE)].map(([, table, indexed]) => (table ?? indexed) as string)
  return [...new Set(altered)].filter((name) => !created.has(name))
}

/** The functions by name. A file must create one function, called as the file is. */
export function functionsIn(files: readonly SqlFile[] = sqlFiles()): SchemaFunction[] {
  const functions = files.filter(({ name }) => FUNCTION_FILE.test(name)).toSorted(byName)
  return functions.map(({ name: file, text }) => {
    const [, name] = FUNCTION_FILE.exec(file) as unknown as [string, string]
    const created = [...text.matchAll(CREATE_FUNCTION)].map(([, each]) => each)
    if (created.length !== 1 || created[0] !== name)
      throw new Error(`${file} must create one function, called as the file is. It creates: ${created.join(', ')}.`)
    return { name, text, hash: createHash('sha256').update(text).digest('hex') }
  })
}

function byName(a: SqlFile, b: SqlFile): number {
  return a.name < b.name ? -1 : 1
}

/**
 * The statement that replaces a function that `migrate()` made before: it keeps its grants. The file itself says CREATE, which fails where
 * an application has a function of that name in the schema. Replacing that one would also leave the new body with the old grants.
 */
export function replacing({ text }: SchemaFunction): string {
  return text.replace(CREATE_FUNCTION, (statement) => statement.replace('CREATE', 'CREATE OR REPLACE'))
}

/** A name of which no character means anything in SQL, in a dollar-quoted body or in a template of `format()`. */
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
  return `convert_from(${schemaBytes(text)}, 'UTF8')`
}

/** The name's bytes in UTF-8. */
export function schemaBytes(schema: string): string {
  return `decode('${Buffer.from(schema).toString('hex')}', 'hex')`
}

/**
 * Fills in the schema's name: `:"schema"` is the identifier, `:'schema'` the name as a text, `:b'schema'` its bytes in UTF-8, and
 * `:'schema.NAME'` the text of a relation's name for `::regclass`. The files have these inside dollar-quoted bodies, some of which format other statements. A name that could end
 * such a body, or mean something in a template, therefore never stands there as it is.
 */
export function forSchema(text: string, schema: string): string {
  return text
    .replaceAll(':"schema"', () => schemaIdentifier(schema))
    .replaceAll(":b'schema'", () => schemaBytes(schema))
    .replaceAll(":'schema'", () => schemaText(schema))
    .replaceAll(/:'schema\.(\w+)'/g, (_, relation: string) => schemaText(schema, relation))
}
