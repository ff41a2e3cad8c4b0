import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

/** What this file uses of ajv, which fastify brings. */
interface Ajv {
  addSchema(schema: object, name: string): void
  getSchema(name: string): ((value: unknown) => boolean) & { readonly errors?: readonly unknown[] }
}

const FILE = new URL('../../../docs/reference/cli.schema.json', import.meta.url)
const schema = JSON.parse(readFileSync(FILE, 'utf8')) as { readonly $defs: Readonly<Record<string, unknown>> }

const load = createRequire(createRequire(import.meta.url).resolve('fastify'))
const { Ajv2020 } = load('ajv/dist/2020.js') as { Ajv2020: new (options: object) => Ajv }
const ajv = new Ajv2020({ allErrors: true, strict: true, allowUnionTypes: true })
;(load('ajv-formats') as (to: Ajv) => void)(ajv)
ajv.addSchema(schema, 'cli')

/** The names under `$defs`: of commands, and of what they share. */
export const shapeNames: readonly string[] = Object.keys(schema.$defs)

/** What is wrong with an answer of `--json`, by docs/reference/cli.schema.json; undefined where nothing is. */
export function shapeFaults(answer: unknown): string | undefined {
  const { command, error } = answer as { readonly command?: string; readonly error?: unknown }
  const name = error === undefined ? (command ?? 'event') : 'error'
  const validate = ajv.getSchema(`cli#/$defs/${encodeURIComponent(name)}`)
  if (validate === undefined) return `cli.schema.json has no shape for ${name}`
  return validate(answer) ? undefined : `${name}: ${JSON.stringify(validate.errors)} in ${JSON.stringify(answer)}`
}

/** Throws for the first line that has not the shape of the schema. */
export function checkShapes(lines: string): void {
  for (const line of lines.split('\n')) {
    if (!line.startsWith('{')) continue
    const faults = shapeFaults(JSON.parse(line))
    if (faults !== undefined) throw new Error(faults)
  }
}
