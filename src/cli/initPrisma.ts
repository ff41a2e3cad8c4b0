import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'

/** Where Prisma looks for its schema. */
const SCHEMAS = ['prisma/schema.prisma', 'schema.prisma']

/**
 * Where a file in `from` imports the client from that the generator `prisma-client` writes: its schema says. Undefined without such a
 * generator. The older `prisma-client-js` was not tried.
 */
export function prismaClientOf(folder: string, from: string, isBundled: boolean): string | undefined {
  const schema = SCHEMAS.find((each) => existsSync(join(folder, each)))
  if (schema === undefined) return undefined
  const generators = readFileSync(join(folder, schema), 'utf8').match(/^generator\s[^}]*\}/gm) ?? []
  for (const generator of generators) {
    const setting = (name: string): string | undefined =>
      new RegExp(String.raw`^\s*${name}\s*=\s*"([^"]*)"`, 'm').exec(generator)?.[1]
    const output = setting('output')
    if (setting('provider') !== 'prisma-client' || output === undefined) continue
    const client = join(folder, dirname(schema), output, 'client')
    const place = relative(join(folder, from), client).replaceAll('\\', '/')
    const extension = isBundled ? '' : `.${setting('importFileExtension') ?? 'js'}`
    return `${place.startsWith('.') ? '' : './'}${place}${extension}`
  }
  return undefined
}
