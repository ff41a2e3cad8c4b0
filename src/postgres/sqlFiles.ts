import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'

/*
 * This module is for the repository, where a changed file must take effect at once. `npm run build` writes another one in its place that
 * contains the texts: the published library reads no file, so that bundlers need no configuration.
 */

/** One file of `sql/`. Its name is the path below that folder. */
export interface SqlFile {
  readonly name: string
  readonly text: string
}

const FOLDER = new URL('../../sql/', import.meta.url)
const RESULT = 'schema.sql'

/** What the migrations are made of: all files of `sql/`, sorted by name, without the description of the result. */
export function sqlFiles(): readonly SqlFile[] {
  return readdirSync(FOLDER, { recursive: true, encoding: 'utf8' })
    .map((name) => name.replaceAll('\\', '/'))
    .filter((name) => name.endsWith('.sql') && name !== RESULT)
    .map((name) => ({ name, text: readFileSync(new URL(name, FOLDER), 'utf8') }))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
}

/** The SHA-256 of `sql/schema.sql` without its head: of what `describeSchema()` returns for a migrated schema that was not changed. */
export function schemaDigest(): string {
  const text = readFileSync(new URL(RESULT, FOLDER), 'utf8')
  return createHash('sha256')
    .update(text.replace(/^(?:--.*\n)+\n?/, ''))
    .digest('hex')
}
