/** Which packages of the registry are inside the console's page: what its sources import, and what those need. */

/** One entry of package-lock.json. */
export interface LockedPackage {
  readonly version?: string
  readonly integrity?: string
  readonly license?: string
  readonly dependencies?: Readonly<Record<string, string>>
}

export interface BundledPackage extends LockedPackage {
  readonly name: string
}

const IMPORT = /(?:^|\s)(?:import|from)\s*\(?\s*['"]([^'"./][^'"]*)['"]/g

/** The packages that a source imports. */
export function importedBy(source: string): string[] {
  const found = [...source.matchAll(IMPORT)].map(([, specifier = '']) => packageOf(specifier))
  return [...new Set(found)].filter((name) => !name.startsWith('node:'))
}

function packageOf(specifier: string): string {
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/')
}

/** These packages and all that they depend on, as the lockfile has them, sorted by name. */
export function closureOf(names: readonly string[], locked: Readonly<Record<string, LockedPackage>>): BundledPackage[] {
  const found = new Map<string, BundledPackage>()
  const waiting = [...names]
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    if (found.has(name)) continue
    const entry = locked[`node_modules/${name}`]
    if (entry?.version === undefined) throw new Error(`package-lock.json has no ${name}, which the page imports`)
    found.set(name, { name, ...entry })
    waiting.push(...Object.keys(entry.dependencies ?? {}))
  }
  return [...found.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1))
}
