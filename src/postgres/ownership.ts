import { SchemaNotOwned } from '../errors.ts'
import type { Connection } from './connection.ts'
import { strangerInSchema, type StrangerInSchema } from './postgres.sql.ts'

/**
 * Says why a superuser must not call a function of the schema: it belongs to a role that is none, whose code would run with a superuser's
 * rights. Undefined where the schema can be used, or is not there. An ordinary role may use another's schema, as an application does.
 */
export async function strangersSchema(connection: Connection, schema: string): Promise<SchemaNotOwned | undefined> {
  const [result] = await connection.script(strangerInSchema(schema))
  const found = result?.rows[0] as unknown as StrangerInSchema | undefined
  if (found === undefined) return undefined
  const { role, what, owner } = found
  return new SchemaNotOwned(
    `The role "${role}" is a superuser and cannot use the schema "${schema}": ${what} belongs to the role "${owner}".`,
    {
      advice: `Code in it would run with the rights of a superuser. Connect as "${owner}" or another ordinary role; if you do not know "${owner}", drop what it made, or choose another schema.`,
    },
  )
}

/** Throws where a superuser must not call a function of the schema. */
export async function refuseStranger(connection: Connection, schema: string): Promise<void> {
  const stranger = await strangersSchema(connection, schema)
  if (stranger !== undefined) throw stranger
}
