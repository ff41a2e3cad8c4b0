import { readFileSync, readdirSync } from 'node:fs'

/** Names of schemas that are SQL, and what would show that they ran. */

const SEQUENCE = 'public.intruder_hits'

export const CREATE_HITS = `DROP SEQUENCE IF EXISTS ${SEQUENCE}; CREATE SEQUENCE ${SEQUENCE}`
export const DROP_HITS = `DROP SEQUENCE ${SEQUENCE}`
/** A sequence keeps what a rollback undoes. */
export const HITS = `SELECT CASE WHEN is_called THEN last_value ELSE 0 END::int AS hits FROM ${SEQUENCE}`

/** By its number the sequence needs no quotes, which would be doubled on the way. */
export const OID_OF_HITS = `SELECT '${SEQUENCE}'::regclass::oid::text AS oid`

/** Each is at most 63 bytes long. */
export function hostileNames(oid: string): string[] {
  const hit = `nextval(${oid})`
  return [
    `x$create$||${hit}||$create$`,
    `x$$;SELECT ${hit};--`,
    `x$do$;SELECT ${hit};--`,
    `x$body$;SELECT ${hit};--`,
    `x";SELECT ${hit};--`,
    `x';SELECT ${hit};--`,
    `x'||${hit}||'`,
    `x\\';SELECT ${hit};--`,
    `x*/;SELECT ${hit};--`,
    `x<slot>'||${hit}||'`,
    `<writes>";SELECT ${hit};--`,
    `%I%s%L%1$s`,
    `x:"schema":'schema'`,
    `E'\\n";SELECT ${hit};--`,
  ]
}

/**
 * The functions of the schema with the name put in as it is, but for its quotes. Bodies are not checked, as when we create them: one that a
 * name has cut off is no mistake then, and what follows in the name runs.
 */
export function naiveScripts(name: string): string[] {
  const directory = new URL('../../../sql/functions/', import.meta.url)
  const identifier = `"${name.replaceAll('"', '""')}"`
  const literal = `'${name.replaceAll("'", "''")}'`
  return readdirSync(directory).map((file) => {
    const text = readFileSync(new URL(file, directory), 'utf8')
    const created = text.replaceAll(':"schema"', () => identifier).replaceAll(":'schema'", () => literal)
    return `CREATE SCHEMA ${identifier}; SET LOCAL check_function_bodies = off; ${created}\n; ${dropNamed(identifier)}`
  })
}

export function dropNamed(quoted: string): string {
  return `DROP SCHEMA IF EXISTS ${quoted} CASCADE`
}
