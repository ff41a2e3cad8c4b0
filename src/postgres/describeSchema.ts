import { createHash } from 'node:crypto'
import type { Connection, Driver } from './connection.ts'
import { quoteIdentifier, quoteLiteral } from './identifiers.ts'
import { schemaBytes, schemaIdentifier, schemaText } from './migrations.ts'
import { describeSchemaObjects, LIMIT_BODY } from './postgres.sql.ts'
import { withConnection } from './withConnection.ts'

/**
 * The schema as text, equal on every server version that Lockstep supports: what `sql/schema.sql` holds, with the schema called
 * `lockstep`. The body of a function is a hash here; its text is in `sql/functions`. A difference means that the database was changed by hand, or the migrations without the dump.
 */
export async function describeSchema(driver: Driver, schema: string): Promise<string> {
  return withConnection(driver, (connection) => describeSchemaOn(connection, schema))
}

/** The same on a connection that is already at hand. */
export async function describeSchemaOn(connection: Connection, schema: string): Promise<string> {
  const results = await connection.script(describeSchemaObjects(quoteLiteral(schema)))
  const rows = results.flatMap((result) => result.rows) as { head: string; body: string }[]
  const lines = rows.map(({ head, body }) => {
    return body === '' ? inHead(head, schema) : `${inHead(head, schema)}\n  body ${hashOf(inBody(body, schema))}`
  })
  return `${lines.join('\n')}\n`
}

/** PostgreSQL writes the name with quotes only where it needs them. */
function inHead(text: string, schema: string): string {
  const quoted = quoteIdentifier(schema)
  // A default names its sequence as a text, in which a quote is doubled.
  const forms = [quoted, quoted.replaceAll("'", "''"), schema].map((form) =>
    form.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`),
  )
  return text.replaceAll(new RegExp(String.raw`(?<![\w$"])(?:${forms.join('|')})\.`, 'g'), 'lockstep.')
}

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 32)
}

/** As `forSchema` writes it: the name as a text is only where a relation is named, its bytes only where they are hashed. */
function inBody(text: string, schema: string): string {
  const name = schemaText(schema)
  // The limit of events is a setting that stands in a body: see `limitEvents()`.
  let described = text.trim().replace(LIMIT_BODY, '')
  for (const relation of ['outbox_slot', 'outbox_ids', 'fences', 'epoch_mark', 'epoch_first_id'])
    described = described.replaceAll(
      `${schemaText(schema, relation)}::regclass`,
      `${schemaText('lockstep', relation)}::regclass`,
    )
  return described
    .replaceAll(`${schemaIdentifier(schema)}.`, '"lockstep".')
    .replaceAll(`, ${name})::regclass`, `, 'lockstep')::regclass`)
    .replaceAll(`, ${name}, `, `, 'lockstep', `)
    .replaceAll(`nspname = ${name})`, `nspname = 'lockstep')`)
    .replaceAll(schemaBytes(schema), schemaBytes('lockstep'))
}
