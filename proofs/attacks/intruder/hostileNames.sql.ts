import { readFileSync, readdirSync } from 'node:fs'

/** Names of schemas that are SQL, and what would show that they ran. */

const SEQUENCE = 'public.intruder_hits'

export const CREATE_HITS = `DROP SEQUENCE IF EXISTS ${SEQUENCE}; CREATE SEQUENCE ${SEQUENCE}`
export const DROP_HITS = `DROP SEQUENCE ${SEQUENCE}`
/** A sequence keeps what a rollback undoes. */
export const HITS = `SELECT CASE WHEN is_called THEN last_value ELSE 0 END::int AS hits FROM ${SEQUENCE}`

const HIT = `nextval('intruder_hits')`

/** Each is at most 63 bytes long. */
export const HOSTILE_NAMES = [
  `x$create$||${HIT}||$create$`,
  `x$$;SELECT ${HIT};--`,
  `x$do$;SELECT ${HIT};--`,
  `x$body$;SELECT ${HIT};--`,
  `x";SELECT ${HIT};--`,
  `x';SELECT ${HIT};--`,
  `x'||${HIT}||'`,
  `x\\';SELECT ${HIT};--`,
  `x*/;SELECT ${HIT};--`,
  `x<slot>'||${HIT}||'`,
  `<writes>";SELECT ${HIT};--`,
  `%I%s%L%1$s`,
  `x:"schema":'schema'`,
  `E'\\n";SELECT ${HIT};--`,
]

/** The migrations with the name put in as it is, but for its quotes: what ours did once. */
export function naiveScripts(name: string): string[] {
  const directory = new URL('../../../sql/', import.meta.url)
  const identifier = `"${name.replaceAll('"', '""')}"`
  const literal = `'${name.replaceAll("'", "''")}'`
  return readdirSync(directory)
    .filter((file) => /^\d{4}_/.test(file))
    .flatMap((file) => readFileSync(new URL(file, directory), 'utf8').match(/^DO \$do\$[^]*?^\$do\$;/gm) ?? [])
    .map((block) => block.replaceAll(':"schema"', () => identifier).replaceAll(":'schema'", () => literal))
}

export function dropNamed(quoted: string): string {
  return `DROP SCHEMA IF EXISTS ${quoted} CASCADE`
}
