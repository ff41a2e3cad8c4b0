import { readFileSync } from 'node:fs'

/** The version in package.json. `npm run build` writes a module in place of this one that contains it. */
export function packageVersion(): string {
  const text = readFileSync(new URL('../package.json', import.meta.url), 'utf8')
  return (JSON.parse(text) as { version: string }).version
}
