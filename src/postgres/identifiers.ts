import { InvalidOptionError } from '../errors.ts'

/** PostgreSQL cuts identifiers at 63 bytes without a word; two long names would become one. */
const MAX_IDENTIFIER_BYTES = 63

/** Quotes an identifier. Every schema, table and column name that Lockstep puts into SQL goes through here. */
export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/** Quotes a string literal for the places where a parameter cannot stand. */
export function quoteLiteral(text: string): string {
  const doubled = text.replaceAll("'", "''")
  return text.includes('\\') ? `E'${doubled.replaceAll('\\', '\\\\')}'` : `'${doubled}'`
}

/** A statement with its values in the text, for a message of several statements, which has no parameters. */
export function withValues({ text, values }: { text: string; values: readonly unknown[] }): string {
  // Not inside a quoted name: a schema may be called `a$1`.
  return text.replaceAll(/"(?:[^"]|"")*"|\$(\d+)/g, (found: string, place: string | undefined) =>
    place === undefined ? found : literalOf(values[Number(place) - 1]),
  )
}

function literalOf(value: unknown): string {
  if (value === null || value === undefined) return 'NULL'
  if (Array.isArray(value)) return `ARRAY[${value.map(literalOf).join(', ')}]`
  if (value instanceof Uint8Array) return `decode('${Buffer.from(value).toString('hex')}', 'hex')`
  return quoteLiteral(typeof value === 'string' ? value : JSON.stringify(value))
}

/** Refuses a name that the server would refuse or cut. */
export function checkIdentifier(what: string, name: unknown, more = ''): string {
  const advice = `Use a name of 1 to ${MAX_IDENTIFIER_BYTES} bytes${more}.`
  if (typeof name !== 'string')
    throw new InvalidOptionError(`The ${what} name is not a string: ${typeof name}.`, { advice })
  const bytes = Buffer.byteLength(name)
  if (bytes === 0 || bytes > MAX_IDENTIFIER_BYTES) {
    throw new InvalidOptionError(`The ${what} name has ${bytes} bytes.`, { advice })
  }
  if (name.includes('\0') || !name.isWellFormed()) {
    throw new InvalidOptionError(`The ${what} name ${JSON.stringify(name)} cannot be used.`, { advice })
  }
  return name
}

/** Refuses a schema name that the server would refuse or cut, or that could end a dollar-quoted text. */
export function checkSchemaName(given: unknown): string {
  const more = ', not starting with pg_ and without $'
  const schema = checkIdentifier('schema', given, more)
  // Scripts quote bodies with dollars, ours and those that people write around the schema: a name with one could end such a body.
  if (schema.startsWith('pg_') || schema.includes('$')) {
    const advice = `Use a name of 1 to ${MAX_IDENTIFIER_BYTES} bytes${more}.`
    throw new InvalidOptionError(`The schema name ${JSON.stringify(schema)} cannot be used.`, { advice })
  }
  return schema
}
