import { SchemaNotOwnedError } from '../errors.ts'
import type { Connection } from './connection.ts'
import { type ForeignOwner, foreignOwnerInSchema } from './postgres.sql.ts'

/**
 * Says why a superuser must not call a function of the schema: it belongs to a role that is none, whose code would run with a superuser's
 * rights. Undefined where the schema can be used, or is not there. An ordinary role may use another's schema, as an application does.
 */
export async function foreignOwnerError(
  connection: Connection,
  schema: string,
): Promise<SchemaNotOwnedError | undefined> {
  const [result] = await connection.script(foreignOwnerInSchema(schema))
  const found = result?.rows[0] as unknown as ForeignOwner | undefined
  if (found === undefined) return undefined
  const { role, what, owner } = found
  return new SchemaNotOwnedError(
    `The role "${role}" is a superuser and cannot use the schema "${schema}": ${what} belongs to the role "${owner}".`,
    {
      advice: `Code in it would run with the rights of a superuser. Connect as "${owner}" or another ordinary role; if you do not know "${owner}", drop what it made, or choose another schema.`,
    },
  )
}

/** Throws where a superuser must not call a function of the schema. */
export async function refuseForeignOwner(connection: Connection, schema: string): Promise<void> {
  const stranger = await foreignOwnerError(connection, schema)
  if (stranger !== undefined) throw stranger
}
