import { createHash } from 'node:crypto'
import { functionsIn, migrationsIn, type SqlFile } from '../../src/postgres/index.ts'

/**
 * The rule for functions of the schema, which processes of two releases call at the same time while a deploy rolls: a function whose
 * signature changes gets a new name, and the old one stays for one minor version. sql/signatures has what the previous release had.
 */

export const signaturesFile = new URL('../../sql/signatures', import.meta.url)

/** The files of `sql/`, and what they result in, as `describeSchema()` writes it. */
export interface DescribedFiles {
  readonly files: readonly SqlFile[]
  readonly description: string
}

/** As `describeSchema()` writes them: name, arguments, result. */
const FUNCTION = /^function (\w+)(\(.*) language \w+ (?:immutable|stable|volatile)\b/gm
const LISTED = /^(superseded )?(\w+)(\(.*)$/gm
/** A line of a function's file: it stays for callers of the previous release. */
const SUPERSEDED = /^-- Superseded by \w+\(\) since \S+\.$/m

/** The list for sql/signatures. `release` is `none` before the first one. */
export function listSignatures({ files, description }: DescribedFiles, release: string): string {
  const lines = [...description.matchAll(FUNCTION)].map(([, name, signature]) => {
    const isSuperseded = SUPERSEDED.test(files.find((file) => file.name === `functions/${name}.sql`)?.text ?? '')
    return `${isSuperseded ? 'superseded ' : ''}${name}${signature}`
  })
  return [
    '-- The functions of the previous release. Written by `npm run schema -- --release VERSION`; a test compares them.',
    `-- release: ${release}`,
    `-- schema version: ${migrationsIn(files).length}`,
    `-- texts: ${hashOfTexts(files)}`,
    ...lines.toSorted(),
    '',
  ].join('\n')
}

function hashOfTexts(files: readonly SqlFile[]): string {
  const texts = functionsIn(files).map(({ name, hash }) => `${name} ${hash}`)
  return createHash('sha256').update(texts.join('\n')).digest('hex')
}

/** What the files break of the rules, compared with the list of the previous release. */
export function brokenRules(previous: string, { files, description }: DescribedFiles): string[] {
  const now = new Map([...description.matchAll(FUNCTION)].map(([, name, signature]) => [name, signature]))
  const broken = [...previous.matchAll(LISTED)].flatMap(([, wasSuperseded, name, signature]) => {
    const found = now.get(name)
    if (found === signature || (found === undefined && wasSuperseded !== undefined)) return []
    return found === undefined
      ? [`${name}() is gone. Keep it for one minor version, with a line "-- Superseded by NAME() since VERSION."`]
      : [`${name}() has another signature. Give it a new name, and keep ${name}${signature} for one minor version.`]
  })
  const noted = (what: string): string | undefined => new RegExp(`^-- ${what}: (.*)$`, 'm').exec(previous)?.[1]
  const isReleased = noted('release') !== 'none'
  const isSameVersion = noted('schema version') === String(migrationsIn(files).length)
  if (isReleased && isSameVersion && noted('texts') !== hashOfTexts(files)) {
    broken.push(
      'Functions have changed since the release, and the schema has no new version. Add a numbered file to sql/tables, even if it has no statement: an older process that calls migrate() would otherwise bring its own functions back.',
    )
  }
  return broken
}
