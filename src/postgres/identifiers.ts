import { InvalidOption } from '../errors.ts'

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

/** Refuses a schema name that the server would refuse or cut. */
export function checkSchemaName(schema: unknown): string {
  const advice = `Use a name of 1 to ${MAX_IDENTIFIER_BYTES} bytes, not starting with pg_ and without $$.`
  if (typeof schema !== 'string')
    throw new InvalidOption(`The schema name is not a string: ${typeof schema}.`, { advice })
  const bytes = Buffer.byteLength(schema)
  if (bytes === 0 || bytes > MAX_IDENTIFIER_BYTES) {
    throw new InvalidOption(`The schema name has ${bytes} bytes.`, { advice })
  }
  // The name stands inside the bodies of functions, which $$ would end.
  const endsBody = schema.includes('$$')
  if (schema.includes('\0') || !schema.isWellFormed() || schema.startsWith('pg_') || endsBody) {
    throw new InvalidOption(`The schema name ${JSON.stringify(schema)} cannot be used.`, { advice })
  }
  return schema
}
